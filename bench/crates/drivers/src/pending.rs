//! Messages in flight: bounded by a window, and their receipts.
//!
//! There are two kinds of clients. Some return a future for each message: those use a
//! [`Confirmer`]. Some write many messages in one call and return all outcomes: those use a
//! [`BatchWriter`](crate::batching::BatchWriter). In both cases `send` is `post` and a wait, so
//! that the two keep one order.

use std::sync::Arc;
use std::task::Poll;

use driver::{Confirmed, Failure, Message, Receipt, Sender};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

/// Largest number of a sender's messages in flight, unless the setting `window` differs.
pub(crate) const WINDOW: u32 = 1_000;

/// Room for messages in flight.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    room: Arc<Semaphore>,
    size: u32,
}

impl Window {
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self { room: Arc::new(Semaphore::new(size as usize)), size }
    }

    /// Waits for room for one message; dropping the permit frees it.
    pub(crate) async fn enter(&self) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.room);
        room.acquire_owned().await.expect("a window is never closed")
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn drained(&self) {
        let _all = self.room.acquire_many(self.size).await.expect("a window is never closed");
    }
}

/// A receipt with the room that its message occupies.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) receipt: Receipt,
    pub(crate) room: OwnedSemaphorePermit,
}

impl Outstanding {
    pub(crate) fn resolve(self, sent: Result<(), Failure>) {
        self.receipt.resolve(sent);
        drop(self.room);
    }
}

/// The account of one `send`: tracks when all of its messages are resolved, and the first failure.
#[derive(Debug)]
pub(crate) struct Together {
    state: Mutex<TogetherState>,
    done: Notify,
}

#[derive(Debug)]
struct TogetherState {
    open: usize,
    failure: Option<Failure>,
}

impl Together {
    pub(crate) fn of(messages: usize) -> Arc<Self> {
        let state = Mutex::new(TogetherState { open: messages, failure: None });
        Arc::new(Self { state, done: Notify::new() })
    }

    pub(crate) async fn wait(&self) -> Result<(), Failure> {
        loop {
            let told = self.done.notified();
            {
                let mut state = self.state.lock();
                if state.open == 0 {
                    return state.failure.take().map_or(Ok(()), Err);
                }
            }
            told.await;
        }
    }
}

impl Confirmed for Together {
    fn resolve(&self, _number: u64, sent: Result<(), Failure>) {
        let mut state = self.state.lock();
        state.open -= 1;
        if let Err(failure) = sent {
            state.failure.get_or_insert(failure);
        }
        if state.open == 0 {
            // Keeps a permit if there is no waiter yet.
            self.done.notify_one();
        }
    }
}

/// `send` for a sender whose `post` does not wait.
pub(crate) async fn send_by_post<S: Sender + ?Sized>(
    sender: &mut S,
    destination: u32,
    messages: &[Message],
) -> Result<(), Failure> {
    let together = Together::of(messages.len());
    for (number, message) in messages.iter().enumerate() {
        let account: Arc<dyn Confirmed> = Arc::clone(&together) as _;
        sender.post(destination, message.clone(), Receipt::new(account, number as u64)).await;
    }
    sender.flush().await?;
    together.wait().await
}

type Confirmation = BoxFuture<'static, Result<(), Failure>>;

/// Awaits the server's confirmation of each message in its own task, in any order.
#[derive(Debug)]
pub(crate) struct Confirmer {
    queue: mpsc::UnboundedSender<(Confirmation, Outstanding)>,
    task: JoinHandle<()>,
}

impl Confirmer {
    /// The window bounds the queue: each entry holds a permit.
    pub(crate) fn spawn() -> Self {
        let (queue, mut arriving) = mpsc::unbounded_channel::<(Confirmation, Outstanding)>();
        let task = tokio::spawn(async move {
            let mut waiting = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some(()) = waiting.next(), if !waiting.is_empty() => {}
                    arrived = arriving.recv() => match arrived {
                        Some((confirmation, outstanding)) => waiting.push(async move {
                            outstanding.resolve(confirmation.await);
                        }),
                        None => break,
                    },
                }
            }
            while waiting.next().await.is_some() {}
        });
        Self { queue, task }
    }

    /// Polls the confirmation now, so that messages are sent in call order. The task awaits the
    /// rest.
    pub(crate) async fn begin(
        &self,
        confirmation: impl Future<Output = Result<(), Failure>> + Send + 'static,
        outstanding: Outstanding,
    ) {
        let mut confirmation: Confirmation = Box::pin(confirmation);
        match futures_util::poll!(confirmation.as_mut()) {
            Poll::Ready(sent) => outstanding.resolve(sent),
            // If the task is gone, dropping the receipt resolves it as unknown.
            Poll::Pending => drop(self.queue.send((confirmation, outstanding))),
        }
    }

    /// Waits until every receipt is resolved.
    pub(crate) async fn close(self) {
        drop(self.queue);
        let _ = self.task.await;
    }
}
