//! What leaves a host that its provider takes back.

use denv_schema::Name;
use jiff::Timestamp;

use crate::records::UnitRecord;
use crate::world::World;

/// A host of the unit that its provider takes back, and when, if there is one. The unit ends with it, whatever denv does:
/// it leaves rotation while its requests can still finish, and its replacement starts.
pub(crate) fn reclaimed<'u>(world: &World<'_>, unit: &'u UnitRecord) -> Option<(&'u Name, Timestamp)> {
    let notice = |host: &Name| world.host(host).and_then(|observed| observed.report.reclaim);
    let hosts = unit.members.iter().map(|member| &member.host);
    hosts.filter_map(|host| Some((host, notice(host)?))).min_by_key(|(_, at)| *at)
}
