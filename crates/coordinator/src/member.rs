//! Parts that members of all group protocols have in common.

use crate::Text;
use crate::classic::{JoinGroupReply, JoinRefused, SyncGroupReply};
use crate::error::ErrorKind;

/// The epoch of a joining member (KIP-848).
pub const JOINING: i32 = 0;
/// The epoch of a leaving member.
pub const LEAVING: i32 = -1;
/// The epoch of a static member that leaves temporarily.
pub const PAUSING: i32 = -2;

/// The origin of a member's requests, for descriptions of groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Client {
    pub id: Text,
    /// In Kafka's notation: a slash and the address.
    pub host: Text,
}

/// A request that waits for its reply. The group knows its number only; the caller keeps the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter(pub u64);

/// A reply that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Join(Result<JoinGroupReply, JoinRefused>),
    Sync(Result<SyncGroupReply, ErrorKind>),
}

/// Side effects of a transition: replies, in the order in which they became due.
#[derive(Debug, Default)]
pub struct Effects {
    pub replies: Vec<(Waiter, Reply)>,
}

impl Effects {
    pub fn join(&mut self, waiter: Waiter, answer: Result<JoinGroupReply, JoinRefused>) {
        self.replies.push((waiter, Reply::Join(answer)));
    }

    pub fn sync(&mut self, waiter: Waiter, answer: Result<SyncGroupReply, ErrorKind>) {
        self.replies.push((waiter, Reply::Sync(answer)));
    }
}
