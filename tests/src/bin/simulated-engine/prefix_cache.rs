//! A prefix cache as vLLM's: whole blocks of tokens, from the beginning of a prompt on.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Mutex, PoisonError};

/// A token is four bytes here, and a block 16 tokens.
const BLOCK_TOKENS: u64 = 16;
const BLOCK_BYTES: usize = 64;
/// When it is full it is emptied: what tests ask fits.
const MOST_BLOCKS: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct PrefixCache(Mutex<HashSet<u64>>);

impl PrefixCache {
    /// How many tokens of the prompt are there already; from now on all of it is.
    pub(crate) fn read(&self, prompt: &str) -> u64 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST_BLOCKS {
            known.clear();
        }
        let (mut chain, mut cached, mut is_cached) = (DefaultHasher::new(), 0, true);
        for block in prompt.as_bytes().chunks_exact(BLOCK_BYTES) {
            chain.write(block);
            is_cached &= !known.insert(chain.finish());
            cached += if is_cached { BLOCK_TOKENS } else { 0 };
        }
        cached
    }
}
