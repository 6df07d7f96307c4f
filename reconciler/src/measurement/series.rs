use std::collections::VecDeque;
use std::time::Duration;

use denv_gates::alarm::Measured;
use denv_schema::wire::Generation;
use jiff::Timestamp;

/// What one unit did lately, in slots of time. It holds at most [`MOST_SLOTS`], however long the window is that is
/// looked back over: the longer that is, the longer is a slot.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) generation: Generation,
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    begun: Timestamp,
    measured: Measured,
}

/// A window is as exact as one of its parts.
const MOST_SLOTS: u32 = 120;

/// How long a slot is, where alarms look back over `window`.
pub(super) fn slot_length(window: Duration, shortest: Duration) -> Duration {
    (window / MOST_SLOTS).max(shortest)
}

impl Series {
    pub(super) fn begin(generation: Generation, now: Timestamp) -> Self {
        let slots = VecDeque::from([Slot { begun: now, measured: Measured::default() }]);
        Series { generation, slots }
    }

    /// Begins a slot where the last has had its time.
    pub(super) fn advance(&mut self, length: Duration, now: Timestamp) {
        let is_over = |slot: &Slot| now.duration_since(slot.begun).unsigned_abs() >= length;
        if self.slots.back().is_none_or(is_over) {
            self.slots.push_back(Slot { begun: now, measured: Measured::default() });
        }
        while self.slots.len() > MOST_SLOTS as usize + 1 {
            self.slots.pop_front();
        }
    }

    pub(super) fn now(&mut self) -> &mut Measured {
        &mut self.slots.back_mut().expect("a series begins with a slot").measured
    }

    /// Adds what was measured in the slots that began at `since` or later.
    pub(super) fn add_to(&self, sum: &mut Measured, since: Timestamp) {
        self.slots.iter().filter(|slot| slot.begun >= since).for_each(|slot| sum.add(&slot.measured));
    }
}
