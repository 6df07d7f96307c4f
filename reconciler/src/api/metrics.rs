//! Counts for Prometheus, taken from the state when asked.

use std::sync::Arc;

use axum::extract::State as Extracted;
use axum::http::header;
use axum::response::IntoResponse;
use denv_gates::Outcome;
use denv_schema::api::SourceState;
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Api, views};
use crate::source::SourceHandle;

type Labels = Vec<(&'static str, String)>;

pub(super) async fn metrics(Extracted(api): Extracted<Arc<Api>>) -> impl IntoResponse {
    let state = Arc::clone(&api.state.borrow());
    let mut registry = Registry::with_prefix("denv");
    let gauge = |registry: &mut Registry, name: &str, help: &str| {
        let family: Family<Labels, Gauge> = Family::default();
        registry.register(name, help, family.clone());
        family
    };
    let units = gauge(&mut registry, "units", "Units by stage, release and status");
    for unit in views::units(&state, None) {
        let labels = vec![
            ("stage", unit.stage.to_string()),
            ("release", unit.release.to_string()),
            ("status", unit.status),
        ];
        units.get_or_create(&labels).inc();
    }
    let hosts = gauge(&mut registry, "hosts", "Hosts by fleet and state");
    for host in views::hosts(&state, Timestamp::now()) {
        hosts.get_or_create(&vec![("fleet", host.fleet.to_string()), ("state", host.state)]).inc();
    }
    let gateways = gauge(&mut registry, "gateways", "Gateways by state");
    for gateway in views::gateways(&state) {
        gateways.get_or_create(&vec![("state", gateway.state)]).inc();
    }
    let held = gauge(&mut registry, "stage_held", "1 for a stage that is held at its good release");
    for (stage, record) in &state.records.stages {
        held.get_or_create(&vec![("stage", stage.to_string())]).set(i64::from(record.hold.is_some()));
    }
    let alarm = gauge(&mut registry, "alarm_firing", "1 for a stage's alarm that fires now");
    for stage in state.catalog.iter().flat_map(|catalog| catalog.stages.keys()) {
        for (name, seen) in api.observation.alarms(stage) {
            let labels = vec![("stage", stage.to_string()), ("alarm", name.to_string())];
            alarm.get_or_create(&labels).set(i64::from(seen.reading.outcome == Outcome::Fail));
        }
    }
    let source =
        gauge(&mut registry, "source_ready", "1 while the newest revision of the source is in force");
    for view in api.sources.iter().map(SourceHandle::view) {
        source.get_or_create(&vec![("source", view.name)]).set(i64::from(view.state == SourceState::Ready));
    }
    let waiting = gauge(&mut registry, "waiting", "Stages and units that wait on something");
    waiting.get_or_create(&Vec::new()).set(i64::try_from(state.plan.waiting.len()).unwrap_or(i64::MAX));
    let mut text = String::new();
    let encoded = encode(&mut text, &registry);
    debug_assert!(encoded.is_ok(), "writing to a String cannot fail");
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
