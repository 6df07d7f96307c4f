//! What a stage does whose records were lost and made anew: what was found whole is good, and is not rolled out again.

use jiff::Timestamp;

use super::Stage;
use crate::converge::count;
use crate::pass::Pass;
use crate::placement::Release;
use crate::plan::Step;
use crate::records::{Good, StageRecord};

impl Stage<'_> {
    /// All that it wants was found running after its records were lost: nothing has to be rolled out again.
    pub(super) fn is_recovered(&self) -> bool {
        let ready = self.units.iter().filter(|unit| unit.is_ready());
        self.was_found_whole() && count(ready) >= self.total()
    }

    fn was_found_whole(&self) -> bool {
        let StageRecord { rebuilt, good, deployment, .. } = self.record;
        let is_new = rebuilt.is_some() && good.is_none() && deployment.is_none();
        let mut others = self.units.iter().filter(|unit| unit.record.template != self.release.digest);
        is_new && others.next().is_none() && count(self.units) >= self.total()
    }

    /// Until when what was found has to show that it serves, if it has not yet.
    pub(super) fn is_recovering(&self, pass: &Pass<'_>) -> Option<Timestamp> {
        let until = self.record.others_heard().filter(|_| self.was_found_whole())?;
        (pass.world.now < until).then_some(until)
    }

    pub(super) fn mark_good(&self, pass: &mut Pass<'_>) {
        let Release { name, template, digest } = self.release;
        let good = Good { release: name.clone(), template: template.clone(), digest };
        pass.step(Step::MarkGood { stage: self.id.clone(), good });
    }
}
