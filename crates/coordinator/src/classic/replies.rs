//! Replies of a classic group, and the requests that wait for them.

use bytes::Bytes;

use crate::Text;
use crate::error::ErrorKind;

/// The reply to a JoinGroup request of an admitted member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinGroupReply {
    pub generation: i32,
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    pub leader: Text,
    pub member_id: Text,
    /// It leads, and must not assign (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: the members with their metadata.
    pub members: Vec<JoinedMember>,
}

/// See [`JoinGroupReply::members`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinedMember {
    pub id: Text,
    pub instance_id: Option<Text>,
    pub metadata: Bytes,
}

/// The reply to a JoinGroup request of a rejected member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRefused {
    /// With [`ErrorKind::MemberIdRequired`], its new member id.
    pub member_id: Text,
    pub error: ErrorKind,
}

/// The reply to a SyncGroup request: the leader's assignment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncGroupReply {
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    pub assignment: Bytes,
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
