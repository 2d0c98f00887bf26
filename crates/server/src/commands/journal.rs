//! `postroad journal`: looking into a journal on disk, without a broker.

use clap::Args;

use super::CommandError;

#[derive(Args, Debug)]
pub(crate) struct JournalArguments {}

pub(crate) fn run(_arguments: &JournalArguments) -> Result<(), CommandError> {
    Ok(())
}
