//! What a lease group promises its consumers. Copied out of the group's durable configuration by
//! whoever drives the engine; the engine itself persists nothing.

/// What must not overtake what.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ordering {
    /// Nothing blocks anything.
    #[default]
    Free,
    /// One record of a key at a time; records without a key are free.
    Key,
    /// One record of a partition at a time.
    Partition,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub ordering: Ordering,
    /// One consumer at a time gets records; the next one takes over when it leaves.
    pub single_active: bool,
    /// How long a lease lives unless its consumer asks otherwise; `None` = as long as its session.
    pub lease_ms: Option<i64>,
    /// Deliveries of one record at most; the one that comes back from the last is a dead letter.
    pub attempts_max: Option<u16>,
    /// Delay before the second attempt, doubled for each further one; 0 = none.
    pub backoff_first_ms: i64,
    pub backoff_max_ms: i64,
    /// A record is good for so long after its timestamp.
    pub record_ttl_ms: Option<i64>,
    /// The highest priority; what is above counts as this. 0 = priorities are not looked at, and
    /// so they are not either where records are ordered by key or partition.
    pub priorities: u8,
    /// Whether rejected, exhausted and expired records wait until they are buried; where they do
    /// not, they are settled at once.
    pub dead_letters: bool,
    /// Whether records expire also while nobody consumes, which costs a scan of the head.
    pub expire_unattended: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ordering: Ordering::Free,
            single_active: false,
            lease_ms: Some(30_000),
            attempts_max: None,
            backoff_first_ms: 0,
            backoff_max_ms: 60_000,
            record_ttl_ms: None,
            priorities: 0,
            dead_letters: false,
            expire_unattended: false,
        }
    }
}

impl Policy {
    /// How long a record waits that came back from its `attempts`-th delivery.
    pub fn backoff_ms(&self, attempts: u16) -> i64 {
        if attempts == 0 || self.backoff_first_ms <= 0 {
            return 0;
        }
        let doublings = u32::from(attempts - 1).min(62);
        let backoff = self.backoff_first_ms.saturating_mul(1 << doublings);
        backoff.min(self.backoff_max_ms.max(self.backoff_first_ms))
    }

    /// A better record has the lower rank.
    pub(crate) fn rank(&self, priority: u8) -> u8 {
        match self.ordering {
            Ordering::Free => u8::MAX - priority.min(self.priorities),
            // Order within a key or a partition is what was asked for; a priority would break it.
            Ordering::Key | Ordering::Partition => u8::MAX,
        }
    }

    /// Whether every record must be known before the first is handed out in its right place.
    pub(crate) fn ranks(&self) -> bool {
        self.priorities > 0 && self.ordering == Ordering::Free
    }

    pub(crate) fn expires_ms(&self, timestamp: i64, expires_ms: i64) -> i64 {
        match self.record_ttl_ms {
            Some(ttl) => expires_ms.min(timestamp.saturating_add(ttl)),
            None => expires_ms,
        }
    }
}
