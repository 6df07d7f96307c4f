//! What the control plane wants this host to have ready before an engine is started from it: one thing at a time, so that
//! those that serve are disturbed little. It changes nothing that runs, and forgets with its process what it was asked:
//! whoever wants it asks on every stream.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::wire::{Artifact, ArtifactReport, ArtifactState, FetchedBytes};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::runtimes::{ImageError, Images};
use crate::weights::WeightStore;

/// Asks for artifacts, and shows how far they are.
#[derive(Clone)]
pub struct Prefetch {
    wanted: Arc<watch::Sender<Vec<Artifact>>>,
    reports: watch::Receiver<Vec<ArtifactReport>>,
}

/// Between tries of what failed: somebody may be mending it.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is looked how far a fetch is, and in how many steps that is shown.
const SHOW_EVERY: Duration = Duration::from_secs(5);
const STEPS: u64 = 20;

impl Prefetch {
    /// Nothing is wanted yet.
    pub fn start(weights: Arc<WeightStore>, images: Option<Arc<Images>>) -> Self {
        let (wanted, asked) = watch::channel(Vec::new());
        let (shown, reports) = watch::channel(Vec::new());
        tokio::spawn(run(Host { weights, images }, asked, shown));
        Prefetch { wanted: Arc::new(wanted), reports }
    }

    /// All that is wanted from now on.
    pub fn want(&self, artifacts: Vec<Artifact>) {
        self.wanted.send_if_modified(|wanted| {
            let is_news = *wanted != artifacts;
            *wanted = artifacts;
            is_news
        });
    }

    /// What was wanted last, in that order, and how far it is.
    pub fn reports(&self) -> watch::Receiver<Vec<ArtifactReport>> {
        self.reports.clone()
    }
}

/// What artifacts are prepared by.
#[derive(Clone)]
struct Host {
    weights: Arc<WeightStore>,
    images: Option<Arc<Images>>,
}

/// Something being prepared.
type UnderWay = (Artifact, Pin<Box<dyn Future<Output = ArtifactState> + Send>>);

/// Until nobody can want anything any more.
async fn run(
    host: Host,
    mut asked: watch::Receiver<Vec<Artifact>>,
    shown: watch::Sender<Vec<ArtifactReport>>,
) {
    let mut states: BTreeMap<Artifact, ArtifactState> = BTreeMap::new();
    let mut tried: BTreeMap<Artifact, Instant> = BTreeMap::new();
    let mut under_way: Option<UnderWay> = None;
    loop {
        let wanted = asked.borrow_and_update().clone();
        states.retain(|artifact, _| wanted.contains(artifact));
        tried.retain(|artifact, _| wanted.contains(artifact));
        under_way = under_way.filter(|(artifact, _)| wanted.contains(artifact));
        show(&shown, &wanted, &mut states, &host.weights);
        let due = |artifact: &Artifact| match states.get(artifact) {
            Some(ArtifactState::Ready) => None,
            _ => Some(tried.get(artifact).map_or_else(Instant::now, |at| *at + RETRY)),
        };
        let next = wanted.iter().filter_map(|artifact| Some((due(artifact)?, artifact))).min();
        let again = next.map(|(at, _)| at);
        if under_way.is_none()
            && let Some((_, artifact)) = next.filter(|(at, _)| *at <= Instant::now())
        {
            under_way = Some((artifact.clone(), Box::pin(prepare(host.clone(), artifact.clone()))));
        }
        let again = again.filter(|_| under_way.is_none());
        tokio::select! {
            changed = asked.changed() => if changed.is_err() { return },
            (artifact, done) = finished(&mut under_way) => {
                match &done {
                    ArtifactState::Failed { reason, .. } => tracing::warn!(%artifact, "not prepared ahead: {reason}"),
                    _ => tracing::info!(%artifact, "prepared ahead"),
                }
                tried.insert(artifact.clone(), Instant::now());
                states.insert(artifact, done);
            }
            () = until(again) => {}
            // How far it is.
            () = tokio::time::sleep(SHOW_EVERY), if under_way.is_some() => {}
        }
    }
}

/// What failed is shown as failed while it is tried again.
fn show(
    shown: &watch::Sender<Vec<ArtifactReport>>,
    wanted: &[Artifact],
    states: &mut BTreeMap<Artifact, ArtifactState>,
    weights: &WeightStore,
) {
    let reports = wanted.iter().map(|artifact| {
        let state = states.entry(artifact.clone()).or_insert(ArtifactState::Preparing).clone();
        let fetched = match (artifact, &state) {
            (Artifact::Weights(wanted), ArtifactState::Preparing) => weights.fetched(wanted.digest),
            _ => None,
        };
        ArtifactReport { artifact: artifact.clone(), state, fetched: fetched.map(in_steps) }
    });
    let reports: Vec<ArtifactReport> = reports.collect();
    shown.send_if_modified(|shown| {
        let is_news = *shown != reports;
        *shown = reports;
        is_news
    });
}

/// Each step is a report, so there are few.
fn in_steps(fetched: FetchedBytes) -> FetchedBytes {
    let step = (fetched.of / STEPS).max(1);
    FetchedBytes { bytes: fetched.bytes / step * step, ..fetched }
}

async fn prepare(host: Host, artifact: Artifact) -> ArtifactState {
    match artifact {
        Artifact::Weights(wanted) => match host.weights.prepare(wanted).await {
            Ok(_) => ArtifactState::Ready,
            Err(error) => ArtifactState::Failed { reason: error.to_string(), passing: error.may_pass() },
        },
        Artifact::Image(image) => {
            let prepared = match host.images {
                Some(images) => images.prepare(image).await,
                None => Err(ImageError::NoPodman),
            };
            match prepared {
                Ok(()) => ArtifactState::Ready,
                Err(error) => ArtifactState::Failed { reason: error.to_string(), passing: error.may_pass() },
            }
        }
    }
}

async fn finished(under_way: &mut Option<UnderWay>) -> (Artifact, ArtifactState) {
    let Some((artifact, preparing)) = under_way else { return std::future::pending().await };
    let done = preparing.await;
    let artifact = artifact.clone();
    *under_way = None;
    (artifact, done)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use denv_schema::Digest;
    use denv_schema::manifest::Weights;

    use super::*;
    use crate::weights::Access;

    fn weights(source: &str) -> Artifact {
        Artifact::Weights(Weights { source: format!("file:{source}"), digest: Digest::of_bytes(b"good") })
    }

    async fn shows(prefetch: &Prefetch, wanted: impl Fn(&[ArtifactReport]) -> bool) -> Vec<ArtifactReport> {
        let mut reports = prefetch.reports();
        let found =
            tokio::time::timeout(Duration::from_secs(60), reports.wait_for(|reports| wanted(reports)));
        found.await.expect("in time").unwrap().clone()
    }

    #[tokio::test]
    async fn what_is_wanted_is_verified_and_what_fails_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("here"), b"good").unwrap();
        let prefetch =
            Prefetch::start(Arc::new(WeightStore::new(dir.path().to_owned(), Access::default())), None);
        let (here, gone) = (weights("here"), weights("gone"));
        prefetch.want(vec![gone.clone(), here.clone(), Artifact::Image("i".to_owned())]);
        let failed = |report: &ArtifactReport| matches!(report.state, ArtifactState::Failed { .. });
        let ended = |reports: &[ArtifactReport]| {
            reports.len() == 3 && reports.iter().all(|it| it.state != ArtifactState::Preparing)
        };
        let reports = shows(&prefetch, ended).await;
        assert_eq!(reports.iter().map(|it| &it.artifact).take(2).collect::<Vec<_>>(), [&gone, &here]);
        assert_eq!(reports[1].state, ArtifactState::Ready);
        assert!(failed(&reports[0]) && failed(&reports[2]), "{reports:?}");
        let ArtifactState::Failed { reason, passing: false } = &reports[0].state else {
            panic!("{reports:?}")
        };
        assert!(reason.contains("gone` cannot be read"), "{reason}");

        std::fs::write(dir.path().join("gone"), b"good").unwrap();
        let ready =
            |reports: &[ArtifactReport]| reports.len() == 3 && reports[0].state == ArtifactState::Ready;
        shows(&prefetch, ready).await;
    }

    #[tokio::test]
    async fn what_is_wanted_no_more_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let prefetch =
            Prefetch::start(Arc::new(WeightStore::new(dir.path().to_owned(), Access::default())), None);
        prefetch.want(vec![weights("a"), weights("b")]);
        shows(&prefetch, |reports| reports.len() == 2).await;
        prefetch.want(vec![weights("b")]);
        let left = shows(&prefetch, |reports| reports.len() == 1).await;
        assert_eq!(left[0].artifact, weights("b"));
        prefetch.want(Vec::new());
        shows(&prefetch, <[_]>::is_empty).await;
    }
}
