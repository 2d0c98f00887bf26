//! A message as a record, and a record as a message.
//!
//! Every protocol that has messages with properties stores them in records in this one way, so that a message
//! published through one protocol can be consumed through another. The body is the record's value. Properties,
//! exchange and routing key are record headers `amqp.*` in text, so that a consumer of any protocol can read them.
//! (They have the name of the protocol that had them first.) The message's own headers are the record's headers, each
//! under its name. The types of headers, which text cannot express, are one more header (`amqp.headers`: a letter for
//! each, as in [`values`]). Without it, as in a record of a Kafka producer, every header is a string. A message is
//! read back byte for byte.
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
//! A record of another protocol gets its queue's name as routing key, the default exchange, and the record's time as
//! `timestamp`.
//!
//! The wire encoding of properties, and which of them a client may set, belong to its gateway.
//!
//! * [`properties`]: the properties of a message
//! * [`headers`]: the reserved names of record headers
//! * [`write`], [`read`]: to a record and back; `text`: numbers as text

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
