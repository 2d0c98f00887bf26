//! Signals that stop the broker.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::serve::ServeError;

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, ServeError> {
        let terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
        Ok(Self { terminate, interrupt })
    }

    pub(crate) async fn stop_requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("told to stop; finishing what is under way"),
            _ = self.interrupt.recv() => tracing::info!("interrupted; finishing what is under way"),
        }
    }
}
