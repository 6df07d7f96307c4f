//! `denv version`: of this program; it asks nobody.

use crate::error::Error;
use crate::output::{Exit, Output};

pub(crate) fn run(output: &mut Output) -> Result<Exit, Error> {
    output.say(concat!("denv ", env!("CARGO_PKG_VERSION")))?;
    Ok(Exit::Done)
}
