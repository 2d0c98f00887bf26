//! The runtime of a command that waits for a broker.

use crate::command_error::CommandError;

/// Runs a command that talks to a broker.
pub fn run<F>(command: F) -> Result<(), CommandError>
where
    F: Future<Output = Result<(), CommandError>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CommandError::server(format!("the runtime could not start: {error}")))?;
    let outcome = runtime.block_on(command);
    // A thread that still writes to a full pipe must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}
