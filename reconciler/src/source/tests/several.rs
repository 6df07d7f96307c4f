//! Several sources of one tenant make one catalog, and are judged together.

use super::*;

struct Two {
    dir: tempfile::TempDir,
    capacity: SourceHandle,
    service: SourceHandle,
    catalog: watch::Receiver<Option<Arc<Catalog>>>,
}

/// Which of the quickstart's files each of the two has.
const CAPACITY: [usize; 2] = [0, 1];
const SERVICE: [usize; 2] = [2, 3];

fn push(dir: &Path, which: &str, files: &[usize], extra: &[(&str, &str)]) -> String {
    let files = files.iter().map(|number| QUICKSTART[*number]).chain(extra.iter().copied());
    let files: Vec<_> = files.collect();
    let dir = dir.join(which);
    std::fs::create_dir_all(&dir).unwrap();
    commit(&dir, &files, "change", None).to_string()
}

impl Two {
    async fn start(dir: tempfile::TempDir) -> Self {
        let store = Store::open(&dir.path().join("denv.db"), &"default".parse().unwrap()).await.unwrap();
        let (shelf, catalog) = Shelf::new();
        let mut started = Vec::new();
        for name in ["capacity", "service"] {
            let config = SourceConfig {
                name: name.to_owned(),
                url: dir.path().join(name).join("remote").display().to_string(),
                branch: "main".to_owned(),
                folder: String::new(),
                mirror: dir.path().join("mirrors").join(name),
                poll: Duration::from_secs(3600),
                remote: Arc::default(),
                allowed_signers: None,
                signing_key: None,
                webhook_secret: None,
                forge: None,
                deletion_share: DeletionShare::DEFAULT,
            };
            started.push(Source::new(config, store.clone(), &shelf).await.unwrap());
        }
        let handle = |at: usize, started: &[(Source, SourceHandle)]| started[at].1.clone();
        let (capacity, service) = (handle(0, &started), handle(1, &started));
        for (running, _) in started {
            tokio::spawn(running.run());
        }
        Two { dir, capacity, service, catalog }
    }

    async fn look(&self, source: &SourceHandle) -> SourceView {
        source.look().await.unwrap();
        source.view()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

#[tokio::test]
async fn what_one_refers_to_may_stand_in_the_other_and_may_not_be_taken_away_there() {
    let dir = tempfile::tempdir().unwrap();
    push(dir.path(), "service", &SERVICE, &[]);
    push(dir.path(), "capacity", &CAPACITY, &[]);
    let two = Two::start(dir).await;
    assert_eq!(two.look(&two.capacity).await.state, SourceState::Ready);
    // Whether or not it was looked at before the other.
    assert_eq!(two.look(&two.service).await.state, SourceState::Ready);
    let catalog = two.catalog.borrow().clone().unwrap();
    assert_eq!((catalog.stages.len(), catalog.fleets.len()), (1, 1));

    // The other's file is where this revision does harm.
    push(two.path(), "capacity", &CAPACITY[..1], &[]);
    let refused = two.look(&two.capacity).await.refused.unwrap();
    assert!(refused.reason.contains("service/service.yaml:13:12: there is no Release"), "{}", refused.reason);
    assert_eq!(two.look(&two.service).await.state, SourceState::Ready);
    assert!(Arc::ptr_eq(&catalog, two.catalog.borrow().as_ref().unwrap()));

    // The same name in both is a fault.
    push(two.path(), "service", &SERVICE, &[("twice.yaml", QUICKSTART[1].1)]);
    assert_eq!(two.look(&two.service).await.state, SourceState::Refused);
}

#[tokio::test]
async fn what_lacked_the_other_is_judged_again_when_the_other_is_there() {
    let dir = tempfile::tempdir().unwrap();
    push(dir.path(), "service", &SERVICE, &[]);
    push(dir.path(), "capacity", &[0], &[]);
    let two = Two::start(dir).await;
    two.look(&two.capacity).await;
    assert_eq!(two.look(&two.service).await.state, SourceState::Refused);
    push(two.path(), "capacity", &CAPACITY, &[]);
    assert_eq!(two.look(&two.capacity).await.state, SourceState::Ready);
    let until = Instant::now() + Duration::from_secs(10);
    while two.service.view().state != SourceState::Ready {
        assert!(Instant::now() < until, "{:?}", two.service.view());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn after_a_restart_neither_is_judged_without_what_the_other_has_in_force() {
    let dir = tempfile::tempdir().unwrap();
    push(dir.path(), "capacity", &CAPACITY, &[]);
    push(dir.path(), "service", &SERVICE, &[]);
    let two = Two::start(dir).await;
    two.look(&two.capacity).await;
    assert_eq!(two.look(&two.service).await.state, SourceState::Ready);
    let Two { dir, capacity, service, .. } = two;
    drop((capacity, service));

    // Both are away, and both are in force.
    for name in ["capacity", "service"] {
        std::fs::rename(dir.path().join(name), dir.path().join(format!("{name}-away"))).unwrap();
    }
    let again = Two::start(dir).await;
    again.look(&again.capacity).await;
    assert_eq!(again.look(&again.service).await.state, SourceState::Unreachable);
    assert_eq!(again.catalog.borrow().as_ref().unwrap().stages.len(), 1);
    let Two { dir, capacity, service, .. } = again;
    drop((capacity, service));

    // The mirror of one is lost, and its remote away: a new revision of the other must not drop what it had.
    std::fs::remove_dir_all(dir.path().join("mirrors/service")).unwrap();
    std::fs::rename(dir.path().join("capacity-away"), dir.path().join("capacity")).unwrap();
    let pushed = push(dir.path(), "capacity", &CAPACITY, &[("README.yaml", "")]);
    let again = Two::start(dir).await;
    let view = again.look(&again.capacity).await;
    assert!(view.problem.unwrap().contains("source `service` could not be read since the start"));
    assert_ne!(view.accepted.unwrap().commit, pushed);
    assert!(again.catalog.borrow().is_none());
    std::fs::rename(again.path().join("service-away"), again.path().join("service")).unwrap();
    assert_eq!(again.look(&again.service).await.state, SourceState::Ready);
    assert_eq!(again.look(&again.capacity).await.accepted.unwrap().commit, pushed);
}
