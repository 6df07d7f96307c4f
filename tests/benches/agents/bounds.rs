//! What the figures are to stay within.

use std::fmt::Debug;

/// Shows figures, and keeps in mind those that are more than they may be.
#[derive(Default)]
pub(crate) struct Bounds {
    missed: Vec<String>,
}

impl Bounds {
    pub(crate) fn at_most<T: PartialOrd + Debug>(&mut self, what: &str, figure: T, most: T) {
        let shown = format!("{what} {figure:.1?} (wanted: at most {most:?})");
        println!("  {shown}");
        if figure > most {
            self.missed.push(shown);
        }
    }

    /// An error, where one was missed.
    pub(crate) fn kept(self) -> anyhow::Result<()> {
        anyhow::ensure!(self.missed.is_empty(), "missed: {}", self.missed.join("; "));
        Ok(())
    }
}
