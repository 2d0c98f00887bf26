use serde::{Deserialize, Serialize};

/// What became of every single message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Messages whose sender was told that they are safe.
    pub confirmed: u64,
    /// Messages whose sender was told that they are not, or nothing.
    pub unconfirmed: u64,
    /// Distinct messages that came, over all subscriptions.
    pub received: u64,
    /// Confirmed and never received by a subscription: must be none.
    pub lost: u64,
    /// Confirmed, and still on its way when the wait was given up: not lost, for all that is known.
    #[serde(default)]
    pub late: u64,
    /// Not confirmed and yet received: allowed.
    pub unconfirmed_received: u64,
    /// Deliveries of what had been received before.
    pub repeated: u64,
    /// Of these, those that the system did not mark as redelivered, though it has such a mark, and
    /// that no fault or closed connection explains: must be none.
    pub repeated_unmarked: u64,
    /// Received again after its settle was confirmed: must be none.
    pub settled_again: u64,
    /// A message of a lane came after a later one of the same sender, for the first time: must be
    /// none where the test is ordered.
    pub out_of_order: u64,
    /// Bodies that are not what was sent.
    pub damaged: u64,
    /// The longest that a message was under way, in microseconds.
    pub dwell_max_us: u64,
    /// The slowest over the fastest: received messages by lane, and by subscription. 1 is fair.
    pub fairness_lanes: Option<f64>,
    pub fairness_subscriptions: Option<f64>,
    /// The first few of everything that must not be.
    pub findings: Vec<Finding>,
}

/// One thing that must not be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// `lost`, `out-of-order`, ...
    pub kind: String,
    pub sender: u32,
    pub sequence: u64,
    pub lane: u32,
    pub subscription: u32,
    pub what: String,
}

impl Audit {
    /// Why the run fails by it; empty when it does not. `ordered`: the test promised order.
    pub fn faults(&self, ordered: bool) -> Vec<String> {
        let order = if ordered { self.out_of_order } else { 0 };
        [
            (self.lost, "confirmed messages were never received"),
            (self.late, "confirmed messages had not come when the wait for them was given up"),
            (self.settled_again, "messages came again after their settle was confirmed"),
            (self.repeated_unmarked, "messages came twice without a mark or a reason"),
            (order, "messages came out of order in their lane"),
            (self.damaged, "bodies were not what was sent"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}
