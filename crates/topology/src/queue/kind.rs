//! Types of queues.

/// RabbitMQ's types of queues. Classic and quorum queues are stored alike here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueKind {
    Classic,
    Quorum,
    /// Consumed by offset; nothing is settled, and records are deleted by age and size only.
    Stream,
}

impl QueueKind {
    pub const ALL: [Self; 3] = [Self::Classic, Self::Quorum, Self::Stream];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The value of `x-queue-type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
            Self::Stream => "stream",
        }
    }
}
