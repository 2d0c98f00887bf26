//! The encoding of a group's messages in those of a link.
//!
//! | message | lane | head | body |
//! |---|---|---|---|
//! | request | control | the group's message | [`REQUEST`] |
//! | append alone, as a heartbeat is | control | the group's message | [`APPEND_ALONE`] |
//! | whether a node's process looks gone | control | the node and its boot | [`LOOKS_GONE`] |
//! | it looks gone, or not | control | 1 or 0, then term and index of the log's end here | empty |
//! | epoch of the sender's directory | control | the sender's run, 16 bytes, then the epoch | [`EPOCH`] |
//! | it is received | control | 1 | empty |
//! | whether a node is there | control | empty | [`ARE_YOU_THERE`] |
//! | it is there | control | 1 | empty |
//! | request for a piece of a snapshot | bulk | the group's message | empty |
//! | piece of a snapshot | bulk | the group's reply | the piece |
//! | append of a stream | replication | the group's message | the entries |
//! | a group's reply | the same | the group's reply | empty |
//!
//! Node, boot, term, index and epoch are u64, little-endian. A link checks the head; entries and pieces have
//! checksums of their own.

use base::Level;
use bytes::Bytes;
use consensus::LogEnd;
use links::{Message, NodeId, ReceivedMessage};
use uuid::Uuid;

const REQUEST: &[u8] = &[0];
const APPEND_ALONE: &[u8] = &[1];
const LOOKS_GONE: &[u8] = &[2];
const ARE_YOU_THERE: &[u8] = &[3];
const EPOCH: &[u8] = &[4];
const YES: &[u8] = &[1];
const NO: &[u8] = &[0];

/// A node's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) node: NodeId,
    pub(crate) boot: u64,
}

/// A request on the control lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ControlRequest {
    Request(Bytes),
    /// A lone append without entries.
    AppendAlone(Bytes),
    /// Whether a process looks gone from here.
    LooksGone(Process),
    /// A ping.
    AreYouThere,
    /// Epoch of the sender's data directory, and the run of its process.
    Epoch {
        run: Uuid,
        epoch: u64,
    },
}

base::levels!(ControlRequest {
    Level::FIRST => Request | AppendAlone | LooksGone | AreYouThere;
    Level::EPOCHS => Epoch;
});

impl From<ControlRequest> for Message {
    fn from(asked: ControlRequest) -> Self {
        let (head, kind) = match asked {
            ControlRequest::Request(message) => (message, REQUEST),
            ControlRequest::AppendAlone(message) => (message, APPEND_ALONE),
            ControlRequest::LooksGone(Process { node: NodeId(node), boot }) => {
                let head = [node.to_le_bytes(), boot.to_le_bytes()].concat();
                (head.into(), LOOKS_GONE)
            }
            ControlRequest::AreYouThere => (Bytes::new(), ARE_YOU_THERE),
            ControlRequest::Epoch { run, epoch } => {
                let head = [&run.as_bytes()[..], &epoch.to_le_bytes()].concat();
                (head.into(), EPOCH)
            }
        };
        Self { head, body: vec![Bytes::from_static(kind)] }
    }
}

impl ControlRequest {
    /// `None`: this version does not know the message.
    pub(crate) fn of(ReceivedMessage { head, body }: ReceivedMessage) -> Option<Self> {
        match &body[..] {
            REQUEST => Some(Self::Request(head)),
            APPEND_ALONE => Some(Self::AppendAlone(head)),
            LOOKS_GONE => {
                let (node, boot) = head.split_first_chunk::<8>()?;
                let boot = <[u8; 8]>::try_from(boot).ok()?;
                let node = NodeId(u64::from_le_bytes(*node));
                Some(Self::LooksGone(Process { node, boot: u64::from_le_bytes(boot) }))
            }
            EPOCH => {
                let (run, epoch) = head.split_first_chunk::<16>()?;
                let epoch = u64::from_le_bytes(<[u8; 8]>::try_from(epoch).ok()?);
                Some(Self::Epoch { run: Uuid::from_bytes(*run), epoch })
            }
            ARE_YOU_THERE => head.is_empty().then_some(Self::AreYouThere),
            _ => None,
        }
    }
}

/// The reply to [`ControlRequest::AreYouThere`].
pub(crate) fn is_there() -> Message {
    Message::from_head(Bytes::from_static(YES))
}

/// A voter's reply to [`ControlRequest::LooksGone`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opinion {
    pub(crate) looks_gone: bool,
    /// Log end of the requested shard.
    pub(crate) log_end: LogEnd,
}

impl From<Opinion> for Message {
    fn from(Opinion { looks_gone, log_end: LogEnd { term, index } }: Opinion) -> Self {
        let seen = if looks_gone { YES } else { NO };
        let head = [seen, &term.to_le_bytes()[..], &index.to_le_bytes()[..]].concat();
        Self::from_head(Bytes::from(head))
    }
}

impl Opinion {
    /// `None`: this version does not know the reply.
    pub(crate) fn of(answer: &ReceivedMessage) -> Option<Self> {
        let (seen, rest) = answer.head.split_first_chunk::<1>()?;
        let (term, rest) = rest.split_first_chunk::<8>()?;
        let index = <[u8; 8]>::try_from(rest).ok()?;
        let looks_gone = match &seen[..] {
            YES => true,
            NO => false,
            _ => return None,
        };
        let (term, index) = (u64::from_le_bytes(*term), u64::from_le_bytes(index));
        Some(Self { looks_gone, log_end: LogEnd { term, index } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(Message { head, body }: Message) -> ReceivedMessage {
        ReceivedMessage { head, body: body.concat().into() }
    }

    #[test]
    fn requests_round_trip_and_unknown_kinds_are_rejected() {
        let message = Bytes::from_static(b"a vote");
        let all = [
            ControlRequest::Request(message.clone()),
            ControlRequest::AppendAlone(message.clone()),
            ControlRequest::LooksGone(Process { node: NodeId(7), boot: 8 }),
            ControlRequest::AreYouThere,
            ControlRequest::Epoch { run: Uuid::from_u128(5), epoch: 1 << 40 },
        ];
        for asked in all {
            assert_eq!(ControlRequest::of(received(asked.clone().into())), Some(asked));
        }
        for body in [&b""[..], &[2], &[3], &[4], &[0, 0], &[1, 7]] {
            let body = Bytes::from_static(body);
            assert_eq!(ControlRequest::of(ReceivedMessage { head: message.clone(), body }), None);
        }
    }

    #[test]
    fn opinions_round_trip_and_other_bytes_are_rejected() {
        for looks_gone in [false, true] {
            let opinion = Opinion { looks_gone, log_end: LogEnd { term: 7, index: 1 << 40 } };
            let answer = received(opinion.into());
            assert_eq!(Opinion::of(&answer), Some(opinion));
            let shorter = ReceivedMessage { head: answer.head.slice(1..), body: Bytes::new() };
            assert_eq!(Opinion::of(&shorter), None);
        }
        for head in [&b""[..], &[1], &[2; 17], &[1; 18]] {
            let head = Bytes::from_static(head);
            assert_eq!(Opinion::of(&ReceivedMessage { head, body: Bytes::new() }), None);
        }
    }
}
