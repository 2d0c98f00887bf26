//! A message as routing reads it: the encoded table of its headers, not decoded.

use routing::{Headers, Hop, Property, Value};
use topology::matched::header_value;

use crate::table::{FieldValue, RawFields};
use message::Properties;

/// Longest delay of the delayed-message exchange: the limit of an Erlang timer.
const DELAY_MS_MAX: i64 = 4_294_967_295;
/// A federation link records the message's origins in it: an array of tables.
const RECEIVED_FROM: &[u8] = b"x-received-from";

/// The headers of a message that is being published.
#[derive(Clone, Copy, Debug)]
pub struct MessageHeaders<'a>(pub &'a Properties<'a>);

impl MessageHeaders<'_> {
    /// The delay by a delayed-message exchange, from `x-delay`. `None`: the message is not delayed.
    pub fn delay_ms(&self) -> Option<i64> {
        let field = self.fields().find(|field| field.name == b"x-delay")?;
        let delay = match field.decode().ok()? {
            FieldValue::LongString(text) => std::str::from_utf8(&text).ok()?.parse().ok()?,
            FieldValue::F32(number) => number as i64,
            FieldValue::F64(number) => number as i64,
            other => other.as_integer()?,
        };
        (1..=DELAY_MS_MAX).contains(&delay).then_some(delay)
    }

    fn fields(&self) -> impl Iterator<Item = crate::table::RawField<'_>> {
        let table = self.0.headers.map_or(&[][..], |table| table.0);
        RawFields::new(table).map_while(Result::ok)
    }
}

impl Headers for MessageHeaders<'_> {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        let field = self.fields().find(|field| field.name == name.as_bytes())?;
        header_value(&field)
    }

    fn each(&self, see: &mut dyn FnMut(&str, Value<'_>)) {
        for field in self.fields() {
            if let (Ok(name), Some(value)) = (std::str::from_utf8(field.name), header_value(&field))
            {
                see(name, value);
            }
        }
    }

    fn hops(&self) -> Vec<Hop> {
        let field = self.fields().find(|field| field.name == RECEIVED_FROM);
        let Some(Ok(FieldValue::Array(hops))) = field.map(|field| field.decode()) else {
            return Vec::new();
        };
        let hop = |hop: &FieldValue| {
            let FieldValue::Table(hop) = hop else { return None };
            let text = |name| hop.get(name).and_then(FieldValue::as_str).map(str::to_owned);
            Some(Hop { cluster: text("cluster-name")?, vhost: text("vhost")? })
        };
        // An unreadable entry counts as a hop as well.
        let unknown = || Hop { cluster: String::new(), vhost: String::new() };
        hops.iter().map(|it| hop(it).unwrap_or_else(unknown)).collect()
    }

    fn property(&self, property: Property) -> Option<Value<'_>> {
        match property {
            Property::CorrelationId => self.0.correlation_id.map(Value::Bytes),
            Property::MessageId => self.0.message_id.map(Value::Bytes),
            Property::Timestamp => self.0.timestamp.map(|seconds| Value::Integer(seconds as i64)),
        }
    }
}
