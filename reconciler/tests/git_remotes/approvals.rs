//! Approving a large deletion over the API.

use denv_schema::api::{ApprovalRequest, EventView, List, SourceState, SourceView};
use reqwest::StatusCode;

use crate::process::Reconciler;
use crate::repository::Repository;

fn customers(count: usize) -> String {
    let one = |number: usize| {
        format!(
            "---\napiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: c{number}}}\nspec: {{displayName: C}}\n"
        )
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn what_would_go_is_shown_and_the_commit_is_accepted_by_name_alone() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(&dir.path().join("config"));
    repository.write("many.yaml", &customers(9));
    repository.commit("nine customers");
    let reconciler = Reconciler::start(dir.path(), &repository.bare.display().to_string(), &[]).await;
    let before = reconciler.accepted().await;

    repository.write("many.yaml", &customers(1));
    let commit = repository.commit("clean up");
    let view = reconciler.look().await;
    assert_eq!((view.state, view.accepted.unwrap().commit), (SourceState::AwaitingApproval, before));
    let deletion = &view.awaiting.unwrap().deletions[0];
    assert_eq!((deletion.kind.as_str(), deletion.deleted, deletion.of), ("customers", 8, 10));

    let approve = |revision: &str| ApprovalRequest { revision: revision.to_owned() };
    let refused = reconciler.status_of("/v1/sources/main/approve", &approve("0123456789")).await;
    assert_eq!(refused, StatusCode::CONFLICT);
    let view: SourceView = reconciler.ask_with("/v1/sources/main/approve", &approve(&commit[..10])).await;
    assert_eq!((view.state, view.accepted.unwrap().commit), (SourceState::Ready, commit.clone()));
    let events: List<EventView> = reconciler.get("/v1/events").await;
    let said = format!("admin approved {} `clean up`", &commit[..10]);
    assert!(events.items.iter().any(|event| event.message.starts_with(&said)), "{:?}", events.items);
    let again = reconciler.status_of("/v1/sources/main/approve", &approve(&commit)).await;
    assert_eq!(again, StatusCode::CONFLICT);
}
