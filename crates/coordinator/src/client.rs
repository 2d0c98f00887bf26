//! The client of a member, in all group protocols.

use crate::Text;

/// The origin of a member's requests, for descriptions of groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Client {
    pub id: Text,
    /// In Kafka's notation: a slash and the address.
    pub host: Text,
}
