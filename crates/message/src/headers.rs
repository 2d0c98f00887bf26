//! The names of record headers that a message's properties have, and of headers that mean something.

use base::headers::{DEATH_PREFIX, DELIVER_AT, EXPIRES_AT, ID, PRIORITY as RANK, RESERVED_PREFIX};

/// No header of a message begins with it once it is a record's, but those here.
pub(crate) const PREFIX: &[u8] = b"amqp.";
/// In a message: what the record's key is to be, or was.
pub(crate) const KEY_HEADER: &[u8] = b"postroad.key";

pub(crate) const EXCHANGE: &[u8] = b"amqp.exchange";
pub(crate) const ROUTING_KEY: &[u8] = b"amqp.routing-key";
pub(crate) const CONTENT_TYPE: &[u8] = b"amqp.content-type";
pub(crate) const CONTENT_ENCODING: &[u8] = b"amqp.content-encoding";
pub(crate) const DELIVERY_MODE: &[u8] = b"amqp.delivery-mode";
pub(crate) const PRIORITY: &[u8] = b"amqp.priority";
pub(crate) const CORRELATION_ID: &[u8] = b"amqp.correlation-id";
pub(crate) const REPLY_TO: &[u8] = b"amqp.reply-to";
pub(crate) const EXPIRATION: &[u8] = b"amqp.expiration";
pub(crate) const MESSAGE_ID: &[u8] = b"amqp.message-id";
pub(crate) const TIMESTAMP: &[u8] = b"amqp.timestamp";
pub(crate) const TYPE: &[u8] = b"amqp.type";
pub(crate) const USER_ID: &[u8] = b"amqp.user-id";
pub(crate) const APP_ID: &[u8] = b"amqp.app-id";
pub(crate) const CLUSTER_ID: &[u8] = b"amqp.cluster-id";
/// The types of the message's own headers, in their order.
pub(crate) const HEADER_TYPES: &[u8] = b"amqp.headers";
pub(crate) const ESCAPED: &[u8] = b"amqp.header.";
/// The message's BCC header, which no consumer is shown: a dead letter still goes to those keys.
pub(crate) const BLIND_COPIES: &[u8] = b"amqp.blind-copies";

/// What a message died of so far, which no client can write: the prefix is out of their reach.
pub const DEATHS: &[u8] = b"amqp.deaths";

/// Headers that route a message; a blind copy is for nobody else to see.
pub const CC: &[u8] = b"CC";
pub const BCC: &[u8] = b"BCC";

/// A message that is held back comes out with its delay negated, so that it is not held back again
/// where it is published anew.
pub(crate) const DELAY: &[u8] = b"x-delay";

/// Of what the broker says, all that a consumer is shown: why a record is a dead letter.
pub(crate) const DEATH: &[u8] = DEATH_PREFIX.as_bytes();

/// Whether a record header of this name is a field of the broker, from any client: a message that has
/// one sets the field.
pub(crate) fn is_field(name: &[u8]) -> bool {
    let fields = [DELIVER_AT, EXPIRES_AT, RANK, ID];
    is_hidden(name) && (name.starts_with(DEATH) || fields.iter().any(|it| it.as_bytes() == name))
}

/// What the broker says to itself.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(RESERVED_PREFIX.as_bytes())
}
