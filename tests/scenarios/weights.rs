//! Weights that are not there, or not those that were meant.

use denv_schema::Digest;

use crate::fixture::{Fixture, PATIENCE, STAGE};

fn release(name: &str, file: &str, content: &[u8]) -> String {
    let digest = Digest::of_bytes(content);
    format!(
        "apiVersion: denv.dev/v1
kind: Release
metadata: {{name: {name}}}
spec:
  model: {{name: m, weights: {{source: 'file:{file}', digest: '{digest}'}}}}
  engine: simulated
  recipe: simulated
  topology: {{mode: aggregated, replica: {{cpuSlots: 1}}}}
"
    )
}

async fn reason_for(fixture: &mut Fixture, from: &str, to: &str) -> String {
    fixture.release(from, to).await;
    let view = fixture
        .stage_until(STAGE, "the rollback", PATIENCE, |view| {
            view.held.as_ref().is_some_and(|held| held.release.as_str() == to)
                && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        })
        .await
        .unwrap();
    view.held.unwrap().reason
}

#[tokio::test]
async fn weights_that_differ_or_are_missing_roll_back_with_what_was_found() {
    let mut fixture = Fixture::create();
    let weights = fixture.layout.dir.join("weights");
    std::fs::create_dir_all(&weights).unwrap();
    std::fs::write(weights.join("good.gguf"), b"good").unwrap();
    std::fs::write(weights.join("torn.gguf"), b"goo").unwrap();
    fixture.layout.weights_dir = Some(weights.clone());
    for (name, file) in [("good", "good.gguf"), ("torn", "torn.gguf"), ("gone", "gone.gguf")] {
        fixture.repository.write(&format!("{name}.yaml"), &release(name, file, b"good")).unwrap();
    }
    fixture.repository.edit("service.yaml", "release: r1\n", "release: good\n").unwrap();
    fixture.repository.commit("Name weights").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("good").await;

    let reason = reason_for(&mut fixture, "good", "torn").await;
    for expected in [Digest::of_bytes(b"good"), Digest::of_bytes(b"goo")] {
        assert!(reason.contains(&expected.to_string()), "{reason}");
    }
    let reason = reason_for(&mut fixture, "torn", "gone").await;
    assert!(reason.contains(&weights.join("gone.gguf").display().to_string()), "{reason}");
    fixture.ready("good").await;

    // Mended in place, without a commit.
    std::fs::write(weights.join("gone.gguf"), b"good").unwrap();
    fixture.client().unwrap().rollout(STAGE, denv_schema::api::RolloutAction::Retry).await.unwrap();
    fixture.ready("gone").await;
}
