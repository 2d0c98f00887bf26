//! The properties of a basic message: flags for those that are present, then their values.
//!
//! They are read as views into the header frame. Text properties are not checked for UTF-8: many applications keep
//! raw bytes in `correlation-id`, and these bytes are passed on unchanged.

use bytes::{BufMut, BytesMut};
pub use message::Properties;
use values::put_short;

use super::fields::{MalformedFields, Reader};

const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const TYPE: u16 = 1 << 5;
const USER_ID: u16 = 1 << 4;
const APP_ID: u16 = 1 << 3;
const CLUSTER_ID: u16 = 1 << 2;
const KNOWN: u16 = !0b11;

/// Encoding of properties on the wire.
pub trait WireProperties<'a>: Sized {
    fn decode(encoded: &'a [u8]) -> Result<Self, MalformedFields>;

    /// Truncates a value longer than a short string, see [`values::shortened`]. Kafka producers and HTTP clients can
    /// write such values.
    fn encode(&self, out: &mut BytesMut);
}

impl<'a> WireProperties<'a> for Properties<'a> {
    fn decode(encoded: &'a [u8]) -> Result<Self, MalformedFields> {
        let mut reader = Reader::new(encoded);
        let flags: u16 = reader.read()?;
        // The last bit announces another word of flags, which no property uses.
        if flags & !KNOWN != 0 {
            return Err(MalformedFields::PropertyFlags(flags));
        }
        let mut properties = Self::default();
        let has = |flag| flags & flag != 0;
        let mut read_all = || -> Result<(), MalformedFields> {
            // In the order of the flags, from the highest.
            properties.content_type = short(&mut reader, has(CONTENT_TYPE))?;
            properties.content_encoding = short(&mut reader, has(CONTENT_ENCODING))?;
            properties.headers = has(HEADERS).then(|| reader.read()).transpose()?;
            properties.delivery_mode = has(DELIVERY_MODE).then(|| reader.read()).transpose()?;
            properties.priority = has(PRIORITY).then(|| reader.read()).transpose()?;
            properties.correlation_id = short(&mut reader, has(CORRELATION_ID))?;
            properties.reply_to = short(&mut reader, has(REPLY_TO))?;
            properties.expiration = short(&mut reader, has(EXPIRATION))?;
            properties.message_id = short(&mut reader, has(MESSAGE_ID))?;
            properties.timestamp = has(TIMESTAMP).then(|| reader.read()).transpose()?;
            properties.kind = short(&mut reader, has(TYPE))?;
            properties.user_id = short(&mut reader, has(USER_ID))?;
            properties.app_id = short(&mut reader, has(APP_ID))?;
            properties.cluster_id = short(&mut reader, has(CLUSTER_ID))?;
            Ok(())
        };
        read_all()?;
        reader.finish()?;
        Ok(properties)
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u16(flags(self));
        put_text(self.content_type, out);
        put_text(self.content_encoding, out);
        if let Some(headers) = self.headers {
            out.put_u32(headers.0.len() as u32);
            out.put_slice(headers.0);
        }
        if let Some(mode) = self.delivery_mode {
            out.put_u8(mode);
        }
        if let Some(priority) = self.priority {
            out.put_u8(priority);
        }
        put_text(self.correlation_id, out);
        put_text(self.reply_to, out);
        put_text(self.expiration, out);
        put_text(self.message_id, out);
        if let Some(timestamp) = self.timestamp {
            out.put_u64(timestamp);
        }
        put_text(self.kind, out);
        put_text(self.user_id, out);
        put_text(self.app_id, out);
        put_text(self.cluster_id, out);
    }
}

fn flags(properties: &Properties<'_>) -> u16 {
    let flag = |flag, there: bool| if there { flag } else { 0 };
    flag(CONTENT_TYPE, properties.content_type.is_some())
        | flag(CONTENT_ENCODING, properties.content_encoding.is_some())
        | flag(HEADERS, properties.headers.is_some())
        | flag(DELIVERY_MODE, properties.delivery_mode.is_some())
        | flag(PRIORITY, properties.priority.is_some())
        | flag(CORRELATION_ID, properties.correlation_id.is_some())
        | flag(REPLY_TO, properties.reply_to.is_some())
        | flag(EXPIRATION, properties.expiration.is_some())
        | flag(MESSAGE_ID, properties.message_id.is_some())
        | flag(TIMESTAMP, properties.timestamp.is_some())
        | flag(TYPE, properties.kind.is_some())
        | flag(USER_ID, properties.user_id.is_some())
        | flag(APP_ID, properties.app_id.is_some())
        | flag(CLUSTER_ID, properties.cluster_id.is_some())
}

fn short<'a>(reader: &mut Reader<'a>, there: bool) -> Result<Option<&'a [u8]>, MalformedFields> {
    if !there {
        return Ok(None);
    }
    let length: u8 = reader.read()?;
    reader.take(usize::from(length)).map(Some)
}

fn put_text(value: Option<&[u8]>, out: &mut BytesMut) {
    if let Some(value) = value {
        put_short(value, out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::fields::EncodedTable;

    fn short_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
        proptest::option::of(proptest::collection::vec(any::<u8>(), 0..256))
    }

    proptest! {
        #[test]
        fn written_properties_are_read_back(
            strings in proptest::collection::vec(short_bytes(), 10),
            headers in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
            octets in (any::<Option<u8>>(), any::<Option<u8>>()),
            timestamp: Option<u64>,
        ) {
            let properties = Properties {
                content_type: strings[0].as_deref(),
                content_encoding: strings[1].as_deref(),
                headers: headers.as_deref().map(EncodedTable),
                delivery_mode: octets.0,
                priority: octets.1,
                correlation_id: strings[2].as_deref(),
                reply_to: strings[3].as_deref(),
                expiration: strings[4].as_deref(),
                message_id: strings[5].as_deref(),
                timestamp,
                kind: strings[6].as_deref(),
                user_id: strings[7].as_deref(),
                app_id: strings[8].as_deref(),
                cluster_id: strings[9].as_deref(),
            };
            let mut out = BytesMut::new();
            properties.encode(&mut out);
            prop_assert_eq!(Properties::decode(&out), Ok(properties));
            for length in 0..out.len() {
                prop_assert!(Properties::decode(&out[..length]).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_are_read_or_rejected(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = Properties::decode(&bytes);
        }
    }
}
