//! Signals that stop the broker.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt })
    }

    pub(crate) async fn stop_requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("told to stop; finishing what is under way"),
            _ = self.interrupt.recv() => tracing::info!("interrupted; finishing what is under way"),
        }
    }
}
