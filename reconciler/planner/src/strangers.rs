//! Members that hosts run and no record knows: what is left of a unit that was given up with its host, when the host
//! comes back after all.

use std::collections::BTreeSet;

use denv_schema::wire::{Action, Command, Generation, MemberReport, MemberState};
use denv_schema::{MemberId, Name, UnitId};

use crate::plan::Step;
use crate::records::Records;
use crate::world::World;

/// The connected hosts that run some, and what is to end of it: only what denv knows it gave up, because its number was
/// given and will not be again. After a loss of the records nothing looks like that, and nothing ends.
pub(crate) fn reap(world: &World<'_>) -> (BTreeSet<Name>, Vec<Step>) {
    let known: BTreeSet<&MemberId> =
        world.records.units.values().flat_map(|unit| &unit.members).map(|member| &member.id).collect();
    let (mut hosts, mut steps) = (BTreeSet::new(), Vec::new());
    for (host, observed) in world.observed.hosts.iter().filter(|(_, observed)| observed.connected) {
        for (member, report) in observed.report.members.iter().filter(|(member, _)| !known.contains(member)) {
            if report.state == MemberState::Stopped {
                continue;
            }
            hosts.insert(host.clone());
            steps.extend(end(world, host, member, report));
        }
    }
    (hosts, steps)
}

fn end(world: &World<'_>, host: &Name, member: &MemberId, report: &MemberReport) -> Option<Step> {
    let unit = given(world.records, member).filter(|_| report.state != MemberState::Stopping)?;
    let command = stop(member, report.generation);
    let is_on_its_way = world.records.pending.contains(&command.id);
    (!is_on_its_way).then(|| Step::EndStranger {
        unit,
        host: host.clone(),
        member: member.clone(),
        generation: report.generation,
    })
}

pub(crate) fn stop(member: &MemberId, generation: Generation) -> Command {
    Command::new(0, member.clone(), generation, Action::Stop {})
}

/// The unit that the member was of, if its number was given.
fn given(records: &Records, member: &MemberId) -> Option<UnitId> {
    records.stages.iter().find_map(|(stage, record)| {
        let prefix = format!("{}.{}.", stage.environment, stage.stage);
        let (number, _) = member.as_str().strip_prefix(&prefix)?.split_once('.')?;
        let number = number.parse::<u64>().ok().filter(|number| *number < record.next_unit)?;
        Some(UnitId::new(stage, number))
    })
}
