//! What members of all group protocols have in common.

use crate::Text;
use crate::classic::{JoinRefused, Joined, Synced};
use crate::error::ErrorKind;

/// The epoch with which a member comes (KIP-848).
pub const JOINING: i32 = 0;
/// The epoch with which a member goes.
pub const LEAVING: i32 = -1;
/// The epoch with which a static member goes to come back soon.
pub const PAUSING: i32 = -2;

/// Where a member's requests come from, for those who describe groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Client {
    pub id: Text,
    /// As Kafka writes it: a slash and the address.
    pub host: Text,
}

/// A request that waits for its answer. The group knows it by number only; whoever hands requests
/// in keeps the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter(pub u64);

/// An answer that has become due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Join(Result<Joined, JoinRefused>),
    Sync(Result<Synced, ErrorKind>),
}

/// What a transition brought about besides the new state: answers, in the order they became due.
#[derive(Debug, Default)]
pub struct Effects {
    pub replies: Vec<(Waiter, Reply)>,
}

impl Effects {
    pub fn join(&mut self, waiter: Waiter, answer: Result<Joined, JoinRefused>) {
        self.replies.push((waiter, Reply::Join(answer)));
    }

    pub fn sync(&mut self, waiter: Waiter, answer: Result<Synced, ErrorKind>) {
        self.replies.push((waiter, Reply::Sync(answer)));
    }
}
