pub type SessionId = u64;
pub type ConsumerId = u64;
pub type Token = u64;

/// What a consumer says of a record that it leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    Accept,
    /// Available again, after `delay_ms` or the group's back-off (`None`). `count` is whether the
    /// attempt counts.
    Release {
        delay_ms: Option<i64>,
        count: bool,
    },
    Reject,
    /// The lease begins anew, for so long.
    Renew {
        lease_ms: i64,
    },
}
