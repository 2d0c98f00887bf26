use serde::{Deserialize, Serialize};

/// Outcome of every message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Messages whose sender received a confirmation.
    pub confirmed: u64,
    /// Messages whose sender received an error, or nothing.
    pub unconfirmed: u64,
    /// Distinct received messages, over all subscriptions.
    pub received: u64,
    /// Confirmed and never received by a subscription: must be none.
    pub lost: u64,
    /// Confirmed, and still in flight at the time limit: not known to be lost.
    #[serde(default)]
    pub late: u64,
    /// Not confirmed and yet received: allowed.
    pub unconfirmed_received: u64,
    /// Deliveries of messages that had been received before.
    pub repeated: u64,
    /// Repeated deliveries without a redelivery mark, though the system has such a mark, and
    /// without a fault or a closed connection as the reason: must be none.
    pub repeated_unmarked: u64,
    /// Received again after its settle was confirmed: must be none.
    pub settled_again: u64,
    /// First delivery of a message after a later one of the same sender and lane: must be none
    /// where the test is ordered.
    pub out_of_order: u64,
    /// Bodies that differ from the sent ones.
    pub damaged: u64,
    /// Longest time from send to first delivery, in microseconds.
    pub dwell_max_us: u64,
    /// The smallest over the largest number of received messages: by lane, and by subscription. 1
    /// is fair.
    pub fairness_lanes: Option<f64>,
    pub fairness_subscriptions: Option<f64>,
    /// The first few violations of each kind.
    pub findings: Vec<Finding>,
}

/// One violation.
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
    /// Reasons that the run fails; empty if it passes. `ordered`: the test requires order.
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
