//! The engine's face.

use base::Offset;

use crate::*;

#[derive(Debug)]
pub struct Dispatch {
    policy: Policy,
}

#[allow(unused_variables)]
impl Dispatch {
    /// `first_token`: where this engine's fencing tokens begin. A node that drops an engine and
    /// makes it again goes on from [`Dispatch::next_token`], so that no token ever comes back.
    pub fn new(policy: Policy, partitions: Vec<PartitionStart>, first_token: Token) -> Self {
        Self { policy }
    }
    pub fn next_token(&self) -> Token {
        unimplemented!()
    }
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
    pub fn set_policy(&mut self, policy: Policy) {
        unimplemented!()
    }
    /// A paused engine hands nothing out and wants nothing; leases run on.
    pub fn set_paused(&mut self, paused: bool) {
        unimplemented!()
    }
    /// The group was moved (seek): all that was known of the partition is forgotten, its leases
    /// are void, deltas that were not drained are dropped.
    pub fn reset_partition(&mut self, partition: u32, start: PartitionStart) {
        unimplemented!()
    }
    /// One more partition, after the last.
    pub fn grow(&mut self, start: PartitionStart) {
        unimplemented!()
    }
    /// The log has begun at `log_start` since (retention, delete records): what is below is gone,
    /// leases on it too. The machine lifted its floor itself: no delta comes of this.
    pub fn trimmed(&mut self, partition: u32, log_start: Offset) {
        unimplemented!()
    }
    /// The log grew. O(1).
    pub fn extended(&mut self, partition: u32, end: Offset) {
        unimplemented!()
    }
    /// What to read next. Each want is handed out ONCE, and one a partition at a time, so that
    /// several reads may be under way: every one must be answered by `scanned` or `scan_failed`.
    /// `None` when enough is known, or nobody takes.
    #[must_use = "a want that is not answered stops its partition"]
    pub fn wants(&mut self) -> Option<Want> {
        unimplemented!()
    }
    /// What the log holds in `from..up_to`: ascending; offsets that are not among `records` are
    /// holes, and settled. A part may be known already. The engine may stop early (bounds) and
    /// want the rest later.
    pub fn scanned(
        &mut self,
        partition: u32,
        from: Offset,
        up_to: Offset,
        records: impl IntoIterator<Item = Scanned>,
        now_ms: i64,
    ) {
        unimplemented!()
    }
    /// The read failed or was given up: the engine will want it again.
    pub fn scan_failed(&mut self, partition: u32) {
        unimplemented!()
    }

    pub fn join(&mut self, consumer: ConsumerId, joined: Joined) -> Result<(), JoinRefused> {
        unimplemented!()
    }
    /// More credit for a consumer. One with a window gets a larger window.
    pub fn grant(&mut self, consumer: ConsumerId, records: u32, bytes: u64) {
        unimplemented!()
    }
    /// Sets the window, or what is left of the grants.
    pub fn set_credit(&mut self, consumer: ConsumerId, records: u32, bytes: u64) {
        unimplemented!()
    }
    pub fn leave(&mut self, consumer: ConsumerId, now_ms: i64, leases: Leases) {
        unimplemented!()
    }
    /// Its consumers leave, its leases come back at once, each counted as an attempt.
    pub fn end_session(&mut self, session: SessionId, now_ms: i64) {
        unimplemented!()
    }

    /// Hands out what is ready to consumers with credit. Gives back to `pools` first what ended
    /// since (see [`Dispatch::return_to`]).
    pub fn dispatch(&mut self, now_ms: i64, pools: &mut Pools, out: &mut Vec<Assignment>) {
        unimplemented!()
    }
    /// Gives back to the sessions' pools what leases that ended since used of them. Needed only
    /// where another engine's dispatch comes before this one's.
    pub fn return_to(&mut self, pools: &mut Pools) {
        unimplemented!()
    }
    /// Takes what is ready. One that got less than it asked for makes the engine want more, once:
    /// scan, then take again.
    pub fn take(&mut self, take: Take, now_ms: i64, out: &mut Vec<Assignment>) {
        unimplemented!()
    }

    /// Ends leases; the number of records it was about.
    pub fn settle(
        &mut self,
        session: SessionId,
        selection: Selection,
        settlement: Settlement,
        now_ms: i64,
    ) -> Result<u32, SettleRefused> {
        unimplemented!()
    }
    /// The dead letter is where it belongs: the record is settled.
    pub fn buried(&mut self, partition: u32, offset: Offset) {
        unimplemented!()
    }

    /// Lets leases run out, delays end, heads expire. Bounded work a call: call again while
    /// [`Dispatch::next_deadline`] is not in the future.
    pub fn tick(&mut self, now_ms: i64) {
        unimplemented!()
    }
    /// When to tick next; at times a little early.
    pub fn next_deadline(&self) -> Option<i64> {
        unimplemented!()
    }
    /// Takes the deltas since the last drain; appends to what `out` holds.
    pub fn drain(&mut self, out: &mut Changes) {
        unimplemented!()
    }
    /// Whether a drain would bring anything.
    pub fn has_changes(&self) -> bool {
        unimplemented!()
    }

    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
    /// The oldest record of a partition that is not settled (or a hole before it), with its
    /// timestamp if it is known at the moment.
    pub fn oldest(&self, partition: u32) -> Option<(Offset, Option<i64>)> {
        unimplemented!()
    }
    pub fn floor(&self, partition: u32) -> Option<Offset> {
        unimplemented!()
    }
    /// Unsettled records of a partition from `from`, without touching them. What was not looked at
    /// yet counts as ready; it may turn out to be a hole.
    pub fn peek(&self, partition: u32, from: Offset, records_max: usize) -> Vec<Peeked> {
        unimplemented!()
    }
    /// Leases by partition and offset, after the given place.
    pub fn leases(&self, after: Option<(u32, Offset)>, records_max: usize) -> Vec<LeaseView> {
        unimplemented!()
    }
    /// Delayed records in the order of their time, after the given one.
    pub fn delayed(&self, after: Option<Delayed>, records_max: usize) -> Vec<Delayed> {
        unimplemented!()
    }
    /// Settles a record that waits for its time.
    pub fn cancel_delayed(&mut self, partition: u32, offset: Offset) -> Result<(), RemoveRefused> {
        unimplemented!()
    }
    /// Settles one record, whatever it waits for; one that is leased stays.
    pub fn remove(&mut self, partition: u32, offset: Offset) -> Result<(), RemoveRefused> {
        unimplemented!()
    }
    /// Settles all that is neither leased nor about to be buried; how many.
    pub fn purge(&mut self) -> u64 {
        unimplemented!()
    }
}
