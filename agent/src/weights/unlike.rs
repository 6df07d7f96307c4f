//! Weights that are not what was meant, and in what they differ as far as that can be known.

use std::fmt;

use denv_schema::Digest;
use denv_weights::{Contents, Difference, Listing};

/// What was found instead.
#[derive(Debug)]
pub struct Unlike {
    digest: Digest,
    contents: String,
    differences: Vec<Difference>,
}

/// Differences named at most.
const NAMED: usize = 5;

impl Unlike {
    /// `known` is the folder that was meant, where it was once seen.
    pub(super) fn new(contents: &Contents, meant: Digest, known: Option<&Listing>) -> Self {
        let differences = match (contents, known) {
            (Contents::Folder(here), Some(known)) => here.differences(known),
            (Contents::Folder(here), None) => {
                let too_many = here.one_too_many(meant);
                too_many.map(|name| Difference::TooMany(name.to_owned())).into_iter().collect()
            }
            (Contents::File(_), _) => Vec::new(),
        };
        Unlike { digest: contents.digest(), contents: contents.to_string(), differences }
    }
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.digest, self.contents)?;
        for (index, difference) in self.differences.iter().take(NAMED).enumerate() {
            write!(f, "{}{difference}", if index == 0 { ": " } else { ", " })?;
        }
        match self.differences.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
