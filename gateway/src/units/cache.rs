use std::sync::atomic::{AtomicU32, Ordering};

use crate::kv_index::{Held, Holder, Prefix, SharedIndex};

/// What is believed to be in the KV cache of a unit.
pub(super) struct Cache {
    index: SharedIndex,
    holder: AtomicU32,
}

impl Cache {
    /// An empty one of a unit of the stage whose index this is.
    pub(super) fn new(index: SharedIndex) -> Self {
        let holder = index.with(|index| index.join());
        Cache { index, holder: AtomicU32::new(holder.0) }
    }

    /// How many blocks of a prompt are in it.
    pub(super) fn has(&self, held: &Held) -> u32 {
        held.by(self.holder())
    }

    /// The unit is given this prompt.
    pub(super) fn takes(&self, prefix: &Prefix) {
        if !prefix.is_empty() {
            self.index.with(|index| index.hold(self.holder(), prefix));
        }
    }

    /// It is likely gone, so nothing is believed of it any more.
    pub(super) fn lose(&self) {
        self.index.with(|index| {
            index.forget(self.holder());
            self.holder.store(index.join().0, Ordering::SeqCst);
        });
    }

    fn holder(&self) -> Holder {
        Holder(self.holder.load(Ordering::SeqCst))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.index.with(|index| index.forget(self.holder()));
    }
}
