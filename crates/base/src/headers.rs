//! Record headers that the broker reads and writes. All begin with [`RESERVED_PREFIX`]; a gateway
//! maps its protocol's own fields onto them. Values are text, numbers decimal, times milliseconds
//! since the Unix epoch.

/// Prefix that headers of users must not have.
pub const RESERVED_PREFIX: &str = "postroad.";

// --------------------------------------------------------- read, from a record that is appended

/// Not delivered to a lease group before this time.
pub const DELIVER_AT: &str = "postroad.deliver-at";
/// Not delivered to a lease group after this time.
pub const EXPIRES_AT: &str = "postroad.expires-at";
/// 0 to 255; the higher is delivered first.
pub const PRIORITY: &str = "postroad.priority";
/// The id by which deduplication and cancelling find the record.
pub const ID: &str = "postroad.id";

// ------------------------------------------------------------------- written, to a dead letter

/// Prefix of all headers of a dead letter.
pub const DEATH_PREFIX: &str = "postroad.death.";
/// Reason of the dead letter: a `DEATH_REASON_` below.
pub const DEATH_REASON: &str = "postroad.death.reason";
/// Number of deliveries before it became a dead letter.
pub const DEATH_COUNT: &str = "postroad.death.count";
/// Origin of the record: topic by name, partition and offset.
pub const DEATH_TOPIC: &str = "postroad.death.topic";
pub const DEATH_PARTITION: &str = "postroad.death.partition";
pub const DEATH_OFFSET: &str = "postroad.death.offset";
/// The lease group whose dead letter it is, by name.
pub const DEATH_GROUP: &str = "postroad.death.group";
/// Time at which it became a dead letter.
pub const DEATH_TIME: &str = "postroad.death.time";

/// A consumer rejected it.
pub const DEATH_REASON_REJECTED: &str = "rejected";
/// It was delivered as often as its group allows.
pub const DEATH_REASON_ATTEMPTS: &str = "attempts";
/// It expired.
pub const DEATH_REASON_EXPIRED: &str = "expired";
/// Its topic was full.
pub const DEATH_REASON_OVERFLOW: &str = "overflow";
