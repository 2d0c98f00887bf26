use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use driver::{Failure, Message, Receipt, Sender};
use parking_lot::Mutex;
use rumqttc::{AsyncClient, Event, EventLoop, Outgoing, Packet, QoS};
use tokio::task::JoinHandle;

use crate::pending::{Outstanding, Window, send_by_post};

/// Unacknowledged messages. The client assigns packet ids only when it writes, in the order of the
/// calls.
#[derive(Debug, Default)]
struct Unanswered {
    unnumbered: VecDeque<Outstanding>,
    numbered: HashMap<u16, Outstanding>,
}

pub(super) struct MqttSender {
    client: AsyncClient,
    topics: Vec<String>,
    window: Window,
    unanswered: Arc<Mutex<Unanswered>>,
    task: JoinHandle<()>,
}

impl fmt::Debug for MqttSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttSender").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl MqttSender {
    pub(super) fn spawn(
        client: AsyncClient,
        mut events: EventLoop,
        topics: Vec<String>,
        window: u16,
    ) -> Self {
        let unanswered: Arc<Mutex<Unanswered>> = Arc::default();
        let shared = Arc::clone(&unanswered);
        let task = tokio::spawn(async move {
            loop {
                match events.poll().await {
                    Ok(event) => shared.lock().handle(&event),
                    Err(error) => return shared.lock().give_up(&error.to_string()),
                }
            }
        });
        Self { client, topics, window: Window::new(window.into()), unanswered, task }
    }
}

impl Unanswered {
    fn handle(&mut self, event: &Event) {
        match event {
            Event::Outgoing(Outgoing::Publish(number)) => {
                if let Some(outstanding) = self.unnumbered.pop_front() {
                    self.numbered.insert(*number, outstanding);
                }
            }
            Event::Incoming(Packet::PubAck(answer)) => {
                if let Some(outstanding) = self.numbered.remove(&answer.pkid) {
                    outstanding.resolve(Ok(()));
                }
            }
            _ => {}
        }
    }

    fn give_up(&mut self, why: &str) {
        let numbered = self.numbered.drain().map(|(_, outstanding)| outstanding);
        for outstanding in numbered.chain(self.unnumbered.drain(..)) {
            outstanding.resolve(Err(Failure::unknown(why)));
        }
    }
}

#[async_trait]
impl Sender for MqttSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let Some(topic) = self.topics.get(destination as usize) else {
            return outstanding.resolve(Err(Failure::refused("there is no such destination")));
        };
        if self.task.is_finished() {
            return outstanding.resolve(Err(Failure::unknown("the connection is gone")));
        }
        // Registered before the call, because the client may write at once.
        self.unanswered.lock().unnumbered.push_back(outstanding);
        let publish = self.client.publish_bytes(topic, QoS::AtLeastOnce, false, message.body);
        if let Err(error) = publish.await {
            self.unanswered.lock().give_up(&error.to_string());
        }
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        self.window.drained().await;
        let _ = self.client.disconnect().await;
        // The task ends with the connection, which it closes.
        let _ = self.task.await;
        Ok(())
    }
}
