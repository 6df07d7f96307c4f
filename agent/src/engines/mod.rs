//! Questions to the engines of this host, on loopback: what they tell of themselves, and what they answer to a test's
//! prompts. It refuses to start, stop or judge engines; what it is not told it leaves out.

mod exchange;
mod measure;
mod metrics;
mod test;

pub use measure::keep_measured;
pub use test::answer;
