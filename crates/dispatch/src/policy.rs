//! Delivery policy of a lease group. The driver copies it from the group's durable configuration;
//! the engine itself persists nothing.

/// Constraint on the order of delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ordering {
    /// No record blocks another.
    #[default]
    Free,
    /// One record of a key at a time; records without a key are free.
    Key,
    /// One record of a partition at a time.
    Partition,
}

/// With two priorities, records up to this one belong to the lower.
const NORMAL_MAX: u8 = 4;
/// With two priorities, one of this many records is of the lower.
pub(crate) const HIGH_TO_NORMAL: u8 = 3;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub ordering: Ordering,
    /// One active consumer at a time gets records; the next one takes over when it leaves.
    pub single_active: bool,
    /// With `single_active`, a consumer of a higher priority takes over once the active one holds
    /// no records.
    pub priority_takes_over: bool,
    /// Default duration of a lease; `None` = until its session ends.
    pub lease_ms: Option<i64>,
    /// Maximum deliveries of one record; a record released after the last one becomes a dead
    /// letter.
    pub attempts_max: Option<u16>,
    /// Delay before the second attempt, doubled for each further one; 0 = none.
    pub backoff_first_ms: i64,
    pub backoff_max_ms: i64,
    /// A record expires this long after its timestamp.
    pub record_ttl_ms: Option<i64>,
    /// The highest priority; higher ones are capped to it. 0 = priorities are ignored. They are
    /// also ignored if records are ordered by key or partition.
    pub priorities: u8,
    /// There are two priorities, up to 4 and above: two of the higher are delivered, then one of
    /// the lower.
    pub two_to_one: bool,
    /// Whether the bytes of waiting records are counted: then all are read, not only the next ones.
    pub measured: bool,
    /// Whether rejected, exhausted and expired records wait until their dead letter is in the log.
    /// Otherwise they are settled at once.
    pub dead_letters: bool,
    /// Whether records expire without consumers too, which costs a scan of the head.
    pub expire_unattended: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ordering: Ordering::Free,
            single_active: false,
            priority_takes_over: false,
            lease_ms: Some(30_000),
            attempts_max: None,
            backoff_first_ms: 0,
            backoff_max_ms: 60_000,
            record_ttl_ms: None,
            priorities: 0,
            two_to_one: false,
            measured: false,
            dead_letters: false,
            expire_unattended: false,
        }
    }
}

impl Policy {
    /// Delay of a record after its `attempts`-th delivery.
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
            Ordering::Free if self.two_to_one => u8::MAX - u8::from(priority > NORMAL_MAX),
            Ordering::Free => u8::MAX - priority.min(self.priorities),
            // A priority would break the order within a key or a partition.
            Ordering::Key | Ordering::Partition => u8::MAX,
        }
    }

    /// Whether every record must be known before the first can be delivered in the right order.
    pub(crate) fn ranks(&self) -> bool {
        (self.priorities > 0 || self.two_to_one) && self.ordering == Ordering::Free
    }

    /// With two priorities: whether the next record is one of the lower, after this many delivered.
    pub(crate) fn is_turn_of_lower(&self, handed_out: u8) -> bool {
        self.two_to_one && handed_out % HIGH_TO_NORMAL == HIGH_TO_NORMAL - 1
    }

    /// Whether to read records that will not be delivered soon.
    pub(crate) fn reads_ahead(&self) -> bool {
        self.measured || self.ranks()
    }

    pub(crate) fn expires_ms(&self, timestamp: i64, expires_ms: i64) -> i64 {
        match self.record_ttl_ms {
            // Expired on arrival, even if the clock that stamped it is ahead of the engine's.
            Some(0) => i64::MIN,
            Some(ttl) => expires_ms.min(timestamp.saturating_add(ttl)),
            None => expires_ms,
        }
    }
}
