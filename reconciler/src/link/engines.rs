use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use denv_schema::Name;
use denv_schema::wire::{TestId, TestRequest, TestResult};
use tokio::sync::{mpsc, oneshot};

/// Asks engines through the hosts that run them, on the streams that hosts have open now. Nothing is kept: what is asked
/// on a stream that ends is not answered.
#[derive(Default)]
pub struct Engines(Mutex<BTreeMap<Name, mpsc::Sender<Asked>>>);

/// A test on its way to a host.
pub(super) struct Asked {
    request: TestRequest,
    answer: oneshot::Sender<TestResult>,
}

/// Why nothing was answered. It says nothing of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Unasked {
    #[error("host `{0}` is not connected")]
    NotConnected(Name),
    #[error("the stream of host `{0}` ended before it answered")]
    Ended(Name),
    #[error("host `{0}` did not answer in time")]
    TimedOut(Name),
}

impl Engines {
    /// Has a host ask one of its engines. `patience` is for the host, beyond what the engine may take.
    pub async fn ask(
        &self,
        host: &Name,
        request: TestRequest,
        patience: Duration,
    ) -> Result<TestResult, Unasked> {
        let stream = self.lock().get(host).cloned();
        let stream = stream.ok_or_else(|| Unasked::NotConnected(host.clone()))?;
        let (answer, answered) = oneshot::channel();
        let asked = async {
            stream.send(Asked { request, answer }).await.map_err(|_| Unasked::NotConnected(host.clone()))?;
            answered.await.map_err(|_| Unasked::Ended(host.clone()))
        };
        match tokio::time::timeout(patience, asked).await {
            Ok(result) => result,
            Err(_) => Err(Unasked::TimedOut(host.clone())),
        }
    }

    /// A host's new stream.
    pub(super) fn attach(&self, host: &Name) -> Stream {
        let (sender, asked) = mpsc::channel(16);
        self.lock().insert(host.clone(), sender);
        Stream { asked, open: BTreeMap::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, mpsc::Sender<Asked>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is asked on one stream. When it is dropped, all who wait for an answer learn that there will be none.
pub(super) struct Stream {
    asked: mpsc::Receiver<Asked>,
    open: BTreeMap<TestId, oneshot::Sender<TestResult>>,
}

impl Stream {
    /// The next that the host is to be asked; never, once a newer stream is there.
    pub(super) async fn next(&mut self) -> TestRequest {
        let Some(Asked { request, answer }) = self.asked.recv().await else {
            return std::future::pending().await;
        };
        self.open.insert(request.id.clone(), answer);
        request
    }

    pub(super) fn answered(&mut self, result: TestResult) {
        if let Some(answer) = self.open.remove(&result.id) {
            // The asker may have lost its patience.
            let _ = answer.send(result);
        }
        self.open.retain(|_, answer| !answer.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use denv_schema::quantity::Period;

    use super::*;

    fn request() -> TestRequest {
        TestRequest {
            id: TestId("t".to_owned()),
            member: "chat.prod.1.0".into(),
            generation: 1,
            model: "tiny".to_owned(),
            timeout: Period::from_secs(1),
            prompts: Vec::new(),
        }
    }

    #[tokio::test]
    async fn who_asks_learns_what_became_of_it() {
        let (engines, host): (_, Name) = (Engines::default(), "h1".parse().unwrap());
        let ask = || engines.ask(&host, request(), Duration::from_millis(200));
        assert!(matches!(ask().await, Err(Unasked::NotConnected(_))));

        let mut stream = engines.attach(&host);
        let (answers, ()) = tokio::join!(ask(), async {
            let id = stream.next().await.id;
            stream.answered(TestResult { id, answers: BTreeMap::new(), bodies: BTreeMap::new() });
        });
        assert_eq!(answers.unwrap().answers, BTreeMap::new());

        let (answers, _) = tokio::join!(ask(), stream.next());
        assert!(matches!(answers, Err(Unasked::TimedOut(_))));
        let (answers, ()) = tokio::join!(ask(), async move {
            stream.next().await;
            drop(stream);
        });
        assert!(matches!(answers, Err(Unasked::Ended(_))));
        assert!(matches!(ask().await, Err(Unasked::NotConnected(_))));
    }
}
