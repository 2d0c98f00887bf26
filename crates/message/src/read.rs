//! From a record to a message.

use bytes::{BufMut, BytesMut};
use record::RecordView;
use values::{EncodedTable, Value, decode_value, put_short, put_with_length, shortened_text};

use crate::headers::{
    APP_ID, BLIND_COPIES, CLUSTER_ID, CONTENT_ENCODING, CONTENT_TYPE, CORRELATION_ID, DEATH,
    DELIVERY_MODE, ESCAPED, EXCHANGE, EXPIRATION, HEADER_TYPES, KEY_HEADER, MESSAGE_ID, PREFIX,
    PRIORITY, REPLY_TO, ROUTING_KEY, TIMESTAMP, TYPE, USER_ID, is_hidden,
};
use crate::properties::Properties;
use crate::text::{guessed_kind, value_of};

/// A record as a message: its routing and its properties. The table of its headers is in the buffer passed to
/// [`read_record`].
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub exchange: &'a str,
    /// `None`: the record was written through another protocol.
    pub routing_key: Option<&'a str>,
    /// All properties but the headers.
    pub properties: Properties<'a>,
    pub has_headers: bool,
}

impl<'a> Message<'a> {
    /// The properties with the headers that were read into `table`.
    pub fn properties_with<'b>(&self, table: &'b [u8]) -> Properties<'b>
    where
        'a: 'b,
    {
        let headers = self.has_headers.then_some(EncodedTable(table));
        Properties { headers, ..self.properties }
    }
}

/// Reads a record's headers once. `table` receives the message's own headers, encoded; headers of a delivery can be
/// appended to them.
pub fn read_record<'a>(view: &RecordView<'a>, table: &mut BytesMut) -> Message<'a> {
    table.clear();
    let mut message = Message {
        exchange: "",
        routing_key: None,
        properties: Properties::default(),
        has_headers: false,
    };
    let mut types: Option<&[u8]> = None;
    let mut own = 0;
    for header in view.headers.iter() {
        if header.key.starts_with(PREFIX) && !header.key.starts_with(ESCAPED) {
            if header.key == HEADER_TYPES {
                types = header.value;
            } else {
                read_property(header.key, header.value.unwrap_or_default(), &mut message);
            }
        } else if header.key.starts_with(DEATH) {
            let value = header.value.unwrap_or_default();
            put_field(header.key, guessed_kind(value), value, table);
        } else if !is_hidden(header.key) {
            own += 1;
        }
    }
    message.has_headers = own > 0 || types.is_some() || view.key.is_some() || !table.is_empty();
    if own > 0 {
        // A client that adds or drops a header does not update the list: then all headers are strings.
        let types = types.filter(|types| types.len() == own);
        put_own_headers(view, types, table);
    }
    if let Some(key) = view.key {
        put_field(KEY_HEADER, guessed_kind(key), key, table);
    }
    if message.routing_key.is_none() {
        message.properties.timestamp = u64::try_from(view.timestamp).ok().map(|ms| ms / 1000);
    }
    message
}

/// Routing keys of the message's BCC header, which is hidden.
pub fn blind_copies(view: &RecordView<'_>) -> Vec<String> {
    let encoded = view.headers.last(BLIND_COPIES).flatten();
    let decoded = encoded.and_then(|value| decode_value(b'A', value, 0).ok());
    let Some(Value::Array(keys)) = decoded else { return Vec::new() };
    keys.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn put_own_headers(view: &RecordView<'_>, types: Option<&[u8]>, table: &mut BytesMut) {
    let own = view.headers.iter().filter(|header| {
        !is_hidden(header.key)
            && (!header.key.starts_with(PREFIX) || header.key.starts_with(ESCAPED))
    });
    for (place, header) in own.enumerate() {
        let name = header.key.strip_prefix(ESCAPED).unwrap_or(header.key);
        let kind = types.and_then(|types| types.get(place)).copied();
        match (kind, header.value) {
            (_, None) => put_field(name, b'V', &[], table),
            (None, Some(value)) => put_field(name, guessed_kind(value), value, table),
            (Some(kind @ (b'S' | b'x')), Some(value)) => put_field(name, kind, value, table),
            (Some(kind @ (b'F' | b'A')), Some(value)) => {
                // The value may have been changed: malformed values must not reach a client.
                let sound = decode_value(kind, value, 0).is_ok();
                put_field(name, if sound { kind } else { b'x' }, value, table);
            }
            (Some(kind), Some(value)) => match value_of(kind, value) {
                Some(typed) => {
                    put_name(name, table);
                    typed.encode(table);
                }
                None => put_field(name, guessed_kind(value), value, table),
            },
        }
    }
}

/// Writes a header's name, which is text: other bytes are replaced, so that every client can read the table.
fn put_name(name: &[u8], table: &mut BytesMut) {
    put_short(String::from_utf8_lossy(name).as_bytes(), table);
}

/// A field whose value has a length prefix, or is void.
fn put_field(name: &[u8], kind: u8, value: &[u8], table: &mut BytesMut) {
    put_name(name, table);
    table.put_u8(kind);
    if kind != b'V' {
        put_with_length(table, |table| table.put_slice(value));
    }
}

/// Appends a header to those of a message.
pub fn put_header(name: &str, value: &Value, table: &mut BytesMut) {
    put_short(name.as_bytes(), table);
    value.encode(table);
}

fn read_property<'a>(name: &[u8], value: &'a [u8], message: &mut Message<'a>) {
    let properties = &mut message.properties;
    let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    let octet = || number().and_then(|number| u8::try_from(number).ok());
    // A record of another protocol may have names longer than a message's.
    let text = || shortened_text(std::str::from_utf8(value).unwrap_or_default());
    match name {
        EXCHANGE => message.exchange = text(),
        ROUTING_KEY => message.routing_key = Some(text()),
        CONTENT_TYPE => properties.content_type = Some(value),
        CONTENT_ENCODING => properties.content_encoding = Some(value),
        DELIVERY_MODE => properties.delivery_mode = octet(),
        PRIORITY => properties.priority = octet(),
        CORRELATION_ID => properties.correlation_id = Some(value),
        REPLY_TO => properties.reply_to = Some(value),
        EXPIRATION => properties.expiration = Some(value),
        MESSAGE_ID => properties.message_id = Some(value),
        TIMESTAMP => properties.timestamp = number(),
        TYPE => properties.kind = Some(value),
        USER_ID => properties.user_id = Some(value),
        APP_ID => properties.app_id = Some(value),
        CLUSTER_ID => properties.cluster_id = Some(value),
        _ => {}
    }
}
