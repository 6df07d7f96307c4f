mod approvals;
mod hooks;
mod publications;
mod several;
mod signatures;

use std::path::Path;

use git2::{Repository, Signature};

use super::*;

const QUICKSTART: [(&str, &str); 4] = [
    ("capacity.yaml", include_str!("../../../examples/manifests/quickstart/capacity.yaml")),
    ("software.yaml", include_str!("../../../examples/manifests/quickstart/software.yaml")),
    ("service.yaml", include_str!("../../../examples/manifests/quickstart/service.yaml")),
    ("commerce.yaml", include_str!("../../../examples/manifests/quickstart/commerce.yaml")),
];

struct Bench {
    dir: tempfile::TempDir,
    source: SourceHandle,
    catalog: watch::Receiver<Option<Arc<Catalog>>>,
    store: Store,
}

impl Bench {
    async fn start(dir: tempfile::TempDir) -> Self {
        Bench::start_with(dir, |_| {}).await
    }

    async fn start_with(dir: tempfile::TempDir, set: impl FnOnce(&mut SourceConfig)) -> Self {
        let store = Store::open(&dir.path().join("denv.db"), &"default".parse().unwrap()).await.unwrap();
        let mut config = SourceConfig {
            name: "main".to_owned(),
            url: dir.path().join("remote").display().to_string(),
            branch: "main".to_owned(),
            folder: String::new(),
            mirror: dir.path().join("mirror"),
            poll: Duration::from_secs(3600),
            remote: Arc::default(),
            allowed_signers: None,
            signing_key: None,
            webhook_secret: None,
            forge: None,
            deletion_share: DeletionShare::DEFAULT,
        };
        set(&mut config);
        let (shelf, catalog) = Shelf::new();
        let (running, source) = Source::new(config, store.clone(), &shelf).await.unwrap();
        tokio::spawn(running.run());
        Bench { dir, source, catalog, store }
    }

    async fn look(&self) -> SourceView {
        self.source.look().await.unwrap();
        self.source.view()
    }

    /// What happened, the newest last.
    async fn events(&self) -> Vec<String> {
        let query = crate::store::EventQuery { limit: 100, ..Default::default() };
        self.store.events(&query).await.unwrap().into_iter().map(|event| event.message).collect()
    }
}

/// A commit of these files on `parent` (by default the branch's head), as the branch's new head.
fn commit(dir: &Path, files: &[(&str, &str)], message: &str, parent: Option<git2::Oid>) -> git2::Oid {
    let path = dir.join("remote");
    let repository = Repository::open_bare(&path).unwrap_or_else(|_| Repository::init_bare(&path).unwrap());
    let mut builder = git2::build::TreeUpdateBuilder::new();
    for (name, text) in files {
        let blob = repository.blob(text.as_bytes()).unwrap();
        builder.upsert(*name, blob, git2::FileMode::Blob);
    }
    let empty = repository.treebuilder(None).unwrap().write().unwrap();
    let baseline = repository.find_tree(empty).unwrap();
    let tree = repository.find_tree(builder.create_updated(&repository, &baseline).unwrap()).unwrap();
    let head = repository.refname_to_id("refs/heads/main").ok();
    let parents: Vec<_> =
        parent.or(head).into_iter().map(|oid| repository.find_commit(oid).unwrap()).collect();
    let author = Signature::now("Ada", "ada@example.com").unwrap();
    let oid = repository
        .commit(None, &author, &author, message, &tree, &parents.iter().collect::<Vec<_>>())
        .unwrap();
    repository.reference("refs/heads/main", oid, true, "test").unwrap();
    oid
}

#[tokio::test]
async fn a_bad_revision_is_refused_whole_and_the_last_stays_in_force() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    let bench = Bench::start(dir).await;
    let view = bench.look().await;
    assert_eq!((view.state, view.problem), (SourceState::Ready, None));
    assert_eq!(view.accepted.unwrap().author, "Ada");
    let before = bench.catalog.borrow().clone().unwrap();

    let mut files = QUICKSTART;
    let broken = files[2].1.replace("release: smollm2-r1", "release: nothing");
    files[2].1 = &broken;
    commit(bench.dir.path(), &files, "break it", None);
    let view = bench.look().await;
    assert_eq!(view.state, SourceState::Refused);
    let refused = view.refused.unwrap();
    assert!(
        refused.reason.contains("service.yaml:13:12: there is no Release `nothing`"),
        "{}",
        refused.reason
    );
    assert!(Arc::ptr_eq(&before, bench.catalog.borrow().as_ref().unwrap()));

    commit(bench.dir.path(), &QUICKSTART, "mend it", None);
    assert_eq!(bench.look().await.state, SourceState::Ready);
}

#[tokio::test]
async fn an_empty_tree_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    let bench = Bench::start(dir).await;
    bench.look().await;
    commit(bench.dir.path(), &[("README.md", "nothing here")], "oops", None);
    let view = bench.look().await;
    assert!(view.refused.unwrap().reason.contains("no manifests"));
    assert!(bench.catalog.borrow().is_some());
}

#[tokio::test]
async fn a_rewind_is_refused_and_a_remote_that_vanishes_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let first = commit(dir.path(), &QUICKSTART, "begin", None);
    commit(dir.path(), &QUICKSTART, "go on", None);
    let bench = Bench::start(dir).await;
    bench.look().await;
    // The branch is moved to another line of history.
    commit(bench.dir.path(), &QUICKSTART, "another line", Some(first));
    let view = bench.look().await;
    assert!(view.refused.unwrap().reason.contains("history was rewritten"));

    std::fs::rename(bench.dir.path().join("remote"), bench.dir.path().join("away")).unwrap();
    let view = bench.look().await;
    assert_eq!(view.state, SourceState::Unreachable);
    assert!(view.problem.unwrap().contains("cannot fetch branch `main`"));
    assert!(bench.catalog.borrow().is_some());
}

#[tokio::test]
async fn after_a_restart_the_accepted_revision_is_in_force_without_the_remote() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    let bench = Bench::start(dir).await;
    bench.look().await;
    let Bench { dir, source, .. } = bench;
    drop(source);
    std::fs::rename(dir.path().join("remote"), dir.path().join("away")).unwrap();
    let again = Bench::start(dir).await;
    let view = again.look().await;
    assert_eq!(view.state, SourceState::Unreachable);
    assert!(view.accepted.is_some());
    assert!(again.catalog.borrow().is_some());
}

#[tokio::test]
async fn many_fetches_leave_few_packs() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    let bench = Bench::start(dir).await;
    let mut last = None;
    for number in 0..=packs::MOST_PACKS {
        last = Some(commit(bench.dir.path(), &QUICKSTART, &format!("go on {number}"), None));
        bench.look().await;
    }
    let packs = || {
        let folder = std::fs::read_dir(bench.dir.path().join("mirror/objects/pack")).unwrap();
        folder
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "pack"))
            .count()
    };
    assert!(packs() > packs::MOST_PACKS);
    let view = bench.look().await;
    assert_eq!((view.problem, view.accepted.unwrap().commit), (None, last.unwrap().to_string()));
    assert_eq!(packs(), 1);
    let next = commit(bench.dir.path(), &QUICKSTART, "and on", None);
    assert_eq!(bench.look().await.accepted.unwrap().commit, next.to_string());
}

#[tokio::test]
async fn a_mirror_that_lost_its_objects_is_filled_again() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    let bench = Bench::start(dir).await;
    bench.look().await;
    let Bench { dir, source, .. } = bench;
    drop(source);
    std::fs::remove_dir_all(dir.path().join("mirror/objects/pack")).unwrap();
    std::fs::create_dir(dir.path().join("mirror/objects/pack")).unwrap();
    let again = Bench::start(dir).await;
    let view = again.look().await;
    assert_eq!((view.problem, view.state), (None, SourceState::Ready));
    assert!(again.catalog.borrow().is_some());
}

/// Adds links to the head's tree, as a new commit.
fn link(dir: &Path, links: &[(&str, &str)]) {
    let repository = Repository::open_bare(dir.join("remote")).unwrap();
    let head = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
    let mut builder = git2::build::TreeUpdateBuilder::new();
    for (name, target) in links {
        builder.upsert(*name, repository.blob(target.as_bytes()).unwrap(), git2::FileMode::Link);
    }
    let tree = builder.create_updated(&repository, &head.tree().unwrap()).unwrap();
    let tree = repository.find_tree(tree).unwrap();
    let author = Signature::now("Ada", "ada@example.com").unwrap();
    repository.commit(Some("refs/heads/main"), &author, &author, "link", &tree, &[&head]).unwrap();
}

#[tokio::test]
async fn links_are_followed_inside_the_tree_and_refused_out_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = QUICKSTART.to_vec();
    let customer = files.pop().unwrap();
    files.push(("shared/customers.txt", customer.1));
    commit(dir.path(), &files, "begin", None);
    link(dir.path(), &[("chat/commerce.yaml", "../shared/customers.txt")]);
    let bench = Bench::start(dir).await;
    assert_eq!(bench.look().await.state, SourceState::Ready);
    assert_eq!(bench.catalog.borrow().as_ref().unwrap().customers.len(), 1);

    link(bench.dir.path(), &[("chat/out.yaml", "../../etc/passwd"), ("root.yaml", "/etc/passwd")]);
    let found = bench.look().await.refused.unwrap().diagnostics.to_string();
    assert!(found.contains("chat/out.yaml: the file is a link that leads to no file"), "{found}");
    assert!(found.contains("root.yaml: the file is a link that leads to no file"), "{found}");
}
