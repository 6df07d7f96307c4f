//! What a stage's alarms say to a deployment: one that fires stops a start, and turns back what is under way.

use denv_gates::Outcome;
use denv_schema::Name;
use denv_schema::manifest::OnInconclusive;
use jiff::SignedDuration;

use super::Stage;
use crate::pass::Pass;
use crate::records::Deployment;
use crate::trial::AlarmObserved;
use crate::waiting::WaitingOn;
use crate::world::signed;

/// How long a batch waits for a first reading of its release, however short its bake: nobody has looked yet, which is not
/// the same as having seen too little.
const FIRST_READING: SignedDuration = SignedDuration::from_secs(20);

impl Stage<'_> {
    fn readings<'p>(&self, pass: &Pass<'p>) -> impl Iterator<Item = (&Name, Option<&'p AlarmObserved>)> {
        let observed = pass.world.observed.alarms.get(self.id);
        self.spec.alarms.iter().map(move |name| (name, observed.and_then(|readings| readings.get(name))))
    }

    /// The alarm that fires while nothing new has begun, which is no time to begin.
    pub(super) fn fires_already(&self, pass: &Pass<'_>) -> Option<WaitingOn> {
        let good = self.record.good.as_ref()?;
        self.readings(pass).find_map(|(name, seen)| {
            let seen = seen.filter(|seen| seen.of == good.digest && seen.reading.outcome == Outcome::Fail)?;
            Some(WaitingOn::Alarm { alarm: name.clone(), reason: seen.reading.reason.clone() })
        })
    }

    /// Why an alarm says that the new release is not good, if one does.
    pub(super) fn fires(&self, pass: &Pass<'_>, deployment: &Deployment) -> Option<String> {
        if deployment.gates.waived == Some(deployment.phase) {
            return None;
        }
        self.readings(pass).find_map(|(name, seen)| {
            let of_new = |seen: &&AlarmObserved| seen.of == deployment.digest;
            let seen = seen.filter(of_new).filter(|seen| seen.reading.outcome == Outcome::Fail)?;
            Some(format!("alarm `{name}` fires: {}", seen.reading.reason))
        })
    }

    /// Whether the alarms let a batch end its bake. One that has too little to say is waited for as long again, and then
    /// does as its manifest says.
    pub(super) fn is_measured(&self, pass: &mut Pass<'_>, deployment: &Deployment) -> bool {
        if deployment.gates.waived == Some(deployment.phase) {
            return true;
        }
        let is_good =
            |seen: &AlarmObserved| seen.of == deployment.digest && seen.reading.outcome == Outcome::Pass;
        let unsaid: Vec<(Name, Option<String>)> = self
            .readings(pass)
            .filter(|(_, seen)| !seen.is_some_and(is_good))
            .map(|(name, seen)| {
                let seen = seen.filter(|seen| seen.of == deployment.digest);
                (name.clone(), seen.map(|seen| seen.reading.reason.clone()))
            })
            .collect();
        if unsaid.is_empty() {
            return true;
        }
        let bake = signed(self.spec.rollout.bake.get() * 2);
        let is_unread = unsaid.iter().any(|(_, reason)| reason.is_none());
        let until = deployment.since + if is_unread { bake.max(FIRST_READING) } else { bake };
        let unsaid = unsaid
            .into_iter()
            .map(|(name, reason)| (name, reason.unwrap_or_else(|| "nothing is measured yet".to_owned())));
        let unsaid: Vec<(Name, String)> = unsaid.collect();
        if pass.world.now < until {
            let (alarm, reason) = unsaid[0].clone();
            self.wait(pass, WaitingOn::Measures { alarm, reason, until });
            return false;
        }
        for (name, reason) in unsaid {
            let alarm = pass.world.catalog.alarms.get(&name);
            let reason = format!("alarm `{name}` has too little to say: {reason}");
            match alarm.map(|alarm| alarm.on_inconclusive).unwrap_or_default() {
                OnInconclusive::Pass => {}
                OnInconclusive::Fail => {
                    self.fail_by_gate(pass, deployment, reason);
                    return false;
                }
                OnInconclusive::Pause => {
                    self.ask_a_person(pass, reason);
                    return false;
                }
            }
        }
        true
    }
}
