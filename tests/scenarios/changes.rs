//! A change as people make it: looked at, planned, applied, followed, and in Git afterwards.

use std::process::{Command, Output};

use denv_schema::Digest;
use git2::Repository;
use serde_json::Value;

use crate::fixture::{Fixture, PATIENCE, STAGE};

/// What `denv` said, and its exit status.
struct Said {
    status: i32,
    out: String,
    err: String,
}

async fn denv(fixture: &Fixture, token: &std::path::Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(denv_tests::programs().unwrap().join("denv"));
    command
        .args(arguments)
        .current_dir(&fixture.repository.path)
        .env("DENV_SERVER", fixture.api_url())
        .env("DENV_TOKEN_FILE", token)
        .env_remove("DENV_TOKEN");
    let said = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } = said.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { status: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

async fn as_admin(fixture: &Fixture, arguments: &[&str]) -> Said {
    denv(fixture, &fixture.admin_token_file(), arguments).await
}

/// The stage's document with one text replaced, in a file of its own, as somebody without a clone would have it.
fn stage_file(fixture: &Fixture, from: &str, to: &str) -> String {
    let service = fixture.repository.file("service.yaml").unwrap();
    let document = service.split("---\n").find(|text| text.contains("kind: Stage")).unwrap();
    let bare: String = document
        .lines()
        .map(|line| line.split(" #").next().unwrap().trim_end())
        .filter(|line| !line.trim_start().starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(bare.contains(from), "{bare}");
    let path = fixture.layout.dir.join("stage.yaml");
    std::fs::write(&path, bare.replace(from, to)).unwrap();
    path.display().to_string()
}

/// Of the newest commit of a branch of the remote: author, message, and a file.
fn newest(fixture: &Fixture, branch: &str, file: &str) -> (String, String, String) {
    let remote = Repository::open(&fixture.repository.remote).unwrap();
    let commit = remote.find_branch(branch, git2::BranchType::Local).unwrap().get().peel_to_commit().unwrap();
    let entry = commit.tree().unwrap().get_path(std::path::Path::new(file)).unwrap();
    let text = String::from_utf8(remote.find_blob(entry.id()).unwrap().content().to_vec()).unwrap();
    let author = format!("{} <{}>", commit.author().name().unwrap(), commit.author().email().unwrap());
    (author, commit.message().unwrap().to_owned(), text)
}

#[tokio::test]
async fn what_is_planned_is_what_happens_and_git_has_it_afterwards() {
    let fixture = Fixture::start().await;
    let before = fixture.repository.file("service.yaml").unwrap().to_owned();
    let same = as_admin(&fixture, &["diff", "--live"]).await;
    assert_eq!(same.status, 0, "{} {}", same.out, same.err);

    let file = stage_file(&fixture, "release: r1", "release: r2");
    let dry = as_admin(&fixture, &["apply", "-f", &file, "--dry-run"]).await;
    assert_eq!(dry.status, 0, "{}", dry.err);
    assert!(dry.out.contains("restarts 2 units of chat/prod: `r1` to `r2`"), "{}", dry.out);
    assert!(dry.out.contains("would change service.yaml in main of source `main`"), "{}", dry.out);

    // The whole configuration with the change, as a pull request has it.
    let wanted = fixture.layout.dir.join("wanted");
    std::fs::create_dir(&wanted).unwrap();
    for entry in std::fs::read_dir(&fixture.repository.path).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let text = text.replace("release: r1\n", "release: r2\n");
            std::fs::write(wanted.join(entry.file_name()), text).unwrap();
        }
    }
    let wanted = wanted.display().to_string();
    let planned = as_admin(&fixture, &["plan", &wanted, "-o", "json"]).await;
    assert_eq!(planned.status, 0, "{}", planned.err);
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    let markdown = as_admin(&fixture, &["plan", &wanted, "-o", "markdown"]).await;
    assert!(
        markdown.out.starts_with("<!-- denv-plan -->\n### denv: starts 2 units, drains 2 units"),
        "{}",
        markdown.out
    );

    // What has run may not read otherwise.
    let software = std::path::Path::new(&wanted).join("software.yaml");
    let text = std::fs::read_to_string(&software).unwrap();
    std::fs::write(&software, text.replacen("cpuSlots: 1", "cpuSlots: 2", 1)).unwrap();
    let changed = as_admin(&fixture, &["plan", &wanted]).await;
    assert_eq!(changed.status, 2, "{}", changed.out);
    assert!(changed.err.contains("error[changed-release]: release `r1` was deployed"), "{}", changed.err);

    let applied = as_admin(&fixture, &["apply", "-f", &file, "--wait", "-m", "Move to r2"]).await;
    assert_eq!(applied.status, 0, "{} {}", applied.out, applied.err);
    let units = fixture.client().unwrap().stage(STAGE).await.unwrap().units;
    let starts =
        planned["forecast"]["moves"].as_array().unwrap().iter().filter(|step| step["does"] == "start");
    let foretold: Vec<(&str, &str)> = starts
        .map(|step| (step["unit"].as_str().unwrap(), step["members"][0]["host"].as_str().unwrap()))
        .collect();
    let happened: Vec<(&str, &str)> =
        units.iter().map(|unit| (unit.unit.as_str(), unit.host.as_str())).collect();
    assert_eq!(foretold, happened);
    assert!(units.iter().all(|unit| unit.release.as_str() == "r2" && unit.status == "ready"));

    let (author, message, after) = newest(&fixture, "main", "service.yaml");
    assert_eq!((author.as_str(), message.as_str()), ("denv admin <admin@denv.invalid>", "Move to r2"));
    assert_eq!(after, before.replace("release: r1\n", "release: r2\n"));
    let again = as_admin(&fixture, &["apply", "-f", &file]).await;
    assert_eq!((again.status, again.out.contains("nothing to change")), (0, true), "{}", again.out);
}

#[tokio::test]
async fn people_change_what_their_roles_allow_in_their_own_name() {
    let mut fixture = Fixture::start().await;
    let token = fixture.layout.dir.join("ada-token");
    std::fs::write(&token, "denv-adas-token\n").unwrap();
    let access = format!(
        "apiVersion: denv.dev/v1
kind: Access
metadata: {{name: ada}}
spec:
  displayName: Ada
  email: ada@example.com
  tokens: [{{hash: '{}'}}]
  grants: [{{role: publisher, stages: [chat/prod]}}]
",
        Digest::of_bytes(b"denv-adas-token")
    );
    let bad = fixture.layout.dir.join("bad.yaml");
    std::fs::write(&bad, access.replace("publisher", "publishe")).unwrap();
    let refused = as_admin(&fixture, &["apply", "-f", &bad.display().to_string()]).await;
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("did you mean `publisher`?"), "{}", refused.err);
    let file = fixture.layout.dir.join("ada.yaml");
    std::fs::write(&file, &access).unwrap();
    let granted = as_admin(&fixture, &["apply", "-f", &file.display().to_string()]).await;
    assert_eq!(granted.status, 0, "{}", granted.err);
    assert_eq!(newest(&fixture, "main", "accesses/ada.yaml").2, access);

    // What is hers.
    let stage = stage_file(&fixture, "bake: 500ms", "bake: 600ms");
    let base = as_admin(&fixture, &["get", "sources", "-o", "json"]).await;
    let base: Value = serde_json::from_str(&base.out).unwrap();
    let base = base["items"][0]["accepted"]["commit"].as_str().unwrap();
    let hers = denv(&fixture, &token, &["apply", "-f", &stage, "--if-base", base]).await;
    assert_eq!(hers.status, 0, "{}", hers.err);
    let (author, message, _) = newest(&fixture, "main", "service.yaml");
    assert_eq!((author.as_str(), message.as_str()), ("Ada <ada@example.com>", "Change Stage chat/prod"));
    // The branch has moved since.
    let stage = stage_file(&fixture, "bake: 500ms", "bake: 700ms");
    let late = denv(&fixture, &token, &["apply", "-f", &stage, "--if-base", base]).await;
    assert_eq!(late.status, 1);
    assert!(late.err.contains("branch `main` stands at"), "{}", late.err);
    // For a pull request nothing that runs changes.
    let apart = denv(&fixture, &token, &["apply", "-f", &stage, "--branch", "slower"]).await;
    assert_eq!(apart.status, 0, "{}", apart.err);
    assert!(newest(&fixture, "slower", "service.yaml").2.contains("bake: 700ms"));
    assert!(newest(&fixture, "main", "service.yaml").2.contains("bake: 600ms"));

    // What is not.
    let denied = denv(&fixture, &token, &["delete", "key", "demo-laptop"]).await;
    assert_ne!(denied.status, 0);
    assert!(
        denied.err.contains("to change Key `demo-laptop`, one must be admin in everything"),
        "{}",
        denied.err
    );
    let denied = denv(&fixture, &token, &["usage"]).await;
    assert!(denied.err.contains("`ada` would have to be viewer in everything"), "{}", denied.err);
    let nobody = fixture.layout.dir.join("nobody");
    std::fs::write(&nobody, "denv-nobody").unwrap();
    assert_eq!(denv(&fixture, &nobody, &["get", "stages"]).await.status, 2);

    // A person who works in a clone meanwhile sees all of it.
    fixture.repository.pull().unwrap();
    fixture.repository.edit("service.yaml", "bake: 600ms", "bake: 500ms").unwrap();
    fixture.push("Bake as before").await.unwrap();
    let deleted = as_admin(&fixture, &["delete", "access", "ada"]).await;
    assert_eq!(deleted.status, 0, "{}", deleted.err);
    assert_eq!(denv(&fixture, &token, &["get", "stages"]).await.status, 2);
}

#[tokio::test]
async fn a_release_that_a_stage_has_proven_passes_to_the_next() {
    let mut fixture = Fixture::start().await;
    let service = fixture.repository.file("service.yaml").unwrap().to_owned();
    let prod = service.split("---\n").find(|text| text.contains("kind: Stage")).unwrap();
    let test = prod.replace("metadata: {name: prod}", "metadata: {name: test}").replace("min: 2", "min: 1");
    let by_hand = service.replace("stages: [prod]", "stages: [test, prod]") + "---\n" + &test;
    fixture.repository.write("service.yaml", &by_hand).unwrap();
    fixture.push("Test first").await.unwrap();
    let runs = |release: &'static str| {
        move |view: &denv_schema::api::StageView| {
            let over = view.deployment.as_ref().is_some_and(|deployment| deployment.over);
            over && view.good.as_ref().is_some_and(|good| good.as_str() == release)
        }
    };
    fixture.stage_until("chat/test", "r1 in test", PATIENCE, runs("r1")).await.unwrap();

    // By a person.
    let early = as_admin(&fixture, &["promote", "chat/prod"]).await;
    assert_eq!(early.status, 1);
    assert!(early.err.contains("chat/prod is the last stage of `chat`"), "{}", early.err);
    let text = by_hand.replacen("release: r1\n", "release: r1 \n", 1);
    let (head, tail) = text.rsplit_once("release: r1\n").unwrap();
    fixture.repository.write("service.yaml", &format!("{head}release: r2\n{tail}")).unwrap();
    fixture.push("Try r2").await.unwrap();
    fixture.stage_until("chat/test", "r2 in test", PATIENCE, runs("r2")).await.unwrap();
    let promoted = as_admin(&fixture, &["promote", "chat/test", "--wait"]).await;
    assert_eq!(promoted.status, 0, "{} {}", promoted.out, promoted.err);
    fixture.ready("r2").await;
    assert_eq!(newest(&fixture, "main", "service.yaml").1, "Promote r2 from chat/test to chat/prod");

    // By itself.
    fixture.repository.pull().unwrap();
    fixture.write_release("r3", &["--sim-token-delay", "1"]);
    let step = "stages: [test, prod]\n  promotion: [{from: test, to: prod, mode: automatic, bake: 1s}]";
    fixture.repository.edit("service.yaml", "stages: [test, prod]", step).unwrap();
    let text = fixture.repository.file("service.yaml").unwrap();
    let (head, tail) = text.rsplit_once("release: r2\n").unwrap();
    let text = format!("{head}release: r3\n{tail}");
    fixture.repository.write("service.yaml", &text).unwrap();
    fixture.push("Try r3").await.unwrap();
    fixture.ready("r3").await;
    let (author, message, _) = newest(&fixture, "main", "service.yaml");
    assert_eq!(
        (author.as_str(), message.as_str()),
        ("denv <denv@localhost>", "Promote r3 from chat/test to chat/prod")
    );
    // Whoever takes it back is not overruled.
    fixture.repository.pull().unwrap();
    let text = fixture.repository.file("service.yaml").unwrap().replacen("release: r3\n", "release: r2\n", 1);
    fixture.repository.write("service.yaml", &text).unwrap();
    let back = fixture.repository.commit("Back to r2 in prod").unwrap();
    as_admin(&fixture, &["source", "refresh", "main"]).await;
    fixture.ready("r2").await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let source = fixture.client().unwrap().source().await.unwrap();
    assert_eq!(source.accepted.unwrap().commit, back);
}
