//! How long a commit takes from the remote to an accepted catalog: `cargo bench -p denv-reconciler`.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use denv_reconciler::source::{DeletionShare, Shelf, Source, SourceConfig, SourceHandle};
use denv_reconciler::store::Store;
use git2::build::TreeUpdateBuilder;
use git2::{FileMode, Repository, Signature};
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

/// 10,000 manifests: customers with a key each, two documents to a file.
const CUSTOMERS: usize = 5_000;

fn customer(number: usize, words: &str) -> String {
    format!(
        "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: c{number}}}\nspec: {{displayName: {words}}}\n---\n\
         apiVersion: denv.dev/v1\nkind: Key\nmetadata: {{name: k{number}}}\nspec: {{customer: c{number}, hash: \
         'sha256:{number:064x}'}}\n"
    )
}

/// Commits files on top of the branch's head.
fn commit(remote: &Path, files: impl Iterator<Item = (String, String)>) {
    let repository = Repository::open_bare(remote).unwrap_or_else(|_| Repository::init_bare(remote).unwrap());
    let mut update = TreeUpdateBuilder::new();
    for (path, text) in files {
        update.upsert(path, repository.blob(text.as_bytes()).unwrap(), FileMode::Blob);
    }
    let head =
        repository.refname_to_id("refs/heads/main").ok().map(|oid| repository.find_commit(oid).unwrap());
    let empty = repository.treebuilder(None).unwrap().write().unwrap();
    let tree =
        head.as_ref().map_or_else(|| repository.find_tree(empty).unwrap(), |head| head.tree().unwrap());
    let tree = repository.find_tree(update.create_updated(&repository, &tree).unwrap()).unwrap();
    let author = Signature::now("Ada", "ada@example.com").unwrap();
    let parents: Vec<_> = head.iter().collect();
    repository.commit(Some("refs/heads/main"), &author, &author, "Change", &tree, &parents).unwrap();
}

/// A source that has accepted the first commit.
async fn source(dir: &Path) -> SourceHandle {
    let store = Store::open(&dir.join("denv.db"), &"default".parse().unwrap()).await.unwrap();
    let config = SourceConfig {
        name: "main".to_owned(),
        url: dir.join("remote").display().to_string(),
        branch: "main".to_owned(),
        folder: String::new(),
        mirror: dir.join("mirror"),
        poll: Duration::from_secs(3_600),
        remote: Arc::default(),
        allowed_signers: None,
        signing_key: None,
        webhook_secret: None,
        forge: None,
        deletion_share: DeletionShare::DEFAULT,
    };
    let (shelf, catalogs) = Shelf::new();
    let (running, handle) = Source::new(config, store, &shelf).await.unwrap();
    tokio::spawn(running.run());
    handle.look().await.unwrap();
    assert_eq!(catalogs.borrow().as_ref().map(|catalog| catalog.keys.len()), Some(CUSTOMERS));
    handle
}

#[divan::bench(sample_count = 30)]
fn one_file_of_10_000_manifests(bencher: divan::Bencher<'_, '_>) {
    let dir = tempfile::tempdir().unwrap();
    let remote = dir.path().join("remote");
    let path = |number: usize| format!("customers/{}/{number}.yaml", number / 100);
    commit(&remote, (0..CUSTOMERS).map(|number| (path(number), customer(number, "first"))));
    let runtime = Runtime::new().unwrap();
    let handle = runtime.block_on(source(dir.path()));
    let mut changes = 0;
    bencher
        .with_inputs(|| {
            changes += 1;
            let text = customer(changes % CUSTOMERS, &format!("change {changes}"));
            commit(&remote, [(path(changes % CUSTOMERS), text)].into_iter());
        })
        .bench_local_values(|()| runtime.block_on(handle.look()).unwrap());
    assert!(handle.view().refused.is_none());
}
