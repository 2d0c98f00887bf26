/// Replication state of one destination, as the system reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replication {
    /// The leader, as an index into the target's endpoints. `None`: there is no leader now.
    pub leader: Option<usize>,
    /// In-sync replicas, including the leader.
    pub in_sync: u32,
}
