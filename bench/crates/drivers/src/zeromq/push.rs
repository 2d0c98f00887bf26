use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use driver::{Failure, Message, Sender};
use zeromq::{PushSocket, Socket, SocketOptions, SocketSend, ZmqError};

use super::{Listeners, PATIENCE};

pub(super) struct PushSender {
    listeners: Arc<Listeners>,
    outlets: Vec<Outlet>,
}

/// A destination: the socket that is connected to all its receivers.
struct Outlet {
    name: String,
    socket: PushSocket,
    /// The last change of the listeners that was applied.
    change: u64,
}

impl fmt::Debug for PushSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushSender").field("outlets", &self.outlets.len()).finish_non_exhaustive()
    }
}

impl PushSender {
    pub(super) fn new(listeners: Arc<Listeners>, names: impl Iterator<Item = String>) -> Self {
        let outlet = |name| {
            let mut options = SocketOptions::default();
            options.connect_timeout(PATIENCE);
            Outlet { name, socket: PushSocket::with_options(options), change: 0 }
        };
        Self { listeners, outlets: names.map(outlet).collect() }
    }
}

impl Outlet {
    /// Connects to the new receivers.
    async fn reach(&mut self, listeners: &Listeners) -> Result<(), Failure> {
        let (change, new) = listeners.since(self.change, &self.name);
        for listening in new {
            let connected = self.socket.connect(&format!("tcp://{}", listening.address)).await;
            connected.map_err(|error| Failure::Unreachable {
                endpoint: listening.address,
                why: error.to_string(),
            })?;
        }
        self.change = change;
        Ok(())
    }
}

#[async_trait]
impl Sender for PushSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        let outlet = self.outlets.get_mut(destination as usize);
        let outlet = outlet.ok_or_else(|| Failure::refused("there is no such destination"))?;
        outlet.reach(&self.listeners).await?;
        for message in messages {
            let sent = outlet.socket.send(message.body.clone().into()).await;
            sent.map_err(|error| match error {
                ZmqError::ReturnToSender { .. } => {
                    Failure::refused(format!("nobody listens to {}", outlet.name))
                }
                other => Failure::unknown(other),
            })?;
        }
        Ok(())
    }

    /// Queued messages are still written after the sockets are dropped.
    async fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
