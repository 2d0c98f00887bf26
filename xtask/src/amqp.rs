//! A small blocking AMQP 0-9-1 client: durable queues, persistent messages with confirms, and
//! consumers that settle in transactions, as `tx.commit-ok` is the one proof of a settle that AMQP
//! has. It shares nothing with our gateway, so that a fault there is not met by the same fault here.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xCE;
const FRAME_BYTES_MAX: usize = 1 << 20;
const BODY_BYTES_MAX: u64 = 16 << 20;
/// A body goes out in frames of what `connection.tune` allows, less what is around them.
const BODY_FRAME_BYTES: usize = (128 << 10) - 8;
/// The class `basic`, which a content header names.
const BASIC: u16 = 60;
const DELIVERY_MODE: u16 = 1 << 12;
const PERSISTENT: u8 = 2;
/// Everything but the handshake goes through one channel.
const CHANNEL: u16 = 1;

/// The class and the number of a method.
type Method = (u16, u16);
const CONNECTION_START: Method = (10, 10);
const CONNECTION_START_OK: Method = (10, 11);
const CONNECTION_TUNE: Method = (10, 30);
const CONNECTION_TUNE_OK: Method = (10, 31);
const CONNECTION_OPEN: Method = (10, 40);
const CONNECTION_OPEN_OK: Method = (10, 41);
const CONNECTION_CLOSE: Method = (10, 50);
const CONNECTION_CLOSE_OK: Method = (10, 51);
const CHANNEL_OPEN: Method = (20, 10);
const CHANNEL_OPEN_OK: Method = (20, 11);
const CHANNEL_CLOSE: Method = (20, 40);
const EXCHANGE_DECLARE: Method = (40, 10);
const EXCHANGE_DECLARE_OK: Method = (40, 11);
const QUEUE_BIND: Method = (50, 20);
const QUEUE_BIND_OK: Method = (50, 21);
const QUEUE_DECLARE: Method = (50, 10);
const QUEUE_DECLARE_OK: Method = (50, 11);
const BASIC_QOS: Method = (60, 10);
const BASIC_QOS_OK: Method = (60, 11);
const BASIC_CONSUME: Method = (60, 20);
const BASIC_CONSUME_OK: Method = (60, 21);
const BASIC_PUBLISH: Method = (60, 40);
const BASIC_DELIVER: Method = (60, 60);
const BASIC_ACK: Method = (60, 80);
const BASIC_NACK: Method = (60, 120);
const TX_SELECT: Method = (90, 10);
const TX_SELECT_OK: Method = (90, 11);
const TX_COMMIT: Method = (90, 20);
const TX_COMMIT_OK: Method = (90, 21);
const CONFIRM_SELECT: Method = (85, 10);
const CONFIRM_SELECT_OK: Method = (85, 11);

/// What a connection's one channel is for: the two exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Messages are confirmed.
    Confirms,
    /// Settles are done by [`Connection::commit`].
    Transactions,
}

/// A message that was delivered and waits to be settled.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) tag: u64,
    pub(crate) body: Bytes,
}

/// What the server said about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) tag: u64,
    /// False: it was refused.
    pub(crate) taken: bool,
}

/// One connection with one channel.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    patience: Duration,
    /// Frames that are still to be sent.
    unsent: Vec<u8>,
    /// The delivery tag of the last message, and those that are not confirmed yet.
    published: u64,
    unconfirmed: BTreeSet<u64>,
    /// Came while something else was waited for.
    delivered: VecDeque<Delivery>,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn short_string(payload: &mut Vec<u8>, text: &str) {
    payload.push(u8::try_from(text.len()).expect("a short string has at most 255 bytes"));
    payload.extend_from_slice(text.as_bytes());
}

fn long_string(payload: &mut Vec<u8>, text: &str) {
    payload.extend_from_slice(&(text.len() as u32).to_be_bytes());
    payload.extend_from_slice(text.as_bytes());
}

/// The value of an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Text(&'a str),
    Number(i64),
}

fn table(arguments: &[(&str, Argument<'_>)]) -> Vec<u8> {
    let mut table = Vec::new();
    for (name, value) in arguments {
        short_string(&mut table, name);
        match value {
            Argument::Text(text) => {
                table.push(b'S');
                long_string(&mut table, text);
            }
            Argument::Number(number) => {
                table.push(b'l');
                table.extend_from_slice(&number.to_be_bytes());
            }
        }
    }
    table
}

impl Connection {
    /// Connects as guest to the default vhost; `patience` bounds every wait for the server.
    pub(crate) fn open(
        address: SocketAddr,
        patience: Duration,
        mode: Mode,
    ) -> io::Result<Connection> {
        Self::open_as(address, patience, mode, ["guest", "guest"])
    }

    /// As somebody with a name and a password.
    pub(crate) fn open_as(
        address: SocketAddr,
        patience: Duration,
        mode: Mode,
        user: [&str; 2],
    ) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut connection = Connection {
            stream: BufReader::with_capacity(64 << 10, stream),
            patience,
            unsent: vec![],
            published: 0,
            unconfirmed: BTreeSet::new(),
            delivered: VecDeque::new(),
        };
        connection.unsent.extend_from_slice(b"AMQP\x00\x00\x09\x01");
        connection.shake_hands(user)?;
        connection.method(CHANNEL, CHANNEL_OPEN, |arguments| short_string(arguments, ""));
        connection.expect(CHANNEL_OPEN_OK)?;
        match mode {
            Mode::Confirms => {
                connection.method(CHANNEL, CONFIRM_SELECT, |arguments| arguments.push(0));
                connection.expect(CONFIRM_SELECT_OK)?;
            }
            Mode::Transactions => {
                connection.method(CHANNEL, TX_SELECT, |_| {});
                connection.expect(TX_SELECT_OK)?;
            }
        }
        Ok(connection)
    }

    fn shake_hands(&mut self, [name, password]: [&str; 2]) -> io::Result<()> {
        self.expect(CONNECTION_START)?;
        self.method(0, CONNECTION_START_OK, |arguments| {
            arguments.extend_from_slice(&0_u32.to_be_bytes());
            short_string(arguments, "PLAIN");
            long_string(arguments, &format!("\0{name}\0{password}"));
            short_string(arguments, "en_US");
        });
        let limits = self.expect(CONNECTION_TUNE)?;
        let without_heartbeat = limits
            .get(..6)
            .map(|limits| [limits, &[0, 0]].concat())
            .ok_or_else(|| invalid("connection.tune is cut short"))?;
        self.method(0, CONNECTION_TUNE_OK, |arguments| arguments.extend(without_heartbeat));
        self.method(0, CONNECTION_OPEN, |arguments| {
            short_string(arguments, "/");
            arguments.extend_from_slice(&[0, 0]);
        });
        self.expect(CONNECTION_OPEN_OK).map(drop)
    }

    /// Declares durable queues of this `x-queue-type`.
    pub(crate) fn declare(&mut self, names: &[String], kind: &str) -> io::Result<()> {
        self.declare_with(names, &[("x-queue-type", Argument::Text(kind))])
    }

    /// Declares durable queues with these arguments.
    pub(crate) fn declare_with(
        &mut self,
        names: &[String],
        arguments: &[(&str, Argument<'_>)],
    ) -> io::Result<()> {
        const DURABLE: u8 = 1 << 1;
        let table = table(arguments);
        for name in names {
            self.method(CHANNEL, QUEUE_DECLARE, |arguments| {
                arguments.extend_from_slice(&[0, 0]);
                short_string(arguments, name);
                arguments.push(DURABLE);
                arguments.extend_from_slice(&(table.len() as u32).to_be_bytes());
                arguments.extend_from_slice(&table);
            });
        }
        for _ in names {
            self.expect(QUEUE_DECLARE_OK)?;
        }
        Ok(())
    }

    /// How many messages are ready in a queue.
    pub(crate) fn ready(&mut self, queue: &str) -> io::Result<u32> {
        const PASSIVE: u8 = 1;
        self.method(CHANNEL, QUEUE_DECLARE, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, queue);
            arguments.push(PASSIVE);
            arguments.extend_from_slice(&[0; 4]);
        });
        let answer = self.expect(QUEUE_DECLARE_OK)?;
        let name_bytes = usize::from(answer.first().copied().unwrap_or_default());
        let count = answer.get(1 + name_bytes..).and_then(|rest| rest.first_chunk());
        count
            .map(|count| u32::from_be_bytes(*count))
            .ok_or_else(|| invalid("queue.declare-ok is cut short"))
    }

    /// Declares a durable fanout exchange and binds these queues to it.
    pub(crate) fn fan_out(&mut self, exchange: &str, queues: &[String]) -> io::Result<()> {
        const DURABLE: u8 = 1 << 1;
        self.method(CHANNEL, EXCHANGE_DECLARE, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, exchange);
            short_string(arguments, "fanout");
            arguments.push(DURABLE);
            arguments.extend_from_slice(&[0; 4]);
        });
        self.expect(EXCHANGE_DECLARE_OK)?;
        for queue in queues {
            self.method(CHANNEL, QUEUE_BIND, |arguments| {
                arguments.extend_from_slice(&[0, 0]);
                short_string(arguments, queue);
                short_string(arguments, exchange);
                short_string(arguments, "");
                arguments.push(0);
                arguments.extend_from_slice(&[0; 4]);
            });
        }
        for _ in queues {
            self.expect(QUEUE_BIND_OK)?;
        }
        Ok(())
    }

    /// Publishes one message to each queue and waits until all are confirmed.
    pub(crate) fn publish_to_each(&mut self, queues: &[String], body: &[u8]) -> io::Result<()> {
        for queue in queues {
            self.publish(queue, body);
        }
        while !self.unconfirmed.is_empty() {
            if let Some(refused) = self.confirms()?.iter().find(|confirm| !confirm.taken) {
                return Err(io::Error::other(format!("message {} was refused", refused.tag)));
            }
        }
        Ok(())
    }

    /// Publishes a persistent message to a queue, with the next thing that is sent; its tag.
    pub(crate) fn publish(&mut self, queue: &str, body: &[u8]) -> u64 {
        self.publish_to("", queue, body)
    }

    /// As [`Connection::publish`], to an exchange.
    pub(crate) fn publish_to(&mut self, exchange: &str, key: &str, body: &[u8]) -> u64 {
        self.method(CHANNEL, BASIC_PUBLISH, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, exchange);
            short_string(arguments, key);
            arguments.push(0);
        });
        let mut header = Vec::new();
        header.extend_from_slice(&BASIC.to_be_bytes());
        header.extend_from_slice(&[0, 0]);
        header.extend_from_slice(&(body.len() as u64).to_be_bytes());
        header.extend_from_slice(&DELIVERY_MODE.to_be_bytes());
        header.push(PERSISTENT);
        self.frame(HEADER, CHANNEL, &header);
        for part in body.chunks(BODY_FRAME_BYTES) {
            self.frame(BODY, CHANNEL, part);
        }
        self.published += 1;
        self.unconfirmed.insert(self.published);
        self.published
    }

    pub(crate) fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Sends what is unsent and waits for the next confirm; all that it covers. A single one may
    /// come before that of an earlier message; one of several covers all that are not later.
    pub(crate) fn confirms(&mut self) -> io::Result<Vec<Confirm>> {
        let (method, arguments) = self.expect_any(&[BASIC_ACK, BASIC_NACK])?;
        let (tag, bits) = arguments
            .split_first_chunk()
            .and_then(|(tag, bits)| Some((u64::from_be_bytes(*tag), *bits.first()?)))
            .ok_or_else(|| invalid("a confirm is cut short"))?;
        let taken = method == BASIC_ACK;
        if bits & 1 == 1 {
            let later = self.unconfirmed.split_off(&(tag + 1));
            let covered = std::mem::replace(&mut self.unconfirmed, later);
            return Ok(covered.into_iter().map(|tag| Confirm { tag, taken }).collect());
        }
        match self.unconfirmed.remove(&tag) {
            true => Ok(vec![Confirm { tag, taken }]),
            false => Err(invalid(format!("a confirm of message {tag}, which waits for none"))),
        }
    }

    /// As [`Connection::confirms`]; `None` if none begins to come within this time.
    pub(crate) fn confirms_within(&mut self, wait: Duration) -> io::Result<Option<Vec<Confirm>>> {
        self.flush()?;
        match self.begins_to_come(wait)? {
            true => self.confirms().map(Some),
            false => Ok(None),
        }
    }

    /// Consumes a queue, with so many messages unsettled at most; 0 is as many as the server gives.
    pub(crate) fn consume(&mut self, queue: &str, prefetch: u16) -> io::Result<()> {
        self.method(CHANNEL, BASIC_QOS, |arguments| {
            arguments.extend_from_slice(&[0; 4]);
            arguments.extend_from_slice(&prefetch.to_be_bytes());
            arguments.push(0);
        });
        self.expect(BASIC_QOS_OK)?;
        self.method(CHANNEL, BASIC_CONSUME, |arguments| {
            arguments.extend_from_slice(&[0, 0]);
            short_string(arguments, queue);
            short_string(arguments, "");
            arguments.push(0);
            arguments.extend_from_slice(&[0; 4]);
        });
        self.expect(BASIC_CONSUME_OK).map(drop)
    }

    /// The next message; `None` if none begins to come within this time.
    pub(crate) fn delivery(&mut self, wait: Duration) -> io::Result<Option<Delivery>> {
        if let Some(delivery) = self.delivered.pop_front() {
            return Ok(Some(delivery));
        }
        self.flush()?;
        if !self.begins_to_come(wait)? {
            return Ok(None);
        }
        let (method, arguments) = self.next_method()?;
        match method {
            BASIC_DELIVER => self.rest_of_delivery(&arguments).map(Some),
            other => Err(unexpected(other, &arguments, &[BASIC_DELIVER])),
        }
    }

    fn begins_to_come(&mut self, wait: Duration) -> io::Result<bool> {
        // A timeout of zero would be none.
        self.stream.get_ref().set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let found = self.stream.fill_buf().map(|bytes| !bytes.is_empty());
        self.stream.get_ref().set_read_timeout(Some(self.patience))?;
        match found {
            Ok(true) => Ok(true),
            Ok(false) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Settles with the next thing that is sent; of a transaction, with its commit.
    pub(crate) fn ack(&mut self, tag: u64) {
        self.method(CHANNEL, BASIC_ACK, |arguments| {
            arguments.extend_from_slice(&tag.to_be_bytes());
            arguments.push(0);
        });
    }

    /// Gives a message back, or gives it up.
    pub(crate) fn nack(&mut self, tag: u64, requeue: bool) {
        self.method(CHANNEL, BASIC_NACK, |arguments| {
            arguments.extend_from_slice(&tag.to_be_bytes());
            arguments.push(u8::from(requeue) << 1);
        });
    }

    /// What was settled since the last commit is durable when this returns.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        self.method(CHANNEL, TX_COMMIT, |_| {});
        self.expect(TX_COMMIT_OK).map(drop)
    }

    pub(crate) fn close(mut self) -> io::Result<()> {
        const REPLY_SUCCESS: u16 = 200;
        self.method(0, CONNECTION_CLOSE, |arguments| {
            arguments.extend_from_slice(&REPLY_SUCCESS.to_be_bytes());
            short_string(arguments, "");
            arguments.extend_from_slice(&[0; 4]);
        });
        self.expect(CONNECTION_CLOSE_OK).map(drop)
    }

    fn method(
        &mut self,
        channel: u16,
        (class, method): Method,
        arguments: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
        arguments(&mut payload);
        self.frame(METHOD, channel, &payload);
    }

    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        self.unsent.push(kind);
        self.unsent.extend_from_slice(&channel.to_be_bytes());
        self.unsent.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        self.unsent.extend_from_slice(payload);
        self.unsent.push(FRAME_END);
    }

    /// Sends what is unsent.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    fn expect(&mut self, wanted: Method) -> io::Result<Vec<u8>> {
        self.expect_any(&[wanted]).map(|(_, arguments)| arguments)
    }

    /// Sends what is unsent and reads the next method, which must be one of these, with its
    /// arguments. Messages that come before it are kept.
    fn expect_any(&mut self, wanted: &[Method]) -> io::Result<(Method, Vec<u8>)> {
        self.flush()?;
        loop {
            let (method, arguments) = self.next_method()?;
            if method == BASIC_DELIVER {
                let delivery = self.rest_of_delivery(&arguments)?;
                self.delivered.push_back(delivery);
            } else if wanted.contains(&method) {
                return Ok((method, arguments));
            } else {
                return Err(unexpected(method, &arguments, wanted));
            }
        }
    }

    fn next_method(&mut self) -> io::Result<(Method, Vec<u8>)> {
        let mut payload = self.next_frame(METHOD)?;
        let method = (read_u16(&payload, 0)?, read_u16(&payload, 2)?);
        Ok((method, payload.split_off(4)))
    }

    /// The content of a `basic.deliver`: header and body.
    fn rest_of_delivery(&mut self, arguments: &[u8]) -> io::Result<Delivery> {
        let cut = || invalid("basic.deliver is cut short");
        let (&label_bytes, rest) = arguments.split_first().ok_or_else(cut)?;
        let tag = rest.get(usize::from(label_bytes)..).and_then(|rest| rest.first_chunk());
        let tag = u64::from_be_bytes(*tag.ok_or_else(cut)?);
        let header = self.next_frame(HEADER)?;
        let bytes = header.get(4..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
        let bytes = u64::from_be_bytes(*bytes);
        if bytes > BODY_BYTES_MAX {
            return Err(invalid(format!("a message of {bytes} bytes")));
        }
        let mut body = Vec::with_capacity(bytes as usize);
        while (body.len() as u64) < bytes {
            body.extend_from_slice(&self.next_frame(BODY)?);
        }
        Ok(Delivery { tag, body: body.into() })
    }

    fn next_frame(&mut self, wanted: u8) -> io::Result<Vec<u8>> {
        loop {
            let mut header = [0; 7];
            self.stream.read_exact(&mut header)?;
            let length = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(invalid(format!("a frame of {length} bytes")));
            }
            let mut payload = vec![0; length + 1];
            self.stream.read_exact(&mut payload)?;
            if payload.pop() != Some(FRAME_END) {
                return Err(invalid("a frame without its end"));
            }
            match header[0] {
                HEARTBEAT => {}
                kind if kind == wanted => return Ok(payload),
                other => return Err(invalid(format!("a frame of type {other}"))),
            }
        }
    }
}

/// Another method than was expected; most often the server closes, and says why.
fn unexpected(method: Method, arguments: &[u8], wanted: &[Method]) -> io::Error {
    if method == CONNECTION_CLOSE || method == CHANNEL_CLOSE {
        let code = read_u16(arguments, 0).unwrap_or_default();
        let length = usize::from(arguments.get(2).copied().unwrap_or_default());
        let text = arguments.get(3..3 + length).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        return io::Error::other(format!("the server closes with {code}: {text}"));
    }
    invalid(format!("method {method:?} where one of {wanted:?} was expected"))
}

fn read_u16(payload: &[u8], at: usize) -> io::Result<u16> {
    let bytes = payload.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or_else(|| invalid("a method is cut short"))
}
