//! What people have committed lands beside what others push at the same time, or is refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use denv_schema::change::{ChangeRequest, ChangeView, FieldSetting};
use denv_schema::diff::ManifestKey;
use denv_schema::manifest::Kind;

use super::signatures::{allow, key, sign_head};
use super::*;

fn customer(name: &str, display_name: &str) -> String {
    format!(
        "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: {name}}}\nspec: {{displayName: {display_name}}}\n"
    )
}

/// A request to call the quickstart's customer so.
fn rename(to: &str) -> ChangeRequest {
    let manifest = ManifestKey { kind: Kind::Customer, name: "demo".to_owned() };
    let setting = FieldSetting { manifest, field: "/spec/displayName".to_owned(), value: to.into() };
    ChangeRequest { set: vec![setting], ..ChangeRequest::default() }
}

/// Another's push: the quickstart with these files put in place or added.
fn push(dir: &Path, files: &[(&str, &str)]) -> git2::Oid {
    let mut all: BTreeMap<&str, &str> = QUICKSTART.into_iter().collect();
    all.extend(files.iter().copied());
    commit(dir, &all.into_iter().collect::<Vec<_>>(), "another's", None)
}

fn renamed(to: &str) -> String {
    QUICKSTART[3].1.replace("The demo's own customer", to)
}

fn remote(dir: &Path) -> Repository {
    Repository::open_bare(dir.join("remote")).unwrap()
}

fn file_at_head(dir: &Path, path: &str) -> String {
    let remote = remote(dir);
    let tree = remote.find_reference("refs/heads/main").unwrap().peel_to_tree().unwrap();
    let blob = remote.find_blob(tree.get_path(Path::new(path)).unwrap().id()).unwrap();
    String::from_utf8(blob.content().to_vec()).unwrap()
}

impl Bench {
    async fn quickstart() -> Self {
        let dir = tempfile::tempdir().unwrap();
        commit(dir.path(), &QUICKSTART, "begin", None);
        let bench = Bench::start(dir).await;
        bench.look().await;
        bench
    }

    async fn publish(&self, request: ChangeRequest) -> Result<ChangeView, PublicationError> {
        self.publish_while(request, |_, _| {}).await.0
    }

    /// What becomes of it when `meanwhile` happens, each time between where the branch is read and where it is pushed
    /// to; and how often that was.
    async fn publish_while(
        &self,
        request: ChangeRequest,
        meanwhile: impl Fn(&Path, usize) + Send + 'static,
    ) -> (Result<ChangeView, PublicationError>, usize) {
        let (tries, dir) = (Arc::new(AtomicUsize::new(0)), self.dir.path().to_owned());
        let counted = Arc::clone(&tries);
        let permission: Permission = Box::new(move |_, _, _| {
            meanwhile(&dir, counted.fetch_add(1, Ordering::Relaxed));
            Ok(())
        });
        let author = Author { name: "Ada".to_owned(), email: "ada@example.com".to_owned() };
        let outcome = self.source.publish(request, author, permission).await.unwrap();
        (outcome, tries.load(Ordering::Relaxed))
    }

    fn head(&self) -> String {
        remote(self.dir.path()).refname_to_id("refs/heads/main").unwrap().to_string()
    }
}

#[tokio::test]
async fn it_is_in_force_and_in_the_askers_name_when_the_answer_comes() {
    let bench = Bench::quickstart().await;
    let before = bench.head();
    let view = bench.publish(rename("Ours")).await.unwrap();
    let accepted = bench.source.view().accepted.unwrap();
    assert_eq!((view.base, view.commit.as_ref()), (before, Some(&accepted.commit)));
    assert_eq!((accepted.author.as_str(), accepted.summary.as_str()), ("Ada", "Change Customer demo"));
    // Only what was asked for is another than before.
    assert_eq!(file_at_head(bench.dir.path(), "commerce.yaml"), renamed("Ours"));
    let nothing = bench.publish(rename("Ours")).await.unwrap();
    assert_eq!((nothing.commit, bench.head()), (None, accepted.commit));
}

#[tokio::test]
async fn a_branch_that_moves_elsewhere_gets_both_changes() {
    let bench = Bench::quickstart().await;
    let (published, tries) = bench
        .publish_while(rename("Ours"), |dir, tried| {
            if tried == 0 {
                push(dir, &[("theirs.yaml", &customer("theirs", "Theirs"))]);
            }
        })
        .await;
    assert_eq!((published.unwrap().commit, tries), (Some(bench.head()), 2));
    let catalog = bench.catalog.borrow().clone().unwrap();
    assert_eq!(catalog.customers.len(), 2);
    assert_eq!(file_at_head(bench.dir.path(), "commerce.yaml"), renamed("Ours"));
}

#[tokio::test]
async fn another_manifest_of_the_same_file_is_no_conflict() {
    let bench = Bench::quickstart().await;
    let added = |name: &str| format!("{}---\n{}", QUICKSTART[3].1, customer(name, "Theirs"));
    let (published, tries) = bench
        .publish_while(rename("Ours"), move |dir, tried| {
            if tried == 0 {
                push(dir, &[("commerce.yaml", &added("theirs"))]);
            }
        })
        .await;
    assert_eq!((published.unwrap().commit, tries), (Some(bench.head()), 2));
    let expected = format!("{}---\n{}", renamed("Ours"), customer("theirs", "Theirs"));
    assert_eq!(file_at_head(bench.dir.path(), "commerce.yaml"), expected);
}

#[tokio::test]
async fn the_same_manifest_changed_by_another_is_a_conflict() {
    let bench = Bench::quickstart().await;
    let (published, tries) = bench
        .publish_while(rename("Ours"), |dir, tried| {
            if tried == 0 {
                push(dir, &[("commerce.yaml", &renamed("Theirs"))]);
            }
        })
        .await;
    let error = published.unwrap_err();
    assert!(matches!(&error, PublicationError::Conflict(path) if path == "commerce.yaml"), "{error}");
    assert_eq!(tries, 2);
    assert_eq!(file_at_head(bench.dir.path(), "commerce.yaml"), renamed("Theirs"));
}

#[tokio::test]
async fn a_branch_that_never_stands_still_is_given_up_on() {
    let bench = Bench::quickstart().await;
    let (published, tries) = bench
        .publish_while(rename("Ours"), |dir, tried| {
            push(dir, &[("theirs.yaml", &customer("theirs", &format!("Theirs {tried}")))]);
        })
        .await;
    let error = published.unwrap_err();
    assert!(matches!(error, PublicationError::Push(PushError::Moved { .. })), "{error}");
    assert_eq!(tries, 5);
}

#[tokio::test]
async fn a_base_that_is_demanded_is_where_the_branch_must_stand() {
    let bench = Bench::quickstart().await;
    let first = bench.head();
    let based = |to: &str, base: &str| ChangeRequest { if_base: Some(base.to_owned()), ..rename(to) };
    let (published, tries) = bench
        .publish_while(based("Ours", &first), |dir, _| {
            push(dir, &[("theirs.yaml", &customer("theirs", "Theirs"))]);
        })
        .await;
    let error = published.unwrap_err();
    let (second, said) = (bench.head(), error.to_string());
    assert_eq!(said, format!("branch `main` stands at {second} and not at {first}"));
    assert_eq!(tries, 1);
    for wanted in [&first, "0123456789", &second[..6]] {
        let error = bench.publish(based("Ours", wanted)).await.unwrap_err();
        assert!(matches!(error, PublicationError::OtherBase { .. }), "{error}");
    }
    let view = bench.publish(based("Ours", &second[..10].to_uppercase())).await.unwrap();
    assert_eq!((view.base, view.commit), (second, Some(bench.head())));
}

#[tokio::test]
async fn a_branch_for_a_pull_request_leaves_the_watched_one_alone() {
    let bench = Bench::quickstart().await;
    let before = bench.head();
    let apart = |to: &str| ChangeRequest { branch: Some("topic/ours".to_owned()), ..rename(to) };
    let view = bench.publish(apart("Ours")).await.unwrap();
    let topic = || remote(bench.dir.path()).refname_to_id("refs/heads/topic/ours").unwrap().to_string();
    assert_eq!((view.branch.as_str(), view.commit), ("topic/ours", Some(topic())));
    assert_eq!((bench.head(), bench.source.view().accepted.unwrap().commit), (before.clone(), before));
    let pushed = topic();
    let error = bench.publish(apart("Other")).await.unwrap_err();
    assert!(matches!(&error, PublicationError::BranchExists(name) if name == "topic/ours"), "{error}");
    assert_eq!(topic(), pushed);
    // The mirror is left with nothing of it.
    let mirror = Repository::open_bare(bench.dir.path().join("mirror")).unwrap();
    assert_eq!(mirror.references_glob("refs/denv/push/*").unwrap().count(), 0);
}

#[tokio::test]
async fn what_is_not_allowed_is_not_pushed() {
    let bench = Bench::quickstart().await;
    let before = bench.head();
    let author = Author { name: "Ada".to_owned(), email: "ada@example.com".to_owned() };
    let permission: Permission = Box::new(|_, _, _| Err("not yours".to_owned()));
    let error = bench.source.publish(rename("Ours"), author, permission).await.unwrap().unwrap_err();
    assert!(matches!(&error, PublicationError::Denied(why) if why == "not yours"), "{error}");
    let dry = bench.publish(ChangeRequest { dry_run: true, ..rename("Ours") }).await.unwrap();
    assert_eq!((dry.commit, dry.diff.changes.len(), bench.head()), (None, 1, before));
}

#[tokio::test]
async fn where_signatures_are_demanded_the_control_plane_signs() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), &[1, 7]);
    commit(dir.path(), &QUICKSTART, "begin", None);
    sign_head(dir.path(), 1);
    let allowed = dir.path().join("allowed");
    let bench = Bench::start_with(dir, |config| config.allowed_signers = Some(allowed.clone())).await;
    let first = bench.look().await.accepted.unwrap().commit;
    let error = bench.publish(rename("Ours")).await.unwrap_err();
    assert!(matches!(error, PublicationError::Unsigned), "{error}");
    assert_eq!(bench.head(), first);
    bench.publish(ChangeRequest { dry_run: true, ..rename("Ours") }).await.unwrap();
    let Bench { dir, source, .. } = bench;
    drop(source);

    let path = dir.path().join("signing-key");
    key(7).write_openssh_file(&path, ssh_key::LineEnding::LF).unwrap();
    let bench = Bench::start_with(dir, |config| {
        config.allowed_signers = Some(allowed);
        config.signing_key = Some(path.clone());
    })
    .await;
    bench.look().await;
    let view = bench.publish(rename("Ours")).await.unwrap();
    let seen = bench.source.view();
    assert_eq!((seen.state, seen.problem, seen.refused), (SourceState::Ready, None, None));
    assert_eq!(Some(seen.accepted.unwrap().commit), view.commit);

    std::fs::write(&path, "no key").unwrap();
    let error = bench.publish(rename("Other")).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot read the signing key `"), "{error}");
}

#[tokio::test]
async fn a_source_with_a_worktree_says_that_it_must_be_bare() {
    let bench = Bench::quickstart().await;
    let before = bench.head();
    remote(bench.dir.path()).config().unwrap().set_bool("core.bare", false).unwrap();
    let dot_git = bench.dir.path().join("moved");
    std::fs::rename(bench.dir.path().join("remote"), &dot_git).unwrap();
    std::fs::create_dir(bench.dir.path().join("remote")).unwrap();
    std::fs::rename(&dot_git, bench.dir.path().join("remote/.git")).unwrap();
    let error = bench.publish(rename("Ours")).await.unwrap_err();
    assert!(matches!(error, PublicationError::Push(PushError::NotBare { .. })), "{error}");
    assert!(error.to_string().contains("must be a bare repository, as `git clone --bare`"), "{error}");
    let remote = Repository::open(bench.dir.path().join("remote")).unwrap();
    assert_eq!(remote.refname_to_id("refs/heads/main").unwrap().to_string(), before);
}

#[tokio::test]
async fn of_two_that_publish_at_once_neither_undoes_the_other() {
    let first = Bench::quickstart().await;
    let url = first.dir.path().join("remote").display().to_string();
    let second = Bench::start_with(tempfile::tempdir().unwrap(), |config| config.url = url).await;
    second.look().await;
    let publish = async |bench: &Bench, who: &str| {
        let mut published = Vec::new();
        for number in 0..12 {
            let name = format!("{who}-{number}");
            let manifests = [(format!("{name}.yaml"), customer(&name, "C"))].into();
            match bench.publish(ChangeRequest { manifests, ..ChangeRequest::default() }).await {
                Ok(view) => published.extend(view.commit),
                // The other was faster each time.
                Err(PublicationError::Push(PushError::Moved { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
        published
    };
    let (mut published, theirs) = tokio::join!(publish(&first, "one"), publish(&second, "two"));
    published.extend(theirs);
    let remote = remote(first.dir.path());
    let mut walk = remote.revwalk().unwrap();
    walk.push_ref("refs/heads/main").unwrap();
    let history: Vec<_> = walk.map(|oid| oid.unwrap().to_string()).collect();
    assert_eq!(history.len(), published.len() + 1);
    assert!(published.iter().all(|commit| history.contains(commit)), "{published:?} in {history:?}");
}

#[tokio::test]
async fn a_lock_that_nobody_lets_go_of_is_named() {
    let bench = Bench::quickstart().await;
    let lock = bench.dir.path().join("remote/refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let said = crate::chain(&bench.publish(rename("Ours")).await.unwrap_err());
    assert!(said.starts_with("cannot push to branch `main` of `") && said.contains("main.lock"), "{said}");
    std::fs::remove_file(&lock).unwrap();
    bench.publish(rename("Ours")).await.unwrap();
}
