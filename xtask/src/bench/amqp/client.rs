//! A small blocking AMQP 0-9-1 client: durable queues and persistent messages, confirmed. It shares
//! nothing with our gateway, so that a fault there is not met by the same fault here.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xCE;
const FRAME_BYTES_MAX: usize = 1 << 20;
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
const QUEUE_DECLARE: Method = (50, 10);
const QUEUE_DECLARE_OK: Method = (50, 11);
const BASIC_PUBLISH: Method = (60, 40);
const BASIC_ACK: Method = (60, 80);
const CONFIRM_SELECT: Method = (85, 10);
const CONFIRM_SELECT_OK: Method = (85, 11);

/// One connection with one channel, in confirm mode.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    /// Frames that are still to be sent.
    unsent: Vec<u8>,
    /// The delivery tag of the last message, and those that are not confirmed yet.
    published: u64,
    unconfirmed: BTreeSet<u64>,
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

impl Connection {
    /// Connects as guest to the default vhost; `patience` bounds every wait for the server.
    pub(super) fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let stream = BufReader::new(stream);
        let mut connection =
            Connection { stream, unsent: vec![], published: 0, unconfirmed: BTreeSet::new() };
        connection.unsent.extend_from_slice(b"AMQP\x00\x00\x09\x01");
        connection.shake_hands()?;
        connection.method(CHANNEL, CHANNEL_OPEN, |arguments| short_string(arguments, ""));
        connection.expect(CHANNEL_OPEN_OK)?;
        connection.method(CHANNEL, CONFIRM_SELECT, |arguments| arguments.push(0));
        connection.expect(CONFIRM_SELECT_OK)?;
        Ok(connection)
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        self.expect(CONNECTION_START)?;
        self.method(0, CONNECTION_START_OK, |arguments| {
            arguments.extend_from_slice(&0_u32.to_be_bytes());
            short_string(arguments, "PLAIN");
            long_string(arguments, "\0guest\0guest");
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
    pub(super) fn declare(&mut self, names: &[String], kind: &str) -> io::Result<()> {
        const DURABLE: u8 = 1 << 1;
        let mut table = Vec::new();
        short_string(&mut table, "x-queue-type");
        table.push(b'S');
        long_string(&mut table, kind);
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

    /// Publishes one message to each queue and waits until all are confirmed.
    pub(super) fn publish(&mut self, queues: &[String], body: &[u8]) -> io::Result<()> {
        for queue in queues {
            self.method(CHANNEL, BASIC_PUBLISH, |arguments| {
                arguments.extend_from_slice(&[0, 0]);
                short_string(arguments, "");
                short_string(arguments, queue);
                arguments.push(0);
            });
            let mut header = Vec::new();
            header.extend_from_slice(&BASIC.to_be_bytes());
            header.extend_from_slice(&[0, 0]);
            header.extend_from_slice(&(body.len() as u64).to_be_bytes());
            header.extend_from_slice(&DELIVERY_MODE.to_be_bytes());
            header.push(PERSISTENT);
            self.frame(HEADER, CHANNEL, &header);
            self.frame(BODY, CHANNEL, body);
            self.published += 1;
            self.unconfirmed.insert(self.published);
        }
        // A single confirm may come before that of an earlier message; one of several covers all
        // that are not later.
        while !self.unconfirmed.is_empty() {
            let arguments = self.expect(BASIC_ACK)?;
            let (tag, multiple) = arguments
                .split_first_chunk()
                .and_then(|(tag, bits)| Some((u64::from_be_bytes(*tag), bits.first()? & 1 == 1)))
                .ok_or_else(|| invalid("basic.ack is cut short"))?;
            if multiple {
                self.unconfirmed.retain(|&unconfirmed| unconfirmed > tag);
            } else if !self.unconfirmed.remove(&tag) {
                return Err(invalid(format!("a confirm of message {tag}, which waits for none")));
            }
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> io::Result<()> {
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

    /// Sends what is unsent and reads the next method, which must be this one; its arguments.
    fn expect(&mut self, wanted: Method) -> io::Result<Vec<u8>> {
        self.stream.get_mut().write_all(&self.unsent)?;
        self.unsent.clear();
        let mut payload = self.next_method()?;
        let method = (read_u16(&payload, 0)?, read_u16(&payload, 2)?);
        if method == wanted {
            return Ok(payload.split_off(4));
        }
        if method == CONNECTION_CLOSE || method == CHANNEL_CLOSE {
            let (code, text) = (read_u16(&payload, 4)?, payload.get(7..).unwrap_or_default());
            let text = String::from_utf8_lossy(text);
            return Err(io::Error::other(format!("the server closes with {code}: {text}")));
        }
        Err(invalid(format!("method {method:?} where {wanted:?} was expected")))
    }

    fn next_method(&mut self) -> io::Result<Vec<u8>> {
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
                METHOD => return Ok(payload),
                HEARTBEAT => {}
                other => return Err(invalid(format!("a frame of type {other}"))),
            }
        }
    }
}

fn read_u16(payload: &[u8], at: usize) -> io::Result<u16> {
    let bytes = payload.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or_else(|| invalid("a method is cut short"))
}
