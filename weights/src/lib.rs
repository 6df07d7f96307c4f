//! Weights on disk: a file, or a folder of them. It owns which files belong to them, the digest by which a release names
//! them, and the reading of many gigabytes without disturbing what serves beside it.
//!
//! `denv weights digest` and denvd share it, so what a person computes is what a host verifies. It refuses to know where
//! weights come from, releases and engines, and it changes no file.

mod find;
mod listing;
mod read;

pub use find::{FindError, Found, FoundFile, find, is_hidden, is_name};
pub use listing::{Contents, Difference, FileContents, Listing};
pub use read::{Progress, ReadError, Reader};
