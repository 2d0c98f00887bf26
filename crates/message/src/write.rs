//! From a message to a record.

use record::EncodedHeaders;
use values::{EncodedTable, Malformed, RawField, RawFields};

use crate::headers::{
    APP_ID, BCC, BLIND_COPIES, CLUSTER_ID, CONTENT_ENCODING, CONTENT_TYPE, CORRELATION_ID, DELAY,
    DELIVERY_MODE, ESCAPED, EXCHANGE, EXPIRATION, HEADER_TYPES, KEY_HEADER, MESSAGE_ID, PREFIX,
    PRIORITY, REPLY_TO, ROUTING_KEY, TIMESTAMP, TYPE, USER_ID, is_field, is_hidden,
};
use crate::properties::Properties;
use crate::text::{Text, guessed_kind, text_of};

/// Writes a message's properties as record headers; `deferred`: the message is delayed. Returns the record's key, if
/// a header sets one.
pub fn write_record_headers<'a>(
    exchange: &str,
    routing_key: &str,
    properties: &Properties<'a>,
    deferred: bool,
    out: &mut EncodedHeaders,
) -> Result<Option<&'a [u8]>, Malformed> {
    if !exchange.is_empty() {
        out.push(EXCHANGE, Some(exchange.as_bytes()));
    }
    // Always present: it distinguishes a message from a record of another protocol.
    out.push(ROUTING_KEY, Some(routing_key.as_bytes()));
    for (name, value) in [
        (CONTENT_TYPE, properties.content_type),
        (CONTENT_ENCODING, properties.content_encoding),
        (CORRELATION_ID, properties.correlation_id),
        (REPLY_TO, properties.reply_to),
        (EXPIRATION, properties.expiration),
        (MESSAGE_ID, properties.message_id),
        (TYPE, properties.kind),
        (USER_ID, properties.user_id),
        (APP_ID, properties.app_id),
        (CLUSTER_ID, properties.cluster_id),
    ] {
        if value.is_some() {
            out.push(name, value);
        }
    }
    for (name, value) in [
        (DELIVERY_MODE, properties.delivery_mode.map(u64::from)),
        (PRIORITY, properties.priority.map(u64::from)),
        (TIMESTAMP, properties.timestamp),
    ] {
        if let Some(number) = value {
            out.push(name, Some(Text::of(number).as_bytes()));
        }
    }
    match properties.headers {
        Some(table) => write_table(table, deferred, out),
        None => Ok(None),
    }
}

fn write_table<'a>(
    table: EncodedTable<'a>,
    deferred: bool,
    out: &mut EncodedHeaders,
) -> Result<Option<&'a [u8]>, Malformed> {
    let mut key = None;
    let mut types = Types::default();
    for field in RawFields::new(table.0) {
        let field = field?;
        if field.name == BCC {
            if field.kind == b'A' {
                out.push(BLIND_COPIES, Some(field.value));
            }
            continue;
        }
        if field.name == KEY_HEADER && matches!(field.kind, b'S' | b'x') {
            key = Some(field.value);
            continue;
        }
        if deferred
            && field.name == DELAY
            && let Some(delay) = field.decode()?.as_integer()
        {
            types.push(b'l', false);
            out.push(DELAY, Some(delay.saturating_neg().to_string().as_bytes()));
            continue;
        }
        // Fields of the broker are not among the message's headers when it is read.
        if !is_field(field.name) {
            types.push(field.kind, guessed_kind(field.value) == b'S');
        }
        write_field(&field, out)?;
    }
    // Without a list all values are strings. An empty list is kept, to distinguish an empty table from none.
    if types.has_others || types.is_empty() {
        out.push(HEADER_TYPES, Some(types.as_bytes()));
    }
    Ok(key)
}

fn write_field(field: &RawField<'_>, out: &mut EncodedHeaders) -> Result<(), Malformed> {
    let escaped;
    let is_reserved = is_hidden(field.name) && !is_field(field.name);
    let name = if field.name.starts_with(PREFIX) || is_reserved {
        escaped = [ESCAPED, field.name].concat();
        &escaped[..]
    } else {
        field.name
    };
    match field.kind {
        b'S' | b'x' | b'F' | b'A' => out.push(name, Some(field.value)),
        b'V' => out.push(name, None),
        _ => {
            let text = text_of(&field.decode()?);
            out.push(name, Some(text.as_bytes()));
        }
    }
    Ok(())
}

/// Type letters of a message's headers; most messages have few.
#[derive(Default)]
struct Types {
    few: [u8; 32],
    count: usize,
    many: Vec<u8>,
    has_others: bool,
}

impl Types {
    /// A string need not be UTF-8; without a recorded type such a string would be read as bytes.
    fn push(&mut self, kind: u8, is_text: bool) {
        self.has_others |= kind != b'S' || !is_text;
        if self.count < self.few.len() {
            self.few[self.count] = kind;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(kind);
        }
        self.count += 1;
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn as_bytes(&self) -> &[u8] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }
}
