//! The gateway's side of its stream with the control plane: configuration and units in, reports and usage out.
//!
//! It owns when something is said. It refuses to serve: what it receives it hands down, and without a control
//! plane everything below goes on by what was received last.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use denv_link::dial::{self, DialError};
use denv_link::enrolment::GRPC;
use denv_link::rpc::control_plane_client::ControlPlaneClient;
use denv_link::{Credentials, Identity, MAX_MESSAGE_BYTES};
use denv_schema::UnitId;
use denv_schema::measures::{GatewayMeasures, MEASURE_INTERVAL, UnitMeasures};
use denv_schema::wire::{GatewayHello, GatewayInstruction, GatewayMessage, REPORT_INTERVAL};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::last_known::LastKnown;
use crate::meter::{MAX_BATCH, Reader};
use crate::proxy::Proxy;

/// Where the control plane is, and what is said to it.
pub(crate) struct ControlPlane {
    pub(crate) server: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) credentials: watch::Receiver<Arc<Credentials>>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) known: LastKnown,
    /// When the process began to count.
    pub(crate) begun: Timestamp,
}

#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("this gateway's certificate cannot be used")]
    Credentials(#[from] denv_link::credentials::CredentialsError),
    #[error("the control plane refused or ended the stream")]
    Stream(#[from] tonic::Status),
    #[error("the control plane closed the stream")]
    Closed,
}

/// Changes that come together are reported together.
const REPORT_GAP: Duration = Duration::from_millis(50);
/// Records are sent after a while, so that there are some to a batch.
const USAGE_GAP: Duration = Duration::from_millis(100);
/// How many records may be under way without an answer.
const USAGE_WINDOW: u64 = 4000;
/// Records that were not taken in this time are sent again.
const USAGE_PATIENCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl ControlPlane {
    /// Keeps a stream open, for ever.
    pub(crate) async fn attend(mut self) {
        let mut failures = 0;
        loop {
            let mut heard = false;
            if let Err(error) = self.session(&mut heard).await {
                if heard {
                    failures = 0;
                }
                let error = &error as &dyn Error;
                tracing::warn!(error, server = %self.server, "no control plane; serving by what is known");
            }
            tokio::time::sleep(pause(failures)).await;
            failures += 1;
        }
    }

    async fn session(&mut self, heard: &mut bool) -> Result<(), SessionError> {
        let credentials = self.credentials.borrow().clone();
        let identity = Identity::control_plane(&credentials.identity()?.tenant);
        let config = Arc::new(credentials.client_config(&[GRPC])?);
        let channel = dial::channel(&self.server, &identity, config).await?;
        let mut client = ControlPlaneClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let (outbox, messages) = mpsc::channel(8);
        let hello = GatewayHello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock: Timestamp::now(),
            report: self.proxy.report(),
        };
        outbox.try_send(GatewayMessage::Hello(hello)).expect("a new channel has room");
        let inbox = client.attach_gateway(ReceiverStream::new(messages)).await?.into_inner();
        tracing::info!(server = %self.server, "attached to the control plane");
        self.converse(outbox, inbox, heard).await
    }

    async fn converse(
        &mut self,
        outbox: mpsc::Sender<GatewayMessage>,
        mut inbox: Streaming<GatewayInstruction>,
        heard: &mut bool,
    ) -> Result<(), SessionError> {
        let proxy = self.proxy.clone();
        let mut reported = Instant::now();
        let mut report_at = reported + REPORT_INTERVAL;
        let mut usage = UsageStream::new(&proxy);
        let mut measures = MeasureStream::default();
        loop {
            tokio::select! {
                instruction = inbox.message() => {
                    let instruction = instruction?.ok_or(SessionError::Closed)?;
                    *heard = true;
                    match instruction {
                        GatewayInstruction::UsageTaken { ledger, next } => {
                            proxy.meter.taken(&ledger, next);
                            usage.taken();
                        }
                        news => {
                            self.take(news).await;
                            report_at = Instant::now();
                        }
                    }
                }
                () = proxy.units.changed() => report_at = report_at.min(reported + REPORT_GAP),
                () = tokio::time::sleep_until(report_at) => {
                    // A full outbox means that the other side does not read: the next report says it all anyway.
                    let _ = outbox.try_send(GatewayMessage::Report(proxy.report()));
                    reported = Instant::now();
                    report_at = reported + REPORT_INTERVAL;
                }
                () = tokio::time::sleep_until(measures.at) => {
                    if let Some(measured) = measures.next(self.begun, &proxy)
                        && outbox.try_send(GatewayMessage::Measured(measured)).is_err()
                    {
                        // Counters only grow: the next time says it all.
                        measures.said.clear();
                    }
                }
                () = proxy.meter.recorded() => usage.soon(),
                () = tokio::time::sleep_until(usage.at) => usage.send(&proxy, &outbox).await,
            }
        }
    }

    /// Applies first and keeps second: serving does not wait for the disk.
    async fn take(&mut self, instruction: GatewayInstruction) {
        match instruction {
            GatewayInstruction::Config(config) => {
                self.proxy.admission.apply(&config);
                self.known.config = Some(config);
            }
            GatewayInstruction::Units(units) => {
                self.proxy.units.set_routes(&units);
                if self.known.units == units {
                    return;
                }
                self.known.units = units;
            }
            GatewayInstruction::UsageTaken { .. } => return,
        }
        let (known, dir) = (self.known.clone(), self.state_dir.clone());
        let saved = tokio::task::spawn_blocking(move || known.save(&dir)).await;
        if let Ok(Err(error)) = saved {
            let error = &error as &dyn Error;
            tracing::error!(error, "a restart without the control plane would serve by older knowledge");
        }
    }
}

/// Says what units did, now and then, of those that did something since it was last said.
struct MeasureStream {
    at: Instant,
    said: BTreeMap<UnitId, UnitMeasures>,
}

impl Default for MeasureStream {
    fn default() -> Self {
        MeasureStream { at: Instant::now(), said: BTreeMap::new() }
    }
}

impl MeasureStream {
    fn next(&mut self, begun: Timestamp, proxy: &Proxy) -> Option<GatewayMeasures> {
        self.at = Instant::now() + MEASURE_INTERVAL;
        let now: BTreeMap<UnitId, UnitMeasures> = proxy.units.measures().collect();
        let moved = |(id, measures): &(&UnitId, &UnitMeasures)| self.said.get(*id) != Some(*measures);
        let units: BTreeMap<_, _> =
            now.iter().filter(moved).map(|(id, measures)| (id.clone(), measures.clone())).collect();
        self.said = now;
        (!units.is_empty()).then_some(GatewayMeasures { begun, units })
    }
}

/// Sends the ledger's records in order, with a bounded number unanswered.
struct UsageStream {
    /// None only while it reads.
    reader: Option<Reader>,
    at: Instant,
    /// When the control plane last took something, or had nothing to take.
    taken_at: Instant,
}

impl UsageStream {
    fn new(proxy: &Proxy) -> Self {
        let now = Instant::now();
        UsageStream { reader: Some(proxy.meter.reader()), at: now, taken_at: now }
    }

    fn soon(&mut self) {
        self.at = self.at.min(Instant::now() + USAGE_GAP);
    }

    fn taken(&mut self) {
        // There may be room in the window again.
        (self.taken_at, self.at) = (Instant::now(), Instant::now());
    }

    async fn send(&mut self, proxy: &Proxy, outbox: &mpsc::Sender<GatewayMessage>) {
        self.at = Instant::now() + USAGE_PATIENCE;
        let mut reader = self.reader.take().unwrap_or_else(|| proxy.meter.reader());
        let unanswered = reader.next().saturating_sub(reader.acknowledged());
        if unanswered == 0 {
            self.taken_at = Instant::now();
        } else if self.taken_at.elapsed() >= USAGE_PATIENCE {
            tracing::warn!(unanswered, "usage records were not taken; sending them again");
            self.taken_at = Instant::now();
            reader = proxy.meter.reader();
        }
        let Ok(permit) = outbox.try_reserve() else {
            self.reader = Some(reader);
            return self.soon();
        };
        if unanswered >= USAGE_WINDOW {
            self.reader = Some(reader);
            return;
        }
        // It reads files, though small parts of them.
        let read = tokio::task::spawn_blocking(move || {
            let batch = reader.read();
            (reader, batch)
        });
        let Ok((reader, batch)) = read.await else { return };
        self.reader = Some(reader);
        match batch {
            Ok(Some(batch)) => {
                if batch.records.len() == MAX_BATCH {
                    // There is likely more.
                    self.at = Instant::now();
                }
                permit.send(GatewayMessage::Usage(batch));
            }
            Ok(None) => {}
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::error!(error, "usage is kept here and not sent");
            }
        }
    }
}

/// Longer with each failure, and of random length, so that gateways do not come back all at once.
fn pause(failures: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(failures)).min(LONGEST_PAUSE);
    let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    FIRST_PAUSE + (longest - FIRST_PAUSE).mul_f64(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_their_bounds() {
        for failures in [0, 1, 5, 40, u32::MAX] {
            let pause = pause(failures);
            assert!((FIRST_PAUSE..=LONGEST_PAUSE).contains(&pause), "{failures}: {pause:?}");
        }
    }
}
