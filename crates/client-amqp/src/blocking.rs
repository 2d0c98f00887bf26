//! The client for a blocking thread: for loads and checkers, which share their machine with the server under test.
//!
//! The protocol is that of [`Channel`], over a socket whose reads and writes block. So its futures are never pending,
//! and each completes at its first poll, without a runtime.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::channel::{Channel, Confirm, Mode};
use crate::codec::{Argument, Delivery};
use crate::error::AmqpError;
use crate::transport::{READ_LEN, Transport};

/// A blocking socket.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    patience: Duration,
    chunk: Box<[u8]>,
}

impl Transport for Socket {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    async fn read(&mut self, arrived: &mut BytesMut) -> io::Result<()> {
        match self.stream.read(&mut self.chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                arrived.extend_from_slice(&self.chunk[..read]);
                Ok(())
            }
        }
    }

    async fn read_within(&mut self, arrived: &mut BytesMut, wait: Duration) -> io::Result<bool> {
        // A timeout of zero would mean none.
        self.stream.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let read = self.read(arrived).await;
        self.stream.set_read_timeout(Some(self.patience))?;
        match read {
            Ok(()) => Ok(true),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Completes a future that is never pending.
fn now<T>(done: impl Future<Output = T>) -> T {
    match pin!(done).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a socket that blocks is never pending"),
    }
}

/// One connection with one channel; see [`Channel`] for its methods.
#[derive(Debug)]
pub struct Connection {
    channel: Channel<Socket>,
}

impl Connection {
    /// Connects as guest to the default vhost; `patience` bounds every wait for the server.
    pub fn open(
        address: SocketAddr,
        patience: Duration,
        mode: Mode,
    ) -> Result<Connection, AmqpError> {
        Self::open_as(address, patience, mode, ["guest", "guest"])
    }

    /// Connects with a name and a password.
    pub fn open_as(
        address: SocketAddr,
        patience: Duration,
        mode: Mode,
        user: [&str; 2],
    ) -> Result<Connection, AmqpError> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let socket = Socket { stream, patience, chunk: vec![0; READ_LEN].into() };
        Ok(Connection { channel: now(Channel::open(socket, mode, user))? })
    }

    /// Declares queues of this `x-queue-type`.
    pub fn declare(&mut self, names: &[String], kind: &str) -> Result<(), AmqpError> {
        self.declare_with(names, &[("x-queue-type", Argument::Text(kind))])
    }

    pub fn declare_with(
        &mut self,
        names: &[String],
        arguments: &[(&str, Argument<'_>)],
    ) -> Result<(), AmqpError> {
        now(self.channel.declare(names, arguments))
    }

    pub fn ready(&mut self, queue: &str) -> Result<u32, AmqpError> {
        now(self.channel.ready(queue))
    }

    pub fn fan_out(&mut self, exchange: &str, queues: &[String]) -> Result<(), AmqpError> {
        now(self.channel.fan_out(exchange, queues))
    }

    pub fn publish_to_each(&mut self, queues: &[String], body: &[u8]) -> Result<(), AmqpError> {
        now(self.channel.publish_to_each(queues, body))
    }

    /// Publishes to a queue, through the exchange without a name.
    pub fn publish(&mut self, queue: &str, body: &[u8]) -> u64 {
        self.channel.publish("", queue, body)
    }

    pub fn publish_to(&mut self, exchange: &str, key: &str, body: &[u8]) -> u64 {
        self.channel.publish(exchange, key, body)
    }

    pub fn publish_mandatory(&mut self, queue: &str, body: &[u8]) -> u64 {
        self.channel.publish_mandatory("", queue, body)
    }

    pub fn returned(&mut self) -> Vec<Bytes> {
        self.channel.returned()
    }

    pub fn delete(&mut self, queue: &str) -> Result<(), AmqpError> {
        now(self.channel.delete(queue))
    }

    pub fn unconfirmed(&self) -> usize {
        self.channel.unconfirmed()
    }

    pub fn confirms(&mut self) -> Result<Vec<Confirm>, AmqpError> {
        now(self.channel.confirms())
    }

    pub fn confirms_within(&mut self, wait: Duration) -> Result<Option<Vec<Confirm>>, AmqpError> {
        now(self.channel.confirms_within(wait))
    }

    pub fn consume(&mut self, queue: &str, prefetch: u16) -> Result<(), AmqpError> {
        now(self.channel.consume(queue, prefetch))
    }

    pub fn delivery(&mut self, wait: Duration) -> Result<Option<Delivery>, AmqpError> {
        now(self.channel.delivery(wait))
    }

    pub fn ack(&mut self, tag: u64) {
        self.channel.ack(tag);
    }

    pub fn nack(&mut self, tag: u64, requeue: bool) {
        self.channel.nack(tag, requeue);
    }

    pub fn commit(&mut self) -> Result<(), AmqpError> {
        now(self.channel.commit())
    }

    pub fn close(self) -> Result<(), AmqpError> {
        now(self.channel.close())
    }

    pub fn flush(&mut self) -> Result<(), AmqpError> {
        now(self.channel.flush())
    }
}
