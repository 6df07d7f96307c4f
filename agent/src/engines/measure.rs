use std::collections::BTreeMap;
use std::time::Duration;

use denv_schema::MemberId;
use denv_schema::measures::{EngineMeasures, HostMeasures, MEASURE_INTERVAL};
use denv_schema::wire::MemberState;
use futures::future::join_all;
use tokio::sync::watch;

use super::exchange::ask;
use super::metrics::read;
use crate::runner::{MemberView, View};

/// An engine that takes longer tells nothing this time.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Far above what the engine with the most ranks tells.
const LONGEST_TEXT: usize = 8 << 20;

/// Reads the metrics of all healthy engines now and then, for as long as somebody wants to know them.
pub async fn keep_measured(view: watch::Receiver<View>, measures: watch::Sender<HostMeasures>) {
    let mut turns = tokio::time::interval(MEASURE_INTERVAL);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !measures.is_closed() {
        turns.tick().await;
        let members: Vec<_> = view.borrow().members.iter().map(|(id, it)| (id.clone(), it.clone())).collect();
        let told = join_all(members.into_iter().map(|(id, member)| measure(id, member))).await;
        let told = HostMeasures { members: told.into_iter().flatten().collect::<BTreeMap<_, _>>() };
        measures.send_if_modified(|known| {
            let changed = *known != told;
            *known = told;
            changed
        });
    }
}

async fn measure(id: MemberId, member: MemberView) -> Option<(MemberId, EngineMeasures)> {
    let path = member.spec.as_ref()?.metrics_path.as_ref()?;
    let port = member.port.filter(|_| member.report.state == MemberState::Healthy)?;
    let (status, text) = ask(port, path, None, TIMEOUT, LONGEST_TEXT).await.ok()?;
    let told = (status == 200).then(|| read(&String::from_utf8_lossy(&text), member.report.generation))?;
    Some((id, told))
}
