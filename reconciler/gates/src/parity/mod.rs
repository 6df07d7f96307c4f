//! Whether a release answers as it should.

mod compare;
mod html;
mod judge;
mod report;
#[cfg(test)]
mod tests;
mod text_difference;

pub use html::html;
pub use judge::{Reference, Verdict, judge};
pub use report::{CaseReport, CaseVerdict, Difference, Report, When};
