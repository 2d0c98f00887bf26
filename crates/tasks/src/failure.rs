//! Reports the permanent failure of a part of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::exit;

/// A node's failure: none yet, or the first. Clones share it.
#[derive(Clone, Debug)]
pub struct Failure(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reason: watch::Sender<Option<String>>,
    stopping: AtomicBool,
}

impl Failure {
    pub fn new() -> Self {
        let (reason, _) = watch::channel(None);
        Self(Arc::new(Inner { reason, stopping: AtomicBool::new(false) }))
    }

    /// Reports that a vital part is gone. Does not return if the process is to end (see [`exit::on_failure`]).
    /// Otherwise [`Failure::reported`] completes.
    pub fn report(&self, reason: impl Into<String>) {
        let reason = reason.into();
        exit::with(&reason);
        self.0.reason.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(reason);
            is_first
        });
    }

    /// Marks the node as stopping: from now on a part may return. A panic remains a failure.
    pub fn expect_ends(&self) {
        self.0.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn expects_ends(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }

    /// The first reason, if any.
    pub fn reason(&self) -> Option<String> {
        self.0.reason.borrow().clone()
    }

    /// Waits for the first reason.
    pub async fn reported(&self) -> String {
        let mut reason = self.0.reason.subscribe();
        match reason.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Default for Failure {
    fn default() -> Self {
        Self::new()
    }
}
