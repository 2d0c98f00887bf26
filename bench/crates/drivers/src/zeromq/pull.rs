use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;

use async_trait::async_trait;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use futures_util::FutureExt;
use tokio::time::timeout;
use zeromq::{PullSocket, Socket, SocketRecv, ZmqError, ZmqMessage};

use super::{Listeners, SYSTEM};

pub(super) struct PullReceiver {
    socket: PullSocket,
    listeners: Arc<Listeners>,
    /// Its number among the listeners.
    id: u64,
    deliveries: u64,
}

impl fmt::Debug for PullReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullReceiver").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PullReceiver {
    pub(super) async fn listen(
        listener: TcpListener,
        listeners: Arc<Listeners>,
        destinations: Vec<String>,
    ) -> Result<Self, Failure> {
        let address = listener.local_addr().map_err(Failure::unknown)?.to_string();
        let mut socket = PullSocket::new();
        socket.bind_listener(listener).await.map_err(Failure::unknown)?;
        let id = listeners.add(address, destinations);
        Ok(Self { socket, listeners, id, deliveries: 0 })
    }

    /// The next message from any sender. May be cancelled while it waits.
    async fn next(&mut self) -> Result<ZmqMessage, Failure> {
        loop {
            match self.socket.recv().await {
                Ok(message) => return Ok(message),
                Err(ZmqError::NoMessage) => return Err(Failure::unknown("the socket is closed")),
                // A broken connection is dropped; other senders may have messages.
                Err(error) => tracing::debug!(%error, "a sender is gone"),
            }
        }
    }

    fn hand_out(&mut self, message: ZmqMessage) -> Result<Received, Failure> {
        let frames = message.len();
        let [body] = <[_; 1]>::try_from(message.into_vec())
            .map_err(|_| Failure::refused(format!("a message of {frames} parts came")))?;
        self.deliveries += 1;
        Ok(Received { id: DeliveryId(self.deliveries), body, redelivered: None })
    }
}

#[async_trait]
impl Receiver for PullReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.next()).await {
            Err(_) => return Ok(received),
            Ok(first) => received.push(self.hand_out(first?)?),
        }
        while received.len() < max
            && let Some(next) = self.next().now_or_never()
        {
            received.push(self.hand_out(next?)?);
        }
        Ok(received)
    }

    /// Received messages are already gone.
    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        if settles.iter().any(|(_, settle)| *settle == Settle::Release) {
            let what = "way to give a message back".into();
            return Err(Failure::Unsupported { system: SYSTEM, what });
        }
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        // Returns when the port is free.
        match self.socket.unbind_all().await.into_iter().next() {
            Some(error) => Err(Failure::unknown(error)),
            None => Ok(()),
        }
    }
}

impl Drop for PullReceiver {
    fn drop(&mut self) {
        self.listeners.remove(self.id);
        // Otherwise the socket's tasks keep its connections open.
        self.socket.backend().shutdown();
    }
}
