//! A sender for clients that write many messages in one call. Messages posted while one batch is in
//! flight form the next, so that batches grow with the server's latency. Only one batch is in
//! flight, which keeps the order of every lane.

use std::fmt::Debug;

use async_trait::async_trait;
use driver::{Failure, Message, Receipt, Sender};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::pending::{Outstanding, Window, send_by_post};

/// Writes batches.
#[async_trait]
pub(crate) trait BatchWriter: Send + Debug + 'static {
    /// Writes all messages and returns the outcome of each, in their order. An error applies to all
    /// of them.
    async fn write(
        &mut self,
        batch: &[(u32, Message)],
    ) -> Result<Vec<Result<(), Failure>>, Failure>;
}

/// A sender that batches.
#[derive(Debug)]
pub(crate) struct BatchingSender {
    queue: mpsc::UnboundedSender<(u32, Message, Outstanding)>,
    task: JoinHandle<()>,
    window: Window,
}

impl BatchingSender {
    /// `batch_max`: largest number of messages in one write.
    pub(crate) fn spawn(mut writer: impl BatchWriter, window: u32, batch_max: usize) -> Self {
        // The window bounds the queue: each entry holds a permit.
        let (queue, mut arriving) = mpsc::unbounded_channel::<(u32, Message, Outstanding)>();
        let task = tokio::spawn(async move {
            let mut taken = Vec::with_capacity(batch_max);
            while arriving.recv_many(&mut taken, batch_max).await > 0 {
                let mut batch = Vec::with_capacity(taken.len());
                let mut outstanding = Vec::with_capacity(taken.len());
                for (destination, message, receipt) in taken.drain(..) {
                    batch.push((destination, message));
                    outstanding.push(receipt);
                }
                resolve_all(writer.write(&batch).await, outstanding);
            }
        });
        Self { queue, task, window: Window::new(window) }
    }
}

fn resolve_all(written: Result<Vec<Result<(), Failure>>, Failure>, outstanding: Vec<Outstanding>) {
    match written {
        // Receipts without an outcome resolve as unknown when they are dropped.
        Ok(each) => {
            for (outstanding, sent) in outstanding.into_iter().zip(each) {
                outstanding.resolve(sent);
            }
        }
        Err(failure) => {
            for outstanding in outstanding {
                outstanding.resolve(Err(failure.clone()));
            }
        }
    }
}

#[async_trait]
impl Sender for BatchingSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let room = self.window.enter().await;
        let _ = self.queue.send((destination, message, Outstanding { receipt, room }));
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { queue, task, .. } = *self;
        drop(queue);
        task.await.map_err(Failure::unknown)
    }
}
