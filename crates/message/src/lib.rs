//! A message as a record, and a record as a message.
//!
//! Every protocol that has messages with properties keeps them in records in this one way, so that
//! what one publishes another consumes. The body is the record's value. Properties, exchange and
//! routing key travel as record headers `amqp.*` in text, so that a consumer of any protocol can read
//! them (they have the name of the protocol that had them first); the message's own headers are the
//! record's headers, each under its name. What text cannot say, the types of headers, is one more
//! header (`amqp.headers`: a letter for each, as [`values`] encodes them); without it, as for a record
//! that a Kafka producer made, every header is a string. A message comes back byte for byte.
//!
//! | message | record |
//! |---|---|
//! | body | value |
//! | header `postroad.key` (string) | key |
//! | exchange, routing key | `amqp.exchange` (absent: the default one), `amqp.routing-key` |
//! | each property | `amqp.content-type`, `amqp.delivery-mode`, ... by its name; numbers decimal |
//! | header `x` of type string | `x`, the same bytes |
//! | numbers, timestamps, booleans, decimals | `x`, as text |
//! | byte arrays | `x`, the same bytes |
//! | tables, arrays | `x`, as they are encoded |
//! | void | `x`, null |
//! | header `amqp.x` | `amqp.header.amqp.x`: the prefix is reserved |
//! | header `postroad.x` | `amqp.header.postroad.x`, unless the broker has a field of that name |
//!
//! A record of another protocol has routing key = its queue's name, the default exchange, and the
//! record's time as `timestamp`.
//!
//! How properties look on a wire, and which of them a client may set, is its gateway's.
//!
//! * [`properties`]: what a message says of itself
//! * [`headers`]: the reserved names of record headers
//! * [`write`], [`read`]: there and back; `text`: numbers as text

pub mod headers;
pub mod properties;
pub mod read;
mod text;
pub mod write;

#[cfg(test)]
mod tests;

pub use properties::Properties;
pub use read::{Message, blind_copies, put_header, read_record};
pub use write::write_record_headers;
