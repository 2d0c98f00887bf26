//! What members of both group protocols have in common.

use bytes::Bytes;
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

/// Where a member's requests come from, for those who describe groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Client {
    pub(crate) id: StrBytes,
    /// As Kafka writes it: a slash and the address.
    pub(crate) host: StrBytes,
}

/// A copy with memory of its own. What is decoded from a request points into its frame, and a
/// group that kept ten bytes of it would keep the whole frame.
pub(crate) fn own(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// As [`own`], for bytes.
pub(crate) fn own_bytes(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// A request that waits for its answer. The group knows it by number only; whoever hands requests
/// in keeps the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiter(pub(crate) u64);

/// An answer that has become due.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
}

/// What a transition brought about besides the new state: answers, in the order they became due.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) replies: Vec<(Waiter, Reply)>,
}

impl Effects {
    pub(crate) fn join(&mut self, waiter: Waiter, response: JoinGroupResponse) {
        self.replies.push((waiter, Reply::Join(response)));
    }

    pub(crate) fn sync(&mut self, waiter: Waiter, response: SyncGroupResponse) {
        self.replies.push((waiter, Reply::Sync(response)));
    }
}
