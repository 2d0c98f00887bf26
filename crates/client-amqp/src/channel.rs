//! A connection with one channel, and its operations.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::codec::*;
use crate::error::{AmqpError, Method};
use crate::transport::{TimedStream, Transport};

/// All methods after the handshake use one channel.
const CHANNEL: u16 = 1;
const DURABLE: u8 = 1 << 1;

/// Mode of the connection's one channel; the two exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Messages are confirmed.
    Confirms,
    /// Settles take effect with [`Channel::commit`].
    Transactions,
}

/// The server's confirm of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Confirm {
    pub tag: u64,
    /// False: the message was rejected.
    pub taken: bool,
}

/// One connection with one channel. Publishes and settles do not wait: they are sent with the next operation that
/// does.
#[derive(Debug)]
pub struct Channel<T> {
    transport: T,
    /// Frames not yet sent.
    unsent: Vec<u8>,
    incoming: Incoming,
    /// The delivery tag of the last message, and the tags without a confirm yet.
    published: u64,
    unconfirmed: BTreeSet<u64>,
    /// Deliveries that arrived during another operation.
    delivered: VecDeque<Delivery>,
    /// Returned mandatory messages.
    returned: Vec<Bytes>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Channel<TimedStream<S>> {
    /// Opens a connection over a connected stream. `patience` bounds every wait for the server.
    pub async fn over(
        stream: S,
        patience: Duration,
        mode: Mode,
        user: [&str; 2],
    ) -> Result<Self, AmqpError> {
        Self::open(TimedStream::new(stream, patience), mode, user).await
    }
}

impl<T: Transport> Channel<T> {
    /// Logs in to the default vhost with a name and a password, and opens a channel.
    pub async fn open(transport: T, mode: Mode, user: [&str; 2]) -> Result<Self, AmqpError> {
        let mut channel = Channel {
            transport,
            unsent: PROTOCOL_HEADER.to_vec(),
            incoming: Incoming::default(),
            published: 0,
            unconfirmed: BTreeSet::new(),
            delivered: VecDeque::new(),
            returned: Vec::new(),
        };
        channel.shake_hands(user).await?;
        channel.method(CHANNEL, CHANNEL_OPEN, |arguments| short_string(arguments, ""));
        channel.expect(CHANNEL_OPEN_OK).await?;
        match mode {
            Mode::Confirms => {
                channel.method(CHANNEL, CONFIRM_SELECT, |arguments| arguments.push(0));
                channel.expect(CONFIRM_SELECT_OK).await?;
            }
            Mode::Transactions => {
                channel.method(CHANNEL, TX_SELECT, |_| {});
                channel.expect(TX_SELECT_OK).await?;
            }
        }
        Ok(channel)
    }

    async fn shake_hands(&mut self, [name, password]: [&str; 2]) -> Result<(), AmqpError> {
        self.expect(CONNECTION_START).await?;
        self.method(0, CONNECTION_START_OK, |arguments| {
            arguments.extend_from_slice(&0_u32.to_be_bytes());
            short_string(arguments, "PLAIN");
            long_string(arguments, &format!("\0{name}\0{password}"));
            short_string(arguments, "en_US");
        });
        let limits = self.expect(CONNECTION_TUNE).await?;
        let without_heartbeat = limits
            .get(..6)
            .map(|limits| [limits, &[0, 0]].concat())
            .ok_or_else(|| AmqpError::malformed("connection.tune is cut short"))?;
        self.method(0, CONNECTION_TUNE_OK, |arguments| arguments.extend(without_heartbeat));
        self.method(0, CONNECTION_OPEN, |arguments| {
            short_string(arguments, "/");
            arguments.extend_from_slice(&[0, 0]);
        });
        self.expect(CONNECTION_OPEN_OK).await.map(drop)
    }

    /// Declares durable queues with these arguments.
    pub async fn declare(
        &mut self,
        names: &[String],
        arguments: &[(&str, Argument<'_>)],
    ) -> Result<(), AmqpError> {
        for name in names {
            self.method(CHANNEL, QUEUE_DECLARE, |payload| {
                payload.extend_from_slice(&[0, 0]);
                short_string(payload, name);
                payload.push(DURABLE);
                table(payload, arguments);
            });
        }
        for _ in names {
            self.expect(QUEUE_DECLARE_OK).await?;
        }
        Ok(())
    }

    /// Returns the number of ready messages of a queue.
    pub async fn ready(&mut self, queue: &str) -> Result<u32, AmqpError> {
        const PASSIVE: u8 = 1;
        self.method(CHANNEL, QUEUE_DECLARE, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, queue);
            arguments.push(PASSIVE);
            table(arguments, &[]);
        });
        let answer = self.expect(QUEUE_DECLARE_OK).await?;
        let name_bytes = usize::from(answer.first().copied().unwrap_or_default());
        let count = answer.get(1 + name_bytes..).and_then(|rest| rest.first_chunk());
        count
            .map(|count| u32::from_be_bytes(*count))
            .ok_or_else(|| AmqpError::malformed("queue.declare-ok is cut short"))
    }

    /// Declares a durable fanout exchange and binds these queues to it.
    pub async fn fan_out(&mut self, exchange: &str, queues: &[String]) -> Result<(), AmqpError> {
        self.method(CHANNEL, EXCHANGE_DECLARE, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, exchange);
            short_string(arguments, "fanout");
            arguments.push(DURABLE);
            table(arguments, &[]);
        });
        self.expect(EXCHANGE_DECLARE_OK).await?;
        for queue in queues {
            self.method(CHANNEL, QUEUE_BIND, |arguments| {
                arguments.extend_from_slice(&[0, 0]);
                short_string(arguments, queue);
                short_string(arguments, exchange);
                short_string(arguments, "");
                arguments.push(0);
                table(arguments, &[]);
            });
        }
        for _ in queues {
            self.expect(QUEUE_BIND_OK).await?;
        }
        Ok(())
    }

    /// Publishes one message to each queue and waits until all published messages are confirmed.
    pub async fn publish_to_each(
        &mut self,
        queues: &[String],
        body: &[u8],
    ) -> Result<(), AmqpError> {
        for queue in queues {
            self.publish("", queue, body);
        }
        self.all_confirmed().await
    }

    /// Sends pending frames and waits until all published messages are confirmed.
    pub async fn all_confirmed(&mut self) -> Result<(), AmqpError> {
        let mut refused = None;
        while !self.unconfirmed.is_empty() {
            let confirms = self.confirms().await?;
            refused = refused.or_else(|| confirms.iter().find(|confirm| !confirm.taken).copied());
        }
        refused.map_or(Ok(()), |confirm| Err(AmqpError::Refused { tag: confirm.tag }))
    }

    /// Queues a persistent message for the next write. Returns its tag. The exchange without a name routes by queue
    /// name.
    pub fn publish(&mut self, exchange: &str, key: &str, body: &[u8]) -> u64 {
        self.put(exchange, key, body, false)
    }

    fn put(&mut self, exchange: &str, key: &str, body: &[u8], mandatory: bool) -> u64 {
        self.method(CHANNEL, BASIC_PUBLISH, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, exchange);
            short_string(arguments, key);
            arguments.push(u8::from(mandatory));
        });
        put_content(&mut self.unsent, CHANNEL, body);
        self.published += 1;
        self.unconfirmed.insert(self.published);
        self.published
    }

    /// Like [`Channel::publish`], for a message that the server returns if it is unroutable.
    pub fn publish_mandatory(&mut self, exchange: &str, key: &str, body: &[u8]) -> u64 {
        self.put(exchange, key, body, true)
    }

    /// Takes the mandatory messages returned since the last call.
    pub fn returned(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.returned)
    }

    /// Deletes a queue; a missing queue is no error.
    pub async fn delete(&mut self, queue: &str) -> Result<(), AmqpError> {
        self.method(CHANNEL, QUEUE_DELETE, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, queue);
            arguments.push(0);
        });
        self.expect(QUEUE_DELETE_OK).await.map(drop)
    }

    /// Returns the number of published messages without a confirm.
    pub fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Sends pending frames and waits for the next confirm. Returns all messages that it covers. A single confirm may
    /// precede that of an earlier message; a cumulative one covers all tags up to its own.
    pub async fn confirms(&mut self) -> Result<Vec<Confirm>, AmqpError> {
        let (method, arguments) = self.expect_any(&[BASIC_ACK, BASIC_NACK]).await?;
        self.confirmed(method, &arguments)
    }

    /// Like [`Channel::confirms`]; `None` if none arrives within this time.
    pub async fn confirms_within(
        &mut self,
        wait: Duration,
    ) -> Result<Option<Vec<Confirm>>, AmqpError> {
        self.flush().await?;
        loop {
            match self.next_within(wait).await? {
                None => return Ok(None),
                Some(ServerMessage::Delivery(delivery)) => self.delivered.push_back(delivery),
                Some(ServerMessage::Returned(body)) => self.returned.push(body),
                Some(ServerMessage::Method(method, arguments)) => {
                    if method != BASIC_ACK && method != BASIC_NACK {
                        return Err(unexpected(method, &arguments, &[BASIC_ACK, BASIC_NACK]));
                    }
                    return self.confirmed(method, &arguments).map(Some);
                }
            }
        }
    }

    fn confirmed(&mut self, method: Method, arguments: &[u8]) -> Result<Vec<Confirm>, AmqpError> {
        let (tag, bits) = arguments
            .split_first_chunk()
            .and_then(|(tag, bits)| Some((u64::from_be_bytes(*tag), *bits.first()?)))
            .ok_or_else(|| AmqpError::malformed("a confirm is cut short"))?;
        let taken = method == BASIC_ACK;
        if bits & 1 == 1 {
            let later = self.unconfirmed.split_off(&tag.saturating_add(1));
            let covered = std::mem::replace(&mut self.unconfirmed, later);
            return Ok(covered.into_iter().map(|tag| Confirm { tag, taken }).collect());
        }
        match self.unconfirmed.remove(&tag) {
            true => Ok(vec![Confirm { tag, taken }]),
            false => {
                let what = format!("a confirm of message {tag}, which waits for none");
                Err(AmqpError::malformed(what))
            }
        }
    }

    /// Consumes a queue with at most `prefetch` unsettled messages; 0: no limit.
    pub async fn consume(&mut self, queue: &str, prefetch: u16) -> Result<(), AmqpError> {
        self.method(CHANNEL, BASIC_QOS, |arguments| {
            arguments.extend_from_slice(&[0; 4]);
            arguments.extend_from_slice(&prefetch.to_be_bytes());
            arguments.push(0);
        });
        self.expect(BASIC_QOS_OK).await?;
        self.method(CHANNEL, BASIC_CONSUME, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, queue);
            short_string(arguments, "");
            arguments.push(0);
            table(arguments, &[]);
        });
        self.expect(BASIC_CONSUME_OK).await.map(drop)
    }

    /// Sends pending frames and waits for the next message; `None` if none arrives within this time.
    pub async fn delivery(&mut self, wait: Duration) -> Result<Option<Delivery>, AmqpError> {
        if let Some(delivery) = self.delivered.pop_front() {
            return Ok(Some(delivery));
        }
        self.flush().await?;
        match self.next_within(wait).await? {
            None => Ok(None),
            Some(ServerMessage::Delivery(delivery)) => Ok(Some(delivery)),
            Some(ServerMessage::Returned(body)) => {
                self.returned.push(body);
                Ok(None)
            }
            Some(ServerMessage::Method(method, arguments)) => {
                Err(unexpected(method, &arguments, &[BASIC_DELIVER]))
            }
        }
    }

    /// Acknowledges a message with the next write; in a transaction, with its commit.
    pub fn ack(&mut self, tag: u64) {
        self.method(CHANNEL, BASIC_ACK, |arguments| {
            arguments.extend_from_slice(&tag.to_be_bytes());
            arguments.push(0);
        });
    }

    /// Requeues a message, or rejects it.
    pub fn nack(&mut self, tag: u64, requeue: bool) {
        self.method(CHANNEL, BASIC_NACK, |arguments| {
            arguments.extend_from_slice(&tag.to_be_bytes());
            arguments.push(u8::from(requeue) << 1);
        });
    }

    /// Makes the settles since the last commit durable before it returns.
    pub async fn commit(&mut self) -> Result<(), AmqpError> {
        self.method(CHANNEL, TX_COMMIT, |_| {});
        self.expect(TX_COMMIT_OK).await.map(drop)
    }

    /// Closes the connection.
    pub async fn close(mut self) -> Result<(), AmqpError> {
        const REPLY_SUCCESS: u16 = 200;
        self.method(0, CONNECTION_CLOSE, |arguments| {
            arguments.extend_from_slice(&REPLY_SUCCESS.to_be_bytes());
            short_string(arguments, "");
            arguments.extend_from_slice(&[0; 4]);
        });
        self.expect(CONNECTION_CLOSE_OK).await.map(drop)
    }

    /// Sends pending frames.
    pub async fn flush(&mut self) -> Result<(), AmqpError> {
        if !self.unsent.is_empty() {
            let written = self.transport.write(&self.unsent).await;
            // After an error the connection is unusable, so the frames are not written twice.
            self.unsent.clear();
            written?;
        }
        Ok(())
    }

    fn method(&mut self, channel: u16, method: Method, arguments: impl FnOnce(&mut Vec<u8>)) {
        put_method(&mut self.unsent, channel, method, arguments);
    }

    async fn expect(&mut self, wanted: Method) -> Result<Bytes, AmqpError> {
        self.expect_any(&[wanted]).await.map(|(_, arguments)| arguments)
    }

    /// Sends pending frames and reads the next method, which must be one of `wanted`. Returns it with its arguments.
    /// Messages that arrive before it are kept.
    async fn expect_any(&mut self, wanted: &[Method]) -> Result<(Method, Bytes), AmqpError> {
        self.flush().await?;
        loop {
            match self.incoming.next()? {
                None => self.transport.read(&mut self.incoming.arrived).await?,
                Some(ServerMessage::Delivery(delivery)) => self.delivered.push_back(delivery),
                Some(ServerMessage::Returned(body)) => self.returned.push(body),
                Some(ServerMessage::Method(method, arguments)) if wanted.contains(&method) => {
                    return Ok((method, arguments));
                }
                Some(ServerMessage::Method(method, arguments)) => {
                    return Err(unexpected(method, &arguments, wanted));
                }
            }
        }
    }

    /// Returns the next method or message; `None` if it does not begin to arrive within this time.
    async fn next_within(&mut self, wait: Duration) -> Result<Option<ServerMessage>, AmqpError> {
        if let Some(came) = self.incoming.next()? {
            return Ok(Some(came));
        }
        if !self.transport.read_within(&mut self.incoming.arrived, wait).await? {
            return Ok(None);
        }
        loop {
            if let Some(came) = self.incoming.next()? {
                return Ok(Some(came));
            }
            self.transport.read(&mut self.incoming.arrived).await?;
        }
    }
}
