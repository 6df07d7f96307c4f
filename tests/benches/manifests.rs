//! What 10,000 manifests cost a person at the command line: each figure is of a cold process on a Git repository.
//!
//!     cargo bench -p denv-tests --bench manifests

#![allow(clippy::print_stdout, reason = "a benchmark's output is its result")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use git2::{IndexAddOption, Repository, Signature};

/// 10,000 manifests, four to a file.
const SERVICES: usize = 2_500;
const RUNS: usize = 9;

fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let repository = Repository::init(dir.path())?;
    write(dir.path())?;
    commit(&repository, "Begin")?;
    let one = dir.path().join("services/00/7.yaml");
    std::fs::write(&one, std::fs::read_to_string(&one)?.replace("bake: 10m", "bake: 11m"))?;
    commit(&repository, "Change one file")?;

    show("denv validate, 10,000 manifests", &["validate", "."], dir.path(), 0, "1 s and 300 MB")?;
    show("denv diff of a one-file commit", &["diff", "HEAD~1", "HEAD"], dir.path(), 1, "200 ms")?;
    for entry in walk(&dir.path().join("services"))? {
        let text = std::fs::read_to_string(&entry)?;
        std::fs::write(
            &entry,
            text.replace("release: r", "release: x")
                .replace("stage: e", "stage: y")
                .replace("bake: 10m", "bake: soon")
                .replace("customer: c", "customer: z")
                .replace("[prod]", "[prud]"),
        )?;
    }
    show("denv validate, with 10,000 errors and more", &["validate", "."], dir.path(), 1, "2 s")?;
    Ok(())
}

fn service(number: usize) -> String {
    let i = number;
    let mut text = String::new();
    let mut add = |kind: &str, name: &str, spec: &str| {
        let _ = write!(
            text,
            "---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}"
        );
    };
    add("Environment", &format!("e{i}"), "  stages: [prod]\n");
    let stage = format!(
        "  environment: e{i}\n  release: r{}\n  fleets:\n    - {{name: racks, units: {{min: 0}}}}\n  rollout:\n    \
         batches: [1, 25%, 100%]\n    bake: 10m\n    drainTimeout: 5m\n",
        i % 10
    );
    add("Stage", "prod", &stage);
    add("Endpoint", &format!("p{i}"), &format!("  models:\n    - {{name: m-{i}, stage: e{i}/prod}}\n"));
    add("Key", &format!("k{i}"), &format!("  customer: c{}\n  hash: sha256:{i:064x}\n", i % 10));
    text
}

fn write(root: &Path) -> anyhow::Result<()> {
    let mut base = String::from(
        "apiVersion: denv.dev/v1\nkind: Provider\nmetadata: {name: own}\nspec: {kind: owned}\n---\napiVersion: \
         denv.dev/v1\nkind: Fleet\nmetadata: {name: racks}\nspec: {provider: own, region: fra, purchase: owned, accelerator: \
         h200, hosts: {min: 0, max: 4}}\n---\napiVersion: denv.dev/v1\nkind: Engine\nmetadata: {name: vllm}\nspec: {kind: \
         vllm, version: '0.32', command: [vllm, serve]}\n---\napiVersion: denv.dev/v1\nkind: Recipe\nmetadata: {name: \
         rec}\nspec: {model: m, engine: vllm, hardware: {accelerator: h200}}\n",
    );
    for i in 0..10 {
        let _ = write!(
            base,
            "---\napiVersion: denv.dev/v1\nkind: Release\nmetadata: {{name: r{i}}}\nspec: {{model: {{name: m}}, engine: vllm, \
             recipe: rec, topology: {{mode: aggregated, replica: {{gpus: 8, parallelism: {{tensor: 8}}}}}}}}\n---\napiVersion: \
             denv.dev/v1\nkind: Customer\nmetadata: {{name: c{i}}}\nspec: {{}}\n"
        );
    }
    std::fs::write(root.join("base.yaml"), base)?;
    for number in 0..SERVICES {
        let folder = root.join(format!("services/{:02}", number / 100));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{number}.yaml")), service(number))?;
    }
    Ok(())
}

fn walk(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(walk(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

fn commit(repository: &Repository, message: &str) -> anyhow::Result<()> {
    let mut index = repository.index()?;
    index.add_all(["*"], IndexAddOption::DEFAULT, None)?;
    index.write()?;
    let tree = repository.find_tree(index.write_tree()?)?;
    let author = Signature::now("An Operator", "operator@example.com")?;
    let head = repository.head().ok().map(|head| head.peel_to_commit()).transpose()?;
    let parents: Vec<_> = head.iter().collect();
    repository.commit(Some("HEAD"), &author, &author, message, &tree, &parents)?;
    Ok(())
}

/// Runs it again and again, each time as a process of its own.
fn show(what: &str, arguments: &[&str], folder: &Path, status: i32, wanted: &str) -> anyhow::Result<()> {
    let program = denv_tests::programs()?.join("denv");
    let (mut times, mut most) = (Vec::new(), 0);
    for _ in 0..RUNS {
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn().context("denv runs")?;
        let (ended, memory) = wait(&mut child)?;
        times.push(began.elapsed());
        most = most.max(memory);
        ensure!(ended == Some(status), "{what}: exit status {ended:?}");
    }
    times.sort();
    println!(
        "{what}: median {:?}, slowest {:?}, {} MB (wanted: at most {wanted})",
        times[times.len() / 2],
        times[times.len() - 1],
        most / 1024
    );
    Ok(())
}

/// Its exit status, and the most memory it was seen to use, in KiB.
fn wait(child: &mut Child) -> anyhow::Result<(Option<i32>, u64)> {
    let mut most = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        if let Some(ended) = child.try_wait()? {
            return Ok((ended.code(), most));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
