//! Names of record headers for a message's properties, and of headers with a meaning to the broker.

use base::headers::{DEATH_PREFIX, DELIVER_AT, EXPIRES_AT, ID, PRIORITY as RANK, RESERVED_PREFIX};

/// Reserved prefix: a record has no such headers of a message other than those below.
pub(crate) const PREFIX: &[u8] = b"amqp.";
/// Header of a message that becomes, or came from, the record's key.
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
/// The message's BCC header, which is hidden from consumers. A dead letter is still routed to these keys.
pub(crate) const BLIND_COPIES: &[u8] = b"amqp.blind-copies";

/// Earlier deaths of a message. The prefix is reserved, so no client can write this header.
pub const DEATHS: &[u8] = b"amqp.deaths";

/// Headers that route a message; BCC is hidden from consumers.
pub const CC: &[u8] = b"CC";
pub const BCC: &[u8] = b"BCC";

/// The delay of a delayed message, negated on delivery, so that a republished message is not delayed again.
pub(crate) const DELAY: &[u8] = b"x-delay";

/// Prefix of the broker's only headers shown to consumers: the reason of a dead letter.
pub(crate) const DEATH: &[u8] = DEATH_PREFIX.as_bytes();

/// Returns whether a record header of this name is a field of the broker, which clients of any protocol set by this
/// header.
pub(crate) fn is_field(name: &[u8]) -> bool {
    let fields = [DELIVER_AT, EXPIRES_AT, RANK, ID];
    is_hidden(name) && (name.starts_with(DEATH) || fields.iter().any(|it| it.as_bytes() == name))
}

/// Returns whether a header is reserved for the broker.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(RESERVED_PREFIX.as_bytes())
}
