use std::hash::{DefaultHasher, Hasher as _};

/// All of a prompt up to some point, as a number. Two that are the same by chance send a prompt to where it is not cached,
/// and nothing worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(u64);

/// A prompt as the blocks that it begins with. What is left behind the last whole one is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix(Vec<Block>);

/// How much text a block is: some 60 tokens, where engines share caches in blocks of 16 to 64.
pub const BLOCK_BYTES: usize = 256;
/// Blocks of one prompt that are looked at: 1 MiB.
const MOST_BLOCKS: usize = 4096;

impl Prefix {
    /// Of a prompt whose tokens begin with `text`, where `frame` is all else that they depend on.
    pub fn new<'a>(frame: impl IntoIterator<Item = &'a [u8]>, text: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        for part in frame {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        let mut before = hasher.finish();
        let block = |bytes: &[u8]| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(before);
            hasher.write(bytes);
            before = hasher.finish();
            Block(before)
        };
        Prefix(text.chunks_exact(BLOCK_BYTES).take(MOST_BLOCKS).map(block).collect())
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.0
    }

    /// How many blocks it has.
    pub fn len(&self) -> u32 {
        u32::try_from(self.0.len()).expect("there are at most 4096")
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
