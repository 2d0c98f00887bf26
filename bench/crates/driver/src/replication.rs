/// How the copies of one destination are, as the system says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replication {
    /// Which node takes its writes, by its place among the target's endpoints. `None`: none does now.
    pub leader: Option<usize>,
    /// Copies that have all that the leader has, its own among them.
    pub in_sync: u32,
}
