//! Bounds of this crate. They keep one bad client from harming the others.

/// Memory cost limit of a password hash.
pub(crate) const AMQP_PASSWORD_HASH_KIB_MAX: u32 = 64 << 10;
