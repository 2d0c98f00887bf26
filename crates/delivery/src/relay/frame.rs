//! Encoding of a relay's batches in messages of a link.
//!
//! | request of the node that is not the leader | head | body |
//! |---|---|---|
//! | begin | [`Request::Begin`] | empty |
//! | send | [`Request::Send`], then `items` times [`RelayCommand`] | batches to append |
//! | poll | [`Request::Poll`] | empty |
//!
//! Replies are a [`Reply`]; [`Reply::Notifications`] is followed by `items` times [`RelayNotification`], whose records are the
//! body. A link checks the head; the head has a checksum of the records, and batches have their own.

use crate::limits::{RELAY_BATCH_ITEMS_MAX, RELAY_HEAD_BYTES_MAX};
use base::Level;
use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;
use links::{Message, ReceivedMessage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shard_peers::wire;

use super::items::{RelayCommand, RelayNotification};

/// Identifies a relay, among those that a node has served since it first started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RelayId {
    /// Boot number of the leader.
    pub(super) boot: u64,
    pub(super) number: u64,
}

/// A request to a leader. A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Begin(BeginRelay),
    Send {
        relay: RelayId,
        /// From 0.
        number: u64,
        /// Index up to which the requesting node has applied the catalog's log: the request may refer to that
        /// state.
        catalog: u64,
        items: u32,
    },
    Poll {
        relay: RelayId,
        /// Number of the batch in the reply, from 0.
        number: u64,
    },
}

base::levels!(Request {
    Level::FIRST => Begin | Send | Poll;
});

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BeginRelay {
    /// Boot number of the node that begins.
    pub(super) boot: u64,
    /// Number of its attempt since it started. A late one does not end a later one's relay.
    pub(super) attempt: u64,
    /// Term of the leader, if known to the requesting node.
    pub(super) term: Option<u64>,
}

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The term in which the node leads.
    Begun {
        relay: RelayId,
        term: u64,
    },
    /// A batch was accepted.
    Accepted,
    Notifications {
        items: u32,
        checksum: u32,
    },
    /// The relay does not exist, has ended, or cannot begin.
    Over,
}

base::levels!(Reply {
    Level::FIRST => Begun | Accepted | Notifications | Over;
});

/// A message of another node is malformed, or of a later version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum MalformedFrame {
    #[error("the head cannot be read")]
    Head,
    #[error("there is more in it than a batch may hold")]
    TooMuch,
    #[error("its records cannot be read")]
    Records,
    #[error("the records' checksum is wrong")]
    Checksum,
    #[error("a session may not say that")]
    Invalid,
    #[error("a session or a consumer of another node, or one that is not there")]
    NotOwned,
}

pub(super) fn request(request: &Request) -> Message {
    Message::from_head(head_of(wire::relay_head(), request, &[]))
}

pub(super) fn request_with_items(
    request: &Request,
    items: &[Vec<u8>],
    body: Vec<Bytes>,
) -> Message {
    Message { head: head_of(wire::relay_head(), request, items), body }
}

/// Reads the part after [`wire::relay_head`], with the body.
pub(super) fn read_request(
    head: &[u8],
    body: Bytes,
) -> Result<(Request, Vec<RelayCommand>, Bytes), MalformedFrame> {
    let (request, rest) = start(head)?;
    let count = match &request {
        Request::Send { items, .. } => *items,
        Request::Begin(_) | Request::Poll { .. } => 0,
    };
    let items = items(rest, count)?;
    Ok((request, items, body))
}

pub(super) fn reply(reply: &Reply) -> Message {
    Message::from_head(head_of(&[], reply, &[]))
}

/// A batch of messages to sessions.
pub(super) fn notifications(items: &[Vec<u8>], body: Vec<Bytes>) -> Message {
    let checksum = body.iter().fold(0, |sum, part| crc32c_append(sum, part));
    let reply = Reply::Notifications { items: items.len() as u32, checksum };
    Message { head: head_of(&[], &reply, items), body }
}

pub(super) fn read_reply(
    received: ReceivedMessage,
) -> Result<(Reply, Vec<RelayNotification>, Bytes), MalformedFrame> {
    let ReceivedMessage { head, body } = received;
    let (reply, rest) = start(&head)?;
    let count = match reply {
        Reply::Notifications { items, checksum } => {
            if crc32c(&body) != checksum {
                return Err(MalformedFrame::Checksum);
            }
            items
        }
        _ => 0,
    };
    let items = items(rest, count)?;
    Ok((reply, items, body))
}

pub(super) fn encoded(item: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(item).expect("what a relay carries can be written")
}

fn head_of(before: &[u8], first: &impl Serialize, items: &[Vec<u8>]) -> Bytes {
    let first = encoded(first);
    let bytes = before.len() + first.len() + items.iter().map(Vec::len).sum::<usize>();
    let mut head = Vec::with_capacity(bytes);
    head.extend_from_slice(before);
    head.extend_from_slice(&first);
    items.iter().for_each(|item| head.extend_from_slice(item));
    head.into()
}

fn start<T: DeserializeOwned>(head: &[u8]) -> Result<(T, &[u8]), MalformedFrame> {
    if head.len() > RELAY_HEAD_BYTES_MAX {
        return Err(MalformedFrame::TooMuch);
    }
    postcard::take_from_bytes(head).map_err(|_| MalformedFrame::Head)
}

fn items<T: DeserializeOwned>(mut rest: &[u8], count: u32) -> Result<Vec<T>, MalformedFrame> {
    if count as usize > RELAY_BATCH_ITEMS_MAX {
        return Err(MalformedFrame::TooMuch);
    }
    let mut items = Vec::new();
    for _ in 0..count {
        let (item, behind) = postcard::take_from_bytes(rest).map_err(|_| MalformedFrame::Head)?;
        items.push(item);
        rest = behind;
    }
    rest.is_empty().then_some(items).ok_or(MalformedFrame::Head)
}
