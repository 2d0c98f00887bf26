use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use driver::{Failure, Message, Receipt, Sender, Topology};
use tokio::sync::oneshot;

use super::MODEL;
use super::connection::Broker;
use super::wire::{Answer, Request, code, status};
use crate::pending::{Confirmer, Outstanding, Window, send_by_post};

/// Number of retries of a message that the broker was too busy for, as in the Java client.
pub(super) const AGAIN_MAX: u32 = 2;

pub(super) struct RocketSender {
    broker: Arc<Broker>,
    topics: Vec<String>,
    queues: u32,
    ordered: bool,
    sent: u32,
    /// By destination and lane: resolves when the last posted message has its reply.
    last: HashMap<(u32, u32), oneshot::Receiver<()>>,
    window: Window,
    confirmer: Confirmer,
}

impl fmt::Debug for RocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocketSender").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl RocketSender {
    pub(super) fn new(broker: Broker, topology: &Topology, window: u32) -> Self {
        Self {
            broker: Arc::new(broker),
            topics: (0..topology.destinations).map(|index| topology.destination(index)).collect(),
            queues: topology.partitions.max(1),
            ordered: topology.ordered,
            sent: 0,
            last: HashMap::new(),
            window: Window::new(window),
            confirmer: Confirmer::spawn(),
        }
    }

    /// The queue of the lane if ordered; else round-robin.
    fn queue(&mut self, lane: u32) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        if self.ordered { lane % self.queues } else { self.sent % self.queues }
    }

    /// The broker stores concurrent requests in any order, so those of a lane are sent one by one.
    fn in_order(
        &mut self,
        destination: u32,
        lane: u32,
        request: Request,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (answered, this) = oneshot::channel();
        let before = self.last.insert((destination, lane), this);
        let broker = Arc::clone(&self.broker);
        async move {
            if let Some(before) = before {
                // Resolved or dropped: the previous message is done.
                let _ = before.await;
            }
            let outcome = sent(&broker.request(request).await?);
            let _ = answered.send(());
            outcome
        }
    }

    fn in_any_order(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let broker = Arc::clone(&self.broker);
        async move {
            for _ in 0..AGAIN_MAX {
                let answer = broker.request(request.clone()).await?;
                if answer.code != status::SYSTEM_BUSY {
                    return sent(&answer);
                }
            }
            sent(&broker.request(request).await?)
        }
    }
}

fn sent(answer: &Answer) -> Result<(), Failure> {
    match answer.code {
        status::SUCCESS => Ok(()),
        // Stored, but less safely than the broker's configuration demands.
        status::FLUSH_DISK_TIMEOUT | status::SLAVE_NOT_AVAILABLE | status::FLUSH_SLAVE_TIMEOUT => {
            Err(Failure::unknown(answer.refusal()))
        }
        _ => Err(answer.refusal()),
    }
}

#[async_trait]
impl Sender for RocketSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let (lane, queue) = (message.lane, self.queue(message.lane));
        let Some(topic) = self.topics.get(destination as usize) else {
            return outstanding.resolve(Err(Failure::refused("there is no such destination")));
        };
        // The short field names of SendMessageRequestHeaderV2: group, topic, model and its queues,
        // queue, flags, time, flag, properties.
        let request = Request::new(code::SEND_MESSAGE)
            .field("a", "postroad-bench")
            .field("b", topic)
            .field("c", MODEL)
            .field("d", self.queues)
            .field("e", queue)
            .field("f", 0)
            .field("g", super::now_ms())
            .field("h", 0)
            .field("i", "")
            .body(message.body);
        if self.ordered {
            let confirmation = self.in_order(destination, lane, request);
            self.confirmer.begin(confirmation, outstanding).await;
        } else {
            self.confirmer.begin(self.in_any_order(request), outstanding).await;
        }
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        self.window.drained().await;
        self.confirmer.close().await;
        Ok(())
    }
}
