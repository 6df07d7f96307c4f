//! What needs no control plane.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use denv_schema::{Catalog, Digest};
use insta::assert_snapshot;
use serde_json::Value;

use crate::{denv, run};

const QUICKSTART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/manifests/quickstart");

fn copy_of_quickstart(folder: &Path) {
    for entry in std::fs::read_dir(QUICKSTART).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "`{from}` is not in {}", path.display());
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn the_quickstart_is_valid() {
    let (status, out, err) = run(denv().args(["validate", QUICKSTART]));
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("valid: 12 manifests (1 provider, 1 fleet, 2 hosts,"), "{out}");
    let (status, out, _) = run(denv().args(["validate", QUICKSTART, "-o", "json"]));
    assert_eq!((status, out.as_str()), (0, "[]\n"));
}

#[test]
fn faults_are_shown_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    copy_of_quickstart(folder.path());
    replace(&folder.path().join("service.yaml"), "release: smollm2-r1", "release: smollm2-r11");
    replace(&folder.path().join("service.yaml"), "batches: [1, 100%]", "batches: [2, 1]");
    replace(&folder.path().join("commerce.yaml"), "customer: demo", "customer: demi");
    let (status, out, err) = run(denv().current_dir(folder.path()).args(["validate", "."]));
    assert_eq!((status, out.as_str()), (1, ""));
    assert_snapshot!(err, @"
    commerce.yaml:12:13: error[unknown-reference]: there is no Customer `demi`
       |
    12 |   customer: demi
       |             ^
      hint: did you mean `demo`?

    service.yaml:13:12: error[unknown-reference]: there is no Release `smollm2-r11`
       |
    13 |   release: smollm2-r11
       |            ^
      hint: did you mean `smollm2-r1`?

    service.yaml:19:18: error[contradiction]: batch 2 is smaller than the one before it
       |
    19 |     batches: [2, 1]             # one unit first, then all
       |                  ^
      hint: batches are totals: write them ascending

    3 problems in 2 files: 2 unknown-reference, 1 contradiction
    what they mean: denv explain unknown-reference
    ");
    let whole = format!("{}/service.yaml:13:12", folder.path().display());
    let (_, _, err) = run(denv().arg("validate").arg(folder.path()));
    assert!(err.contains(&whole), "{err}");

    let (status, out, err) = run(denv().current_dir(folder.path()).args(["validate", ".", "-o", "json"]));
    assert_eq!((status, err.as_str()), (1, ""));
    let found: Vec<Value> = serde_json::from_str(&out).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0]["file"], "commerce.yaml");
}

#[test]
fn manifests_come_from_several_places_and_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    copy_of_quickstart(folder.path());
    let commerce = std::fs::read(folder.path().join("commerce.yaml")).unwrap();
    std::fs::remove_file(folder.path().join("commerce.yaml")).unwrap();
    let (status, out, err) = run(denv().arg("validate").arg(folder.path()).arg("-").write_stdin(commerce));
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("12 manifests"), "{out}");
    let broken = "apiVersion: denv.dev/v1\nkind: Relese\n";
    let (status, _, err) = run(denv().args(["validate", "-f", "-"]).write_stdin(broken));
    assert_eq!(status, 1);
    assert!(err.starts_with("stdin:2:7: error[unknown-kind]: `Relese` is not a kind\n"), "{err}");
}

#[test]
fn what_cannot_be_validated_is_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let (status, _, err) = run(denv().current_dir(folder.path()).args(["validate", "."]));
    assert_eq!(status, 2);
    assert_snapshot!(err, @"
    error: there are no manifests in `.`
    hint: manifests are .yaml and .yml files; hidden ones are left out, and with -f what is in folders below (see -R)
    ");
    std::fs::write(folder.path().join("empty.yaml"), "# nothing yet\n").unwrap();
    let (status, _, err) = run(denv().current_dir(folder.path()).args(["validate", "."]));
    assert_eq!((status, err.lines().next()), (2, Some("error: there are no manifests in `.`")));
    let (status, _, err) = run(denv().args(["validate", "/nonexistent/manifests"]));
    assert_eq!(status, 2);
    assert!(err.starts_with("error: cannot read `/nonexistent/manifests`: No such file"), "{err}");
    let (status, _, _) = run(denv().arg("validate"));
    assert_eq!(status, 2);
}

#[test]
fn a_secret_in_a_manifest_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    copy_of_quickstart(folder.path());
    replace(
        &folder.path().join("software.yaml"),
        "startTimeout:",
        "env: {HF_TOKEN: hf_planted}\n  startTimeout:",
    );
    let text = std::fs::read_to_string(folder.path().join("commerce.yaml")).unwrap();
    let hash = text.find("hash: sha256:").unwrap();
    let text = format!("{}hash: sk-denv-planted\n", &text[..hash]);
    std::fs::write(folder.path().join("commerce.yaml"), text).unwrap();
    let (status, out, err) = run(denv().arg("validate").arg(folder.path()));
    assert_eq!(status, 1);
    assert!(!out.contains("planted") && !err.contains("planted"), "{err}");
}

#[test]
fn a_new_key_and_its_manifest_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    copy_of_quickstart(folder.path());
    let create = ["key", "create", "app", "--customer", "demo"];
    let (status, manifest, err) = run(denv().args(create));
    assert_eq!(status, 0);
    assert!(!manifest.contains("sk-denv-"));
    let key = err.lines().map(str::trim).find(|line| line.starts_with("sk-denv-")).unwrap();
    assert!(err.contains("only this once"), "{err}");
    std::fs::write(folder.path().join("app.yaml"), &manifest).unwrap();
    let catalog = Catalog::from_files(&denv_schema::tree::read(folder.path()).unwrap()).unwrap();
    assert_eq!(catalog.keys["app"].hash, Digest::of_bytes(key.as_bytes()));

    let (_, out, err) = run(denv().args(create).args(["-o", "json"]));
    let made: Value = serde_json::from_str(&out).unwrap();
    let key = made["key"].as_str().unwrap();
    assert_eq!(made["manifest"]["spec"]["hash"], Digest::of_bytes(key.as_bytes()).to_string());
    assert_eq!(err, "");
}

#[test]
fn a_key_file_is_new_and_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.key");
    let create = || {
        let mut command = denv();
        command.args(["key", "create", "app", "--customer", "demo", "--key-file"]).arg(&path);
        command
    };
    let (status, manifest, err) = run(&mut create());
    assert_eq!(status, 0, "{err}");
    let key = std::fs::read_to_string(&path).unwrap();
    assert!(manifest.contains(&Digest::of_bytes(key.trim().as_bytes()).to_string()));
    assert!(!err.contains("sk-denv-"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (status, out, err) = run(&mut create());
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("hint: a key is never written over"), "{err}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), key);
}

#[test]
fn schemas_and_completions_are_printed() {
    let (status, out, _) = run(denv().args(["schema", "release"]));
    assert_eq!(status, 0);
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema["type"], "object");
    let (status, _, err) = run(denv().args(["schema", "Relese"]));
    assert_eq!(status, 2);
    assert!(err.contains("did you mean `Release`?"), "{err}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (status, out, _) = run(denv().args(["completion", shell]));
        assert!(status == 0 && out.contains("rollout"), "{shell}");
    }
    let (status, out, _) = run(denv().arg("version"));
    assert_eq!((status, out), (0, concat!("denv ", env!("CARGO_PKG_VERSION"), "\n").to_owned()));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_trouble() {
    let program = assert_cmd::cargo::cargo_bin!("denv");
    let mut child = std::process::Command::new(program)
        .args(["completion", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn fields_are_explained_and_definitions_printed() {
    let (status, out, _) = run(denv().args(["explain", "stage.spec.rollout.bake"]));
    assert_eq!(status, 0);
    assert!(out.starts_with("stage.spec.rollout.bake: period, default 5m\n"), "{out}");
    let (status, out, _) = run(denv().args(["explain", "Stages.spec.fleets[].units", "-o", "json"]));
    assert_eq!(status, 0);
    let field: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(field["fields"][0]["name"], "min");
    let (status, _, err) = run(denv().args(["explain", "stage.spec.rolout"]));
    assert_eq!(status, 2);
    assert_snapshot!(err, @"
    error: `stage.spec` has no field `rolout`
    hint: did you mean `rollout`?
    ");
    let (status, _, err) = run(denv().args(["explain", "stag"]));
    assert_eq!(status, 2);
    assert_snapshot!(err, @"
    error: there is no kind `stag`
    hint: did you mean `Stage`?
    ");

    let (status, out, _) = run(denv().args(["schema", "--crd"]));
    assert_eq!(status, 0);
    assert_eq!(out.matches("kind: CustomResourceDefinition").count(), denv_schema::manifest::Kind::ALL.len());
    let (status, out, _) = run(denv().args(["schema", "pricelist", "--crd", "-o", "json"]));
    assert_eq!(status, 0);
    let definition: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(definition["metadata"]["name"], "pricelists.denv.dev");
    let (status, out, _) = run(denv().args(["schema"]));
    assert_eq!(status, 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["title"], "denv");
}

#[test]
fn the_digest_of_weights_is_what_the_shell_makes_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tokenizer")).unwrap();
    std::fs::write(folder.path().join("tokenizer/vocab.json"), "{}").unwrap();
    std::fs::write(folder.path().join("model.safetensors"), "weights").unwrap();
    std::fs::write(folder.path().join(".gitattributes"), "not of them").unwrap();
    let of = |arguments: &[&str]| {
        let (status, out, err) =
            run(denv().current_dir(folder.path()).args(["weights", "digest"]).args(arguments));
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        out
    };
    let sums = of(&["-o", "sums", "."]);
    assert_snapshot!(sums, @"
    9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c  ./model.safetensors
    44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a  ./tokenizer/vocab.json
    ");
    assert_eq!(of(&["."]), format!("{}\n", Digest::of_bytes(sums.as_bytes())));
    let json: Value = serde_json::from_str(&of(&["-o", "json", "model.safetensors"])).unwrap();
    let digest = Digest::of_bytes(b"weights").to_string();
    let file = serde_json::json!({"name": "model.safetensors", "digest": digest, "bytes": 7});
    assert_eq!(json, serde_json::json!({"digest": digest, "bytes": 7, "files": [file]}));

    let (status, out, err) = run(denv().args(["weights", "digest", "/nowhere"]));
    assert_eq!((status, out.as_str()), (2, ""));
    assert_snapshot!(err, @"
    error: `/nowhere` cannot be read: No such file or directory (os error 2)
    hint: name a file or folder that you may read
    ");
}
