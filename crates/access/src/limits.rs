//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Users created by commands.
pub(crate) const AMQP_USERS_MAX: usize = 10_000;
/// Access rules of the cluster: all are one document.
pub(crate) const ACCESS_RULES_MAX: usize = 4_000;
/// Audit events that wait to be written; further ones are dropped, or their requests rejected.
pub(crate) const AUDIT_EVENTS_QUEUED_MAX: usize = 10_000;
/// Events of one batch, which must fit a record batch whatever their names are.
pub(crate) const AUDIT_EVENTS_AT_ONCE_MAX: usize = 128;
/// Length at which names and paths in an event are cut off.
pub(crate) const AUDIT_TEXT_BYTES_MAX: usize = 512;
/// Denials of one user that are audited in a minute.
pub(crate) const AUDIT_DENIALS_A_MINUTE_MAX: u32 = 10;
/// Users whose recently audited denials are counted.
pub(crate) const AUDIT_SAMPLED_KEPT_MAX: usize = 10_000;
/// Default retention of audit events: 90 days, and bytes.
pub(crate) const AUDIT_KEPT_MS: i64 = 90 * 24 * 3600 * 1000;
pub(crate) const AUDIT_KEPT_BYTES: i64 = 1 << 30;
/// Users, clients and addresses that have quotas: all are one document.
pub(crate) const QUOTAS_MAX: usize = 4_000;
pub(crate) const QUOTA_NAME_BYTES_MAX: usize = 1_024;
/// Number of quota buckets from which on unused ones without debt are removed.
pub(crate) const QUOTA_BUCKETS_MIN: usize = 1_024;
/// Addresses and names whose failed log-ins are remembered.
pub(crate) const LOGIN_FAILURES_KEPT_MAX: usize = 10_000;
/// Password checks at a time: each takes a core, and as much memory as its hash says.
pub(crate) const AMQP_PASSWORD_CHECKS_AT_ONCE_MAX: usize = 2;
/// Log-ins of one address that wait for their password check. Further ones are rejected at once.
pub(crate) const LOGINS_WAITING_PER_ADDRESS_MAX: usize = 1_000;
/// Concurrent log-ins of one address by one name, until they are answered. The reply to a failure is delayed.
pub(crate) const LOGINS_AT_ONCE_PER_NAME_MAX: usize = 4;
