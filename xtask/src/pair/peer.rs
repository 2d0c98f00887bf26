//! One connection to a broker: sends valid and invalid frames as instructed, and returns what it receives.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::methods::{self, Kind, Method, WITHOUT_MEANING};
use super::value::{
    Reader, Table, Value, put_long_text, put_short_text, put_table, show_table, show_text,
};

pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const HEARTBEAT: u8 = 8;
pub(super) const FRAME_END: u8 = 0xCE;
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Longer than a broker takes for any expected reply.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Properties of a message in the order of their flags, with their types on the wire.
const PROPERTIES: [(&str, Property); 14] = [
    ("content_type", Property::Text),
    ("content_encoding", Property::Text),
    ("headers", Property::Table),
    ("delivery_mode", Property::Octet),
    ("priority", Property::Octet),
    ("correlation_id", Property::Text),
    ("reply_to", Property::Text),
    ("expiration", Property::Text),
    ("message_id", Property::Text),
    ("timestamp", Property::Time),
    ("type", Property::Text),
    ("user_id", Property::Text),
    ("app_id", Property::Text),
    ("cluster_id", Property::Text),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Text,
    Octet,
    Time,
    Table,
}

/// A received frame, or the end of the connection.
#[derive(Debug)]
pub(super) enum Event {
    Method(ReceivedMethod),
    Heartbeat,
    /// Eight bytes instead of a frame: the protocol version that the server offers.
    ProtocolHeader([u8; 8]),
    /// The server closed its side in an orderly way.
    End,
    /// The connection broke without an orderly close.
    Reset,
    /// Timeout.
    Nothing,
}

/// A method with its content, if it has one.
#[derive(Debug)]
pub(super) struct ReceivedMethod {
    pub(super) channel: u16,
    pub(super) method: &'static Method,
    pub(super) arguments: Vec<(&'static str, Argument)>,
    content: Option<Content>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Argument {
    Bit(bool),
    Number(u64),
    Text(Vec<u8>),
    Table(Table),
}

#[derive(Debug, Default)]
struct Content {
    properties: Table,
    missing: u64,
    body: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    unread: Vec<u8>,
    /// Methods whose content is incomplete, by channel.
    partial: HashMap<u16, (ReceivedMethod, bool)>,
    /// The largest frame that the server accepts.
    pub(super) frame_max: usize,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

impl Peer {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Peer> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Peer { stream, unread: vec![], partial: HashMap::new(), frame_max: 128 << 10 })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.stream.write_all(bytes) {
            // The server may have closed the connection; its earlier frames can still be read.
            Err(error) if is_reset(&error) => Ok(()),
            other => other,
        }
    }

    /// Closes the sending side; the receiving side stays open.
    pub(super) fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(super) fn method(
        &mut self,
        channel: u16,
        method: &Method,
        arguments: &[(String, Argument)],
    ) -> Result<(), String> {
        let payload = encode(method, arguments)?;
        self.send(&frame(METHOD, channel, &payload)).map_err(|error| error.to_string())
    }

    /// A content header and bodies, in frames of the negotiated size.
    pub(super) fn content(
        &mut self,
        channel: u16,
        properties: &Table,
        body: &[u8],
    ) -> Result<(), String> {
        let mut header = vec![0, 60, 0, 0];
        header.extend_from_slice(&(body.len() as u64).to_be_bytes());
        put_properties(&mut header, properties)?;
        let mut bytes = frame(HEADER, channel, &header);
        for part in body.chunks(self.frame_max - 8) {
            bytes.extend_from_slice(&frame(BODY, channel, part));
        }
        self.send(&bytes).map_err(|error| error.to_string())
    }

    /// The next event, within a time limit.
    pub(super) fn next(&mut self, within: Duration) -> io::Result<Event> {
        let until = Instant::now() + within;
        loop {
            if let Some(event) = self.take_event()? {
                return Ok(event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Event::Nothing);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Event::End),
                Ok(count) => self.unread.extend_from_slice(&chunk[..count]),
                Err(error) if is_reset(&error) => return Ok(Event::Reset),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Ok(Event::Nothing),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the first complete event from the unread bytes.
    fn take_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if self.unread.starts_with(b"AMQP") && self.unread.len() >= 8 {
                let header = self.unread.drain(..8).collect::<Vec<_>>();
                return Ok(Some(Event::ProtocolHeader(header.try_into().expect("eight bytes"))));
            }
            let Some((kind, channel, payload)) = self.take_frame()? else { return Ok(None) };
            if kind == HEARTBEAT {
                return Ok(Some(Event::Heartbeat));
            }
            if let Some(received) = self.frame(kind, channel, &payload)? {
                return Ok(Some(Event::Method(received)));
            }
        }
    }

    fn take_frame(&mut self) -> io::Result<Option<(u8, u16, Vec<u8>)>> {
        let Some(&[kind, c0, c1, s0, s1, s2, s3]) = self.unread.first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([s0, s1, s2, s3]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        if self.unread.len() < length + 8 {
            return Ok(None);
        }
        let bytes: Vec<u8> = self.unread.drain(..length + 8).collect();
        if bytes[length + 7] != FRAME_END {
            return Err(invalid("a frame without its end"));
        }
        Ok(Some((kind, u16::from_be_bytes([c0, c1]), bytes[7..length + 7].to_vec())))
    }

    /// Adds a frame; returns the method that it completes.
    fn frame(
        &mut self,
        kind: u8,
        channel: u16,
        payload: &[u8],
    ) -> io::Result<Option<ReceivedMethod>> {
        let received = match kind {
            METHOD => {
                let received = decode(channel, payload)?;
                if !received.method.has_content {
                    return Ok(Some(received));
                }
                (received, false)
            }
            HEADER | BODY => {
                let partial = self.partial.remove(&channel);
                let (mut received, has_header) =
                    partial.ok_or_else(|| invalid("a content without a method"))?;
                let content = received.content.get_or_insert_default();
                if kind == HEADER {
                    let mut reader = Reader(payload);
                    reader.bytes(4)?;
                    content.missing = reader.u64()?;
                    content.properties = properties(&mut reader)?;
                } else if has_header {
                    content.missing = content.missing.saturating_sub(payload.len() as u64);
                    content.body.extend_from_slice(payload);
                } else {
                    return Err(invalid("a body before its header"));
                }
                if content.missing == 0 {
                    return Ok(Some(received));
                }
                (received, true)
            }
            other => return Err(invalid(format!("a frame of type {other}"))),
        };
        self.partial.insert(channel, received);
        Ok(None)
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

pub(super) fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&channel.to_be_bytes());
    put_long_text(&mut bytes, payload);
    bytes.push(FRAME_END);
    bytes
}

fn encode(method: &Method, arguments: &[(String, Argument)]) -> Result<Vec<u8>, String> {
    if let Some((name, _)) =
        arguments.iter().find(|(name, _)| method.arguments.iter().all(|(known, _)| known != name))
    {
        return Err(format!("{} has no argument '{name}'", method.name));
    }
    let mut payload = vec![];
    payload.extend_from_slice(&method.class.to_be_bytes());
    payload.extend_from_slice(&method.number.to_be_bytes());
    let mut bits = 0;
    for (name, kind) in &method.arguments {
        let given = arguments.iter().find(|(given, _)| given == name).map(|(_, given)| given);
        if *kind == Kind::Bit {
            if bits % 8 == 0 {
                payload.push(0);
            }
            if matches!(given, Some(Argument::Bit(true))) {
                *payload.last_mut().expect("an octet for the bits") |= 1 << (bits % 8);
            }
            bits += 1;
            continue;
        }
        bits = 0;
        let number = match given {
            Some(Argument::Number(number)) => *number,
            _ => 0,
        };
        let text = match given {
            Some(Argument::Text(text)) => &text[..],
            _ => &[],
        };
        match kind {
            Kind::Bit => {}
            Kind::Octet => payload.push(number as u8),
            Kind::Short => payload.extend_from_slice(&(number as u16).to_be_bytes()),
            Kind::Long => payload.extend_from_slice(&(number as u32).to_be_bytes()),
            Kind::LongLong => payload.extend_from_slice(&number.to_be_bytes()),
            Kind::ShortText => put_short_text(&mut payload, text),
            Kind::LongText => put_long_text(&mut payload, text),
            Kind::Table => match given {
                Some(Argument::Table(table)) => put_table(&mut payload, table),
                _ => put_table(&mut payload, &vec![]),
            },
        }
    }
    Ok(payload)
}

fn decode(channel: u16, payload: &[u8]) -> io::Result<ReceivedMethod> {
    let mut reader = Reader(payload);
    let (class, number) = (reader.u16()?, reader.u16()?);
    let method = methods::numbered(class, number)
        .ok_or_else(|| invalid(format!("class {class} has no method {number}")))?;
    let mut arguments = vec![];
    let (mut bits, mut octet) = (0, 0);
    for &(name, kind) in &method.arguments {
        if kind == Kind::Bit {
            if bits % 8 == 0 {
                octet = reader.u8()?;
            }
            arguments.push((name, Argument::Bit(octet >> (bits % 8) & 1 == 1)));
            bits += 1;
            continue;
        }
        bits = 0;
        let argument = match kind {
            Kind::Bit | Kind::Octet => Argument::Number(reader.u8()?.into()),
            Kind::Short => Argument::Number(reader.u16()?.into()),
            Kind::Long => Argument::Number(reader.u32()?.into()),
            Kind::LongLong => Argument::Number(reader.u64()?),
            Kind::ShortText => Argument::Text(reader.short_text()?),
            Kind::LongText => Argument::Text(reader.long_text()?),
            Kind::Table => Argument::Table(reader.table()?),
        };
        arguments.push((name, argument));
    }
    if !reader.0.is_empty() {
        return Err(invalid(format!("{} has {} bytes too many", method.name, reader.0.len())));
    }
    Ok(ReceivedMethod { channel, method, arguments, content: None })
}

fn put_properties(out: &mut Vec<u8>, properties: &Table) -> Result<(), String> {
    let mut flags = 0_u16;
    let mut values = vec![];
    for (place, (name, kind)) in PROPERTIES.iter().enumerate() {
        let Some((_, value)) = properties.iter().find(|(given, _)| given == name) else {
            continue;
        };
        flags |= 1 << (15 - place);
        match (kind, value) {
            (Property::Text, Value::Text(text)) => put_short_text(&mut values, text),
            (Property::Octet, Value::I32(number)) => values.push(*number as u8),
            (Property::Time, Value::Time(at)) => values.extend_from_slice(&at.to_be_bytes()),
            (Property::Table, Value::Table(table)) => put_table(&mut values, table),
            _ => return Err(format!("property {name} has a value of the wrong type")),
        }
    }
    if let Some((name, _)) =
        properties.iter().find(|(name, _)| PROPERTIES.iter().all(|(known, _)| known != name))
    {
        return Err(format!("there is no property '{name}'"));
    }
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&values);
    Ok(())
}

fn properties(reader: &mut Reader<'_>) -> io::Result<Table> {
    let flags = reader.u16()?;
    let mut properties = vec![];
    for (place, (name, kind)) in PROPERTIES.iter().enumerate() {
        if flags >> (15 - place) & 1 == 0 {
            continue;
        }
        let value = match kind {
            Property::Text => Value::Text(reader.short_text()?),
            Property::Octet => Value::I32(reader.u8()?.into()),
            Property::Time => Value::Time(reader.u64()?),
            Property::Table => Value::Table(reader.table()?),
        };
        properties.push(((*name).to_owned(), value));
    }
    Ok(properties)
}

impl ReceivedMethod {
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.arguments.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
            Argument::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        })
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.arguments.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
            Argument::Number(number) => Some(*number),
            _ => None,
        })
    }

    /// The method as a line of a transcript.
    pub(super) fn show(&self) -> String {
        let mut line = self.method.name.clone();
        for (name, argument) in &self.arguments {
            if WITHOUT_MEANING.contains(name) {
                continue;
            }
            match argument {
                Argument::Bit(false) => {}
                Argument::Bit(true) => {
                    let _ = write!(line, " {name}");
                }
                Argument::Number(number) => {
                    let _ = write!(line, " {name}={number}");
                }
                Argument::Text(text) => {
                    let _ = write!(line, " {name}=");
                    show_text(text, &mut line);
                }
                Argument::Table(table) => {
                    let _ = write!(line, " {name}=");
                    show_table(table, &mut line);
                }
            }
        }
        if let Some(content) = &self.content {
            line.push_str(" properties=");
            show_table(&content.properties, &mut line);
            line.push_str(" body=");
            match content.body.len() {
                ..=200 => show_text(&content.body, &mut line),
                bytes => {
                    let _ = write!(line, "({bytes} bytes)");
                }
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_method_equals_the_encoded_one() {
        let declare = methods::named("queue.declare").expect("is one");
        let arguments = [
            ("queue".to_owned(), Argument::Text(b"q".to_vec())),
            ("durable".to_owned(), Argument::Bit(true)),
            ("no_wait".to_owned(), Argument::Bit(true)),
            ("arguments".to_owned(), Argument::Table(vec![("x".to_owned(), Value::I32(1))])),
        ];
        let payload = encode(declare, &arguments).expect("fits");
        let received = decode(3, &payload).expect("is one");
        assert_eq!(received.show(), "queue.declare queue=\"q\" durable no_wait arguments={x: 1}");
        assert!(encode(declare, &[("quue".to_owned(), Argument::Bit(true))]).is_err());
    }

    #[test]
    fn decoded_properties_equal_the_encoded_ones() {
        let table = vec![
            ("headers".to_owned(), Value::Table(vec![("a".to_owned(), Value::Void)])),
            ("priority".to_owned(), Value::I32(5)),
            ("timestamp".to_owned(), Value::Time(7)),
            ("app_id".to_owned(), Value::Text(b"me".to_vec())),
        ];
        let mut bytes = vec![];
        put_properties(&mut bytes, &table).expect("are some");
        assert_eq!(properties(&mut Reader(&bytes)).expect("are some"), table);
        assert!(put_properties(&mut bytes, &vec![("prio".to_owned(), Value::Void)]).is_err());
    }
}
