//! The runtime of a command that waits for a broker.

use std::pin::Pin;

use crate::command_error::CommandError;

/// Runs a command that talks to a broker.
pub fn run(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    run_boxed(Box::pin(command))
}

/// Apart from [`run`], so that the runtime's code is compiled once and not for each command.
fn run_boxed(
    command: Pin<Box<dyn Future<Output = Result<(), CommandError>> + '_>>,
) -> Result<(), CommandError> {
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
