//! The first words of a connection: who connects says who it is and what it wants, and who accepts does the
//! same or says why not. A refusal goes to the other side too, whose operator has to do something about it.
//!
//! ```text
//! Hello    magic "PRln"  versions min u16 max u16  identity  node that it wants u64  lane u8
//! Welcome  magic "PRln"  version u16  identity
//! identity cluster 16 bytes  node u64  directory 16 bytes  boot u64  run 16 bytes
//! ```
//!
//! What a later version adds stands behind this.
//!
//! A node of no cluster yet presents a provisional one, and looks for no node by number. Who accepts it says who
//! it is and closes the connection: so the newcomer learns which cluster it will be part of.

use std::future::poll_fn;

use base::limits::LINK_HANDSHAKE_BYTES_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use gateway::Unsent;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use uuid::Uuid;
use world::Instant;

use crate::end::{ConnectError, End, Violation};
use crate::frame::{Frame, HEADER_BYTES, Header, Incoming, Kind, Message, Outgoing, write_frame};
use crate::identity::{Admission, DirectoryIdentity, Identity, NodeId};
use crate::lane::Lane;
use crate::refusal::{Refusal, Versions};
use crate::seen::Seen;

const MAGIC: &[u8; 4] = b"PRln";
const IDENTITY_BYTES: usize = 64;
/// Who introduces itself takes whoever is at the address.
const ANY_NODE: NodeId = NodeId(0);

/// What a side of a handshake knows.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) ours: &'a Identity,
    pub(crate) seen: &'a Seen,
    pub(crate) admission: &'a dyn Admission,
}

impl Side<'_> {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        self.seen.admit(self.ours, peer, self.admission)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hello {
    versions: Versions,
    peer: Identity,
    wanted: NodeId,
    lane: u8,
}

/// Who has connected.
pub(crate) enum Arrival {
    /// What was read beyond the handshake is in the last of these.
    Peer(Identity, Lane, Incoming),
    /// A node of no cluster, which was told who this one is, and hears no more.
    Newcomer(Identity),
}

/// The side that connects. What was read beyond the handshake is in what it returns.
pub(crate) async fn connect<W>(
    wire: &mut W,
    side: Side<'_>,
    wanted: NodeId,
    lane: Lane,
) -> Result<(Identity, Incoming), ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let (version, peer, mut incoming) = greet(wire, side.ours, wanted, lane).await?;
    let presented = Versions { min: version, max: version };
    let refusal = if peer.at.node != wanted {
        Refusal::AnotherNode { wanted, found: peer.at.node }
    } else if Versions::OURS.common(presented).is_none() {
        Refusal::NoCommonVersion { spoken: Versions::OURS, presented }
    } else if let Err(refusal) = side.admit(&peer) {
        refusal
    } else {
        incoming.read_ahead(lane.read_ahead());
        return Ok((peer, incoming));
    };
    // If it cannot be said the connection is closed all the same.
    let _ = say(wire, Kind::Refused, refusal.encode()).await;
    Err(ConnectError::RefusedHere(refusal))
}

/// The side that connects and is of no cluster yet: who accepts.
pub(crate) async fn introduce<W>(wire: &mut W, ours: &Identity) -> Result<Identity, ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let (version, peer, _) = greet(wire, ours, ANY_NODE, Lane::Control).await?;
    let presented = Versions { min: version, max: version };
    match Versions::OURS.common(presented) {
        Some(_) => Ok(peer),
        None => Err(ConnectError::RefusedHere(Refusal::NoCommonVersion {
            spoken: Versions::OURS,
            presented,
        })),
    }
}

/// Says hello and hears who answers, in which version.
async fn greet<W>(
    wire: &mut W,
    ours: &Identity,
    wanted: NodeId,
    lane: Lane,
) -> Result<(u16, Identity, Incoming), ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let hello = Hello { versions: Versions::OURS, peer: *ours, wanted, lane: lane as u8 };
    say(wire, Kind::Hello, hello.encode()).await.map_err(ConnectError::Ended)?;
    let mut incoming = Incoming::new(HEADER_BYTES);
    let Frame { header, message, .. } =
        hear(wire, &mut incoming).await.map_err(ConnectError::Ended)?;
    let unreadable = || ConnectError::Ended(End::Violation(Violation::Handshake));
    match header.kind {
        Kind::Refused => {
            let refusal = Refusal::decode(&message.head).ok_or_else(unreadable)?;
            Err(ConnectError::Refused(refusal))
        }
        Kind::Welcome => {
            let (version, peer) = decode_welcome(message.head).ok_or_else(unreadable)?;
            Ok((version, peer, incoming))
        }
        _ => Err(ConnectError::Ended(End::Violation(header.not_allowed()))),
    }
}

/// The side that accepts. Its error is [`ConnectError::RefusedHere`] where it refuses, which the peer was told.
pub(crate) async fn accept<W>(wire: &mut W, side: Side<'_>) -> Result<Arrival, ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let mut incoming = Incoming::new(HEADER_BYTES);
    let Frame { header, message, .. } =
        hear(wire, &mut incoming).await.map_err(ConnectError::Ended)?;
    if header.kind != Kind::Hello {
        return Err(ConnectError::Ended(End::Violation(header.not_allowed())));
    }
    let hello = Hello::decode(message.head)
        .ok_or(ConnectError::Ended(End::Violation(Violation::Handshake)))?;
    match judge(&hello, side) {
        Ok((version, lane)) => {
            let welcome = encode_welcome(version, side.ours);
            say(wire, Kind::Welcome, welcome).await.map_err(ConnectError::Ended)?;
            let Some(lane) = lane else {
                let _ = wire.shutdown().await;
                return Ok(Arrival::Newcomer(hello.peer));
            };
            incoming.read_ahead(lane.read_ahead());
            Ok(Arrival::Peer(hello.peer, lane, incoming))
        }
        Err(refusal) => {
            let _ = say(wire, Kind::Refused, refusal.encode()).await;
            // Closing while something is unread would take the refusal from the peer.
            let _ = wire.shutdown().await;
            Err(ConnectError::RefusedHere(refusal))
        }
    }
}

/// Without a lane it is a newcomer, who gets none.
fn judge(hello: &Hello, side: Side<'_>) -> Result<(u16, Option<Lane>), Refusal> {
    let (spoken, presented) = (Versions::OURS, hello.versions);
    let version = spoken.common(presented).ok_or(Refusal::NoCommonVersion { spoken, presented })?;
    // Who reached a wrong cluster hears that, whichever node it looked for.
    let DirectoryIdentity { cluster, node: found, .. } = side.ours.at;
    if hello.peer.at.cluster != cluster {
        side.admission.admit_newcomer(side.ours, &hello.peer)?;
        return Ok((version, None));
    }
    if hello.wanted != found {
        return Err(Refusal::AnotherNode { wanted: hello.wanted, found });
    }
    side.admit(&hello.peer)?;
    let lane = Lane::of_code(hello.lane).ok_or(Refusal::UnknownLane { code: hello.lane })?;
    Ok((version, Some(lane)))
}

/// Before the peer has shown who it is, whatever it sends.
fn allow(header: &Header) -> Result<(), Violation> {
    match header.kind {
        Kind::Hello | Kind::Welcome | Kind::Refused => {
            header.check_length(LINK_HANDSHAKE_BYTES_MAX)
        }
        _ => Err(header.not_allowed()),
    }
}

async fn hear<R: AsyncRead + Unpin>(wire: &mut R, incoming: &mut Incoming) -> Result<Frame, End> {
    loop {
        if let Some(frame) = incoming.next(allow)? {
            return Ok(frame);
        }
        let read = poll_fn(|context| incoming.poll_read(context, wire)).await;
        if read.map_err(|error| End::of(&error))? == 0 {
            return Err(End::Closed);
        }
    }
}

async fn say<W: AsyncWrite + Unpin>(wire: &mut W, kind: Kind, head: Bytes) -> Result<(), End> {
    let mut unsent = Unsent::default();
    let frame = Outgoing::new(kind, 0, Message::of_head(head));
    write_frame(frame, Instant::now(), &mut unsent);
    while !unsent.is_empty() {
        let written = poll_fn(|context| unsent.poll_write(context, wire)).await;
        written.map_err(|error| End::of(&error))?;
    }
    wire.flush().await.map_err(|error| End::of(&error))
}

impl Hello {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(128);
        out.put_slice(MAGIC);
        out.put_u16_le(self.versions.min);
        out.put_u16_le(self.versions.max);
        put_identity(&mut out, &self.peer);
        out.put_u64_le(self.wanted.0);
        out.put_u8(self.lane);
        out.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < 4 + 4 + IDENTITY_BYTES + 9 || bytes.split_to(4) != MAGIC[..] {
            return None;
        }
        let versions = Versions { min: bytes.get_u16_le(), max: bytes.get_u16_le() };
        let peer = identity(&mut bytes);
        Some(Self { versions, peer, wanted: NodeId(bytes.get_u64_le()), lane: bytes.get_u8() })
    }
}

fn encode_welcome(version: u16, ours: &Identity) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    out.put_slice(MAGIC);
    out.put_u16_le(version);
    put_identity(&mut out, ours);
    out.freeze()
}

fn decode_welcome(mut bytes: Bytes) -> Option<(u16, Identity)> {
    if bytes.len() < 4 + 2 + IDENTITY_BYTES || bytes.split_to(4) != MAGIC[..] {
        return None;
    }
    Some((bytes.get_u16_le(), identity(&mut bytes)))
}

fn put_identity(out: &mut BytesMut, identity: &Identity) {
    let Identity { at, run } = identity;
    out.put_slice(at.cluster.as_bytes());
    out.put_u64_le(at.node.0);
    out.put_slice(at.directory.as_bytes());
    out.put_u64_le(at.boot);
    out.put_slice(run.as_bytes());
}

/// The caller has seen that [`IDENTITY_BYTES`] are there.
fn identity(bytes: &mut Bytes) -> Identity {
    let uuid = |bytes: &mut Bytes| Uuid::from_u128(bytes.get_u128());
    let cluster = uuid(bytes);
    let node = NodeId(bytes.get_u64_le());
    let directory = uuid(bytes);
    let boot = bytes.get_u64_le();
    Identity { at: DirectoryIdentity { cluster, node, directory, boot }, run: uuid(bytes) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn a_node() -> Identity {
        let at = DirectoryIdentity {
            cluster: Uuid::from_u128(1),
            node: NodeId(2),
            directory: Uuid::from_u128(3),
            boot: 4,
        };
        Identity { at, run: Uuid::from_u128(5) }
    }

    #[test]
    fn what_is_said_is_understood_also_with_what_a_later_version_adds() {
        let versions = Versions { min: 1, max: 7 };
        let hello = Hello { versions, peer: a_node(), wanted: NodeId(9), lane: 3 };
        let mut bytes = BytesMut::from(&hello.encode()[..]);
        bytes.put_slice(b"later");
        assert_eq!(Hello::decode(bytes.freeze()), Some(hello));
        assert_eq!(decode_welcome(encode_welcome(6, &a_node())), Some((6, a_node())));
    }

    proptest! {
        #[test]
        fn other_bytes_are_no_handshake(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_welcome(Bytes::from(bytes.clone()));
            if let Some(first) = bytes.first_mut() {
                *first = 0;
            }
            prop_assert_eq!(Hello::decode(Bytes::from(bytes)), None);
        }
    }
}
