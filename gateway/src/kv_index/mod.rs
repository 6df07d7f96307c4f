//! Which units have read which prompts lately, so that a prompt goes to where its beginning is likely still in the KV cache.
//!
//! It owns what is believed of caches. It refuses to know units and requests: it sees holders, and prompts as blocks. What
//! it believes costs at most a prompt that is read anew; what it forgets is forgotten at once.

mod prefix;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

pub use prefix::{BLOCK_BYTES, Block, Prefix};

/// One cache, from when it was empty until it is empty again. None is ever used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub(crate) u32);

/// Who holds which blocks. A block is forgotten when it was not used while as many others were as there is room for.
#[derive(Debug)]
pub struct KvIndex {
    /// What was used lately, and what was used before that; together no more than there is room for. Holders are sorted.
    young: HashMap<Block, Vec<Holder>>,
    old: HashMap<Block, Vec<Holder>>,
    room: usize,
    /// Those who are not forgotten.
    live: HashSet<Holder>,
    next: u32,
}

/// How much of a prompt each holder has from its beginning on, for those that have any of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Held(Vec<(Holder, u32)>);

/// Blocks of one stage: 64 MiB of prompts, for some 20 MiB of memory.
pub const ROOM: usize = 1 << 18;

impl KvIndex {
    pub fn new(room: usize) -> Self {
        KvIndex {
            young: HashMap::new(),
            old: HashMap::new(),
            room: room.max(2),
            live: HashSet::new(),
            next: 0,
        }
    }

    /// A cache that holds nothing yet.
    pub fn join(&mut self) -> Holder {
        let holder = Holder(self.next);
        self.next += 1;
        self.live.insert(holder);
        holder
    }

    /// The cache is gone, whatever was in it.
    pub fn forget(&mut self, holder: Holder) {
        self.live.remove(&holder);
    }

    /// The whole of the prompt is read by `holder`, or about to be.
    pub fn hold(&mut self, holder: Holder, prefix: &Prefix) {
        if !self.live.contains(&holder) {
            return;
        }
        for block in prefix.blocks() {
            let holders = match self.young.get_mut(block) {
                Some(holders) => holders,
                None => {
                    let before = self.old.remove(block).unwrap_or_default();
                    self.young.entry(*block).or_insert(before)
                }
            };
            if let Err(at) = holders.binary_search(&holder) {
                holders.insert(at, holder);
                if holders.len() > self.live.len() {
                    holders.retain(|holder| self.live.contains(holder));
                }
            }
        }
        if self.young.len() * 2 >= self.room {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// How much of the prompt each has.
    pub fn held(&self, prefix: &Prefix) -> Held {
        let mut held = Vec::new();
        let mut with_all: Option<Vec<Holder>> = None;
        for (depth, block) in (0u32..).zip(prefix.blocks()) {
            let holders =
                self.young.get(block).or_else(|| self.old.get(block)).map_or(&[][..], Vec::as_slice);
            let all = match &mut with_all {
                None => {
                    with_all.insert(holders.iter().copied().filter(|it| self.live.contains(it)).collect())
                }
                Some(all) => {
                    all.retain(|holder| {
                        let has = holders.binary_search(holder).is_ok();
                        if !has {
                            held.push((*holder, depth));
                        }
                        has
                    });
                    all
                }
            };
            if all.is_empty() {
                break;
            }
        }
        let depth = prefix.len();
        held.extend(with_all.into_iter().flatten().map(|holder| (holder, depth)));
        held.sort_unstable();
        Held(held)
    }

    /// How many blocks are remembered.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Held {
    /// How many blocks `holder` has of the prompt.
    pub fn by(&self, holder: Holder) -> u32 {
        self.0.binary_search_by_key(&holder, |(holder, _)| *holder).map_or(0, |at| self.0[at].1)
    }
}

/// The index of one stage, as units and requests share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedIndex(Arc<Mutex<KvIndex>>);

impl SharedIndex {
    pub(crate) fn new() -> Self {
        SharedIndex(Arc::new(Mutex::new(KvIndex::new(ROOM))))
    }

    /// How much of the prompt each of the stage's units has. One without a whole block is looked up nowhere.
    pub(crate) fn held(&self, prefix: &Prefix) -> Held {
        if prefix.is_empty() { Held::default() } else { self.with(|index| index.held(prefix)) }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut KvIndex) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
