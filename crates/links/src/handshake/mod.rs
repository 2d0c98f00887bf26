//! The handshake: the connecting node sends its identity and the node and lane that it wants. The accepting node
//! replies with its identity or with a refusal. The connecting side also sends its refusal, because the operator
//! of the other side has to act on it.
//!
//! ```text
//! Hello    magic "PRln"  versions min u16 max u16  identity  node that it wants u64  lane u8
//!          of a node that joins: length of its address u16  address
//!          levels min u16 max u16  epoch u64
//! Welcome  magic "PRln"  version u16  identity
//!          the number of a node that joins, to others 0, u64
//!          levels min u16 max u16  epoch u64
//! identity cluster 16 bytes  node u64  directory 16 bytes  boot u64  run 16 bytes
//! ```
//!
//! Fields of later versions follow. A version before epochs sends none, and has epoch 0. A peer that sends no
//! levels supports the first one.
//!
//! A node without a cluster presents a provisional one, and wants no node by number. The accepting node sends its
//! identity and closes the connection. So the newcomer learns the cluster that it will be part of, and, if it
//! joins one that is already founded, its number there.

mod seen_runs;

use std::future::poll_fn;

use crate::limits::LINK_HANDSHAKE_BYTES_MAX;
use base::{Level, Levels};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use gateway::UnsentOutput;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use uuid::Uuid;
use world::Instant;

use crate::end::{ConnectError, ConnectionEnd, Violation};
use crate::frame::{
    Frame, HEADER_BYTES, Header, Incoming, Kind, Message, QueuedFrame, write_frame,
};
use crate::identity::{Admission, DirectoryIdentity, Identity, JOINING, JoiningNode};
use crate::lane::Lane;
use crate::node_id::NodeId;
use crate::refusal::{Refusal, Versions};

pub(crate) use seen_runs::SeenRuns;

const MAGIC: &[u8; 4] = b"PRln";
const IDENTITY_BYTES: usize = 64;
/// The wanted node of an introduction, which accepts any node at the address.
const ANY_NODE: NodeId = NodeId(0);

/// The inputs of one side of a handshake.
#[derive(Clone, Copy)]
pub(crate) struct HandshakeSide<'a> {
    pub(crate) ours: &'a Identity,
    pub(crate) seen: &'a SeenRuns,
    pub(crate) admission: &'a dyn Admission,
}

impl HandshakeSide<'_> {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        self.seen.admit(self.ours, peer, self.admission)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Hello {
    versions: Versions,
    peer: Identity,
    wanted: NodeId,
    lane: u8,
    /// The address at which a joining node can be reached.
    joins_at: Option<String>,
}

/// The reply of the accepting side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Welcome {
    version: u16,
    peer: Identity,
    /// The number of the joining node.
    joined_as: Option<NodeId>,
}

/// The outcome of a hello.
enum Verdict {
    Peer(Lane),
    Newcomer,
    Joined(NodeId),
}

/// Length limit of the address of a joining node.
const ADDRESS_BYTES_MAX: usize = 300;

/// The result of an accepted connection.
pub(crate) enum AcceptedConnection {
    /// Bytes read beyond the handshake are in the last of these.
    Peer(Identity, Lane, Incoming),
    /// A node without a cluster, which got the identity of this one, and nothing more.
    Newcomer(Identity),
}

/// The connecting side. The result includes bytes read beyond the handshake.
pub(crate) async fn connect<W>(
    wire: &mut W,
    side: HandshakeSide<'_>,
    wanted: NodeId,
    lane: Lane,
) -> Result<(Identity, Incoming), ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let hello = Hello::of(side.ours, wanted, lane);
    let (Welcome { version, peer, .. }, mut incoming) = greet(wire, hello).await?;
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
    // If it cannot be sent the connection is closed nevertheless.
    let _ = send(wire, Kind::Refused, refusal.encode()).await;
    Err(ConnectError::RefusedHere(refusal))
}

/// The connecting side of a node without a cluster: returns the accepting node's identity.
pub(crate) async fn introduce<W>(wire: &mut W, ours: &Identity) -> Result<Identity, ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let (welcome, _) = greet(wire, Hello::of(ours, ANY_NODE, Lane::Control)).await?;
    check_version(&welcome)?;
    Ok(welcome.peer)
}

/// The connecting side of a joining node: returns the accepting node's identity, and its own number.
pub(crate) async fn join<W>(
    wire: &mut W,
    ours: &Identity,
    address: &str,
) -> Result<(Identity, NodeId), ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let joins_at = Some(address.to_owned());
    let hello = Hello { joins_at, ..Hello::of(ours, ANY_NODE, Lane::Control) };
    let (welcome, _) = greet(wire, hello).await?;
    check_version(&welcome)?;
    let violated = ConnectError::Ended(ConnectionEnd::Violation(Violation::Handshake));
    Ok((welcome.peer, welcome.joined_as.ok_or(violated)?))
}

fn check_version(welcome: &Welcome) -> Result<(), ConnectError> {
    let presented = Versions { min: welcome.version, max: welcome.version };
    let spoken = Versions::OURS;
    let refusal = || ConnectError::RefusedHere(Refusal::NoCommonVersion { spoken, presented });
    spoken.common(presented).map(drop).ok_or_else(refusal)
}

/// Sends hello and receives the reply.
async fn greet<W>(wire: &mut W, hello: Hello) -> Result<(Welcome, Incoming), ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    send(wire, Kind::Hello, hello.encode()).await.map_err(ConnectError::Ended)?;
    let mut incoming = Incoming::new(HEADER_BYTES);
    let Frame { header, message, .. } =
        receive(wire, &mut incoming).await.map_err(ConnectError::Ended)?;
    let unreadable = || ConnectError::Ended(ConnectionEnd::Violation(Violation::Handshake));
    match header.kind {
        Kind::Refused => {
            let refusal = Refusal::decode(&message.head).ok_or_else(unreadable)?;
            Err(ConnectError::Refused(refusal))
        }
        Kind::Welcome => {
            let welcome = Welcome::decode(message.head).ok_or_else(unreadable)?;
            Ok((welcome, incoming))
        }
        _ => Err(ConnectError::Ended(ConnectionEnd::Violation(header.not_allowed()))),
    }
}

/// The accepting side. Its error is [`ConnectError::RefusedHere`] if it refuses, which was sent to the peer.
pub(crate) async fn accept<W>(
    wire: &mut W,
    side: HandshakeSide<'_>,
) -> Result<AcceptedConnection, ConnectError>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let mut incoming = Incoming::new(HEADER_BYTES);
    let Frame { header, message, .. } =
        receive(wire, &mut incoming).await.map_err(ConnectError::Ended)?;
    if header.kind != Kind::Hello {
        return Err(ConnectError::Ended(ConnectionEnd::Violation(header.not_allowed())));
    }
    let hello = Hello::decode(message.head)
        .ok_or(ConnectError::Ended(ConnectionEnd::Violation(Violation::Handshake)))?;
    match decide(&hello, side) {
        Ok((version, verdict)) => {
            let joined_as = match verdict {
                Verdict::Joined(node) => Some(node),
                Verdict::Newcomer | Verdict::Peer(_) => None,
            };
            let welcome = Welcome { version, peer: *side.ours, joined_as };
            send(wire, Kind::Welcome, welcome.encode()).await.map_err(ConnectError::Ended)?;
            let Verdict::Peer(lane) = verdict else {
                let _ = wire.shutdown().await;
                return Ok(AcceptedConnection::Newcomer(hello.peer));
            };
            incoming.read_ahead(lane.read_ahead());
            Ok(AcceptedConnection::Peer(hello.peer, lane, incoming))
        }
        Err(refusal) => {
            let _ = send(wire, Kind::Refused, refusal.encode()).await;
            // Closing while bytes are unread would drop the refusal before the peer reads it.
            let _ = wire.shutdown().await;
            Err(ConnectError::RefusedHere(refusal))
        }
    }
}

fn decide(hello: &Hello, side: HandshakeSide<'_>) -> Result<(u16, Verdict), Refusal> {
    let (spoken, presented) = (Versions::OURS, hello.versions);
    let version = spoken.common(presented).ok_or(Refusal::NoCommonVersion { spoken, presented })?;
    // A node that reached a wrong cluster learns that, whatever node it wanted.
    let DirectoryIdentity { cluster, node: found, .. } = side.ours.at;
    if let (JOINING, Some(address)) = (hello.peer.at.cluster, &hello.joins_at) {
        let DirectoryIdentity { directory, boot, .. } = hello.peer.at;
        let levels = hello.peer.levels;
        let joining = JoiningNode { directory, boot, address: address.clone(), levels };
        let node = side.admission.admit_joining(side.ours, &joining)?;
        return Ok((version, Verdict::Joined(node)));
    }
    if hello.peer.at.cluster != cluster {
        side.admission.admit_newcomer(side.ours, &hello.peer)?;
        return Ok((version, Verdict::Newcomer));
    }
    if hello.wanted == ANY_NODE {
        // It is in this cluster already and checks whether it would be admitted.
        side.admission.admit(&hello.peer)?;
    }
    if hello.wanted != found {
        return Err(Refusal::AnotherNode { wanted: hello.wanted, found });
    }
    side.admit(&hello.peer)?;
    let lane = Lane::from_code(hello.lane).ok_or(Refusal::UnknownLane { code: hello.lane })?;
    Ok((version, Verdict::Peer(lane)))
}

/// Frames that are allowed before the peer has authenticated.
fn allow(header: &Header) -> Result<(), Violation> {
    match header.kind {
        Kind::Hello | Kind::Welcome | Kind::Refused => {
            header.check_length(LINK_HANDSHAKE_BYTES_MAX)
        }
        _ => Err(header.not_allowed()),
    }
}

async fn receive<R: AsyncRead + Unpin>(
    wire: &mut R,
    incoming: &mut Incoming,
) -> Result<Frame, ConnectionEnd> {
    loop {
        if let Some(frame) = incoming.next(allow)? {
            return Ok(frame);
        }
        let read = poll_fn(|context| incoming.poll_read(context, wire)).await;
        if read.map_err(|error| ConnectionEnd::of(&error))? == 0 {
            return Err(ConnectionEnd::Closed);
        }
    }
}

async fn send<W: AsyncWrite + Unpin>(
    wire: &mut W,
    kind: Kind,
    head: Bytes,
) -> Result<(), ConnectionEnd> {
    let mut unsent = UnsentOutput::default();
    let frame = QueuedFrame::new(kind, 0, Message::from_head(head));
    write_frame(frame, Instant::now(), &mut unsent);
    while !unsent.is_empty() {
        let written = poll_fn(|context| unsent.poll_write(context, wire)).await;
        written.map_err(|error| ConnectionEnd::of(&error))?;
    }
    wire.flush().await.map_err(|error| ConnectionEnd::of(&error))
}

impl Hello {
    fn of(ours: &Identity, wanted: NodeId, lane: Lane) -> Self {
        let (versions, peer, lane) = (Versions::OURS, *ours, lane as u8);
        Self { versions, peer, wanted, lane, joins_at: None }
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(128);
        out.put_slice(MAGIC);
        out.put_u16_le(self.versions.min);
        out.put_u16_le(self.versions.max);
        put_identity(&mut out, &self.peer);
        out.put_u64_le(self.wanted.0);
        out.put_u8(self.lane);
        if let Some(address) = &self.joins_at {
            let address = &address[..address.floor_char_boundary(ADDRESS_BYTES_MAX)];
            out.put_u16_le(address.len() as u16);
            out.put_slice(address.as_bytes());
        }
        put_levels(&mut out, self.peer.levels);
        out.put_u64_le(self.peer.at.epoch);
        out.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < 4 + 4 + IDENTITY_BYTES + 9 || bytes.split_to(4) != MAGIC[..] {
            return None;
        }
        let versions = Versions { min: bytes.get_u16_le(), max: bytes.get_u16_le() };
        let mut peer = identity(&mut bytes);
        let (wanted, lane) = (NodeId(bytes.get_u64_le()), bytes.get_u8());
        let joins = peer.at.cluster == JOINING;
        let joins_at = if joins { Some(address(&mut bytes)?) } else { None };
        peer.levels = levels(&mut bytes);
        peer.at.epoch = epoch(&mut bytes);
        Some(Self { versions, peer, wanted, lane, joins_at })
    }
}

fn address(bytes: &mut Bytes) -> Option<String> {
    let length = usize::from(bytes.try_get_u16_le().ok()?);
    if length > ADDRESS_BYTES_MAX {
        return None;
    }
    let address = std::str::from_utf8(bytes.get(..length)?).ok()?.to_owned();
    bytes.advance(length);
    Some(address)
}

fn put_levels(out: &mut BytesMut, levels: Levels) {
    out.put_u16_le(levels.min.0);
    out.put_u16_le(levels.max.0);
}

fn levels(bytes: &mut Bytes) -> Levels {
    match (bytes.try_get_u16_le(), bytes.try_get_u16_le()) {
        (Ok(min), Ok(max)) => Levels { min: Level(min), max: Level(max) },
        _ => Levels::UNTOLD,
    }
}

fn epoch(bytes: &mut Bytes) -> u64 {
    bytes.try_get_u64_le().unwrap_or(0)
}

impl Welcome {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(128);
        out.put_slice(MAGIC);
        out.put_u16_le(self.version);
        put_identity(&mut out, &self.peer);
        out.put_u64_le(self.joined_as.map_or(0, |node| node.0));
        put_levels(&mut out, self.peer.levels);
        out.put_u64_le(self.peer.at.epoch);
        out.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < 4 + 2 + IDENTITY_BYTES || bytes.split_to(4) != MAGIC[..] {
            return None;
        }
        let (version, mut peer) = (bytes.get_u16_le(), identity(&mut bytes));
        let joined_as = bytes.try_get_u64_le().ok().filter(|node| *node != 0).map(NodeId);
        peer.levels = levels(&mut bytes);
        peer.at.epoch = epoch(&mut bytes);
        Some(Self { version, peer, joined_as })
    }
}

fn put_identity(out: &mut BytesMut, identity: &Identity) {
    let Identity { at, run, levels: _ } = identity;
    out.put_slice(at.cluster.as_bytes());
    out.put_u64_le(at.node.0);
    out.put_slice(at.directory.as_bytes());
    out.put_u64_le(at.boot);
    out.put_slice(run.as_bytes());
}

/// The caller has checked that [`IDENTITY_BYTES`] are available.
fn identity(bytes: &mut Bytes) -> Identity {
    let uuid = |bytes: &mut Bytes| Uuid::from_u128(bytes.get_u128());
    let cluster = uuid(bytes);
    let node = NodeId(bytes.get_u64_le());
    let directory = uuid(bytes);
    let boot = bytes.get_u64_le();
    let (at, run) = (DirectoryIdentity { cluster, node, directory, boot, epoch: 0 }, uuid(bytes));
    Identity { at, run, levels: Levels::UNTOLD }
}

/// Every decoded first frame decodes to the same value after it is encoded again.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_round_trip(said: Bytes) {
    if let Some(hello) = Hello::decode(said.clone()) {
        assert_eq!(Hello::decode(hello.encode()), Some(hello));
    }
    if let Some(welcome) = Welcome::decode(said) {
        assert_eq!(Welcome::decode(welcome.encode()), Some(welcome));
    }
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
            epoch: 6,
        };
        let levels = Levels { min: Level(2), max: Level(300) };
        Identity { at, run: Uuid::from_u128(5), levels }
    }

    #[test]
    fn handshake_decodes_with_fields_of_a_later_version() {
        let versions = Versions { min: 1, max: 7 };
        let hello = Hello { versions, peer: a_node(), wanted: NodeId(9), lane: 3, joins_at: None };
        let mut bytes = BytesMut::from(&hello.encode()[..]);
        bytes.put_slice(b"later");
        assert_eq!(Hello::decode(bytes.freeze()), Some(hello));
        let welcome = Welcome { version: 6, peer: a_node(), joined_as: None };
        assert_eq!(Welcome::decode(welcome.encode()), Some(welcome));
        let mut bytes = BytesMut::from(&welcome.encode()[..]);
        bytes.put_slice(b"later");
        assert_eq!(Welcome::decode(bytes.freeze()), Some(welcome));
    }

    #[test]
    fn peer_without_levels_supports_the_first_level() {
        let earlier = DirectoryIdentity { epoch: 0, ..a_node().at };
        let untold = Identity { levels: Levels::UNTOLD, at: earlier, ..a_node() };
        let hello = Hello::of(&a_node(), NodeId(9), Lane::Bulk);
        let bytes = hello.encode();
        let without_epoch = Identity { at: earlier, ..a_node() };
        let shorter = bytes.slice(..bytes.len() - 8);
        assert_eq!(Hello::decode(shorter), Some(Hello { peer: without_epoch, ..hello.clone() }));
        let earlier = bytes.slice(..bytes.len() - 12);
        assert_eq!(Hello::decode(earlier), Some(Hello { peer: untold, ..hello }));
        let welcome = Welcome { version: 1, peer: a_node(), joined_as: None };
        let earlier = welcome.encode().slice(..4 + 2 + IDENTITY_BYTES);
        assert_eq!(Welcome::decode(earlier), Some(Welcome { peer: untold, ..welcome }));
    }

    #[test]
    fn joining_node_sends_its_address_and_receives_its_number() {
        let mut peer = a_node();
        peer.at.cluster = JOINING;
        let joins_at = Some("four.example:7700".to_owned());
        let hello = Hello { joins_at, ..Hello::of(&peer, ANY_NODE, Lane::Control) };
        let mut bytes = BytesMut::from(&hello.encode()[..]);
        bytes.put_slice(b"later");
        assert_eq!(Hello::decode(bytes.freeze()), Some(hello.clone()));
        let welcome = Welcome { version: 1, peer: a_node(), joined_as: Some(NodeId(4)) };
        assert_eq!(Welcome::decode(welcome.encode()), Some(welcome));

        let whole = hello.encode();
        let without = Hello { joins_at: None, ..hello.clone() };
        let without = without.encode();
        let untold = without.slice(..without.len() - 12);
        assert_eq!(Hello::decode(untold), None, "it must say where it is");
        // The levels are behind the address.
        assert_eq!(Hello::decode(whole.slice(..whole.len() - 13)), None);
        let long = Hello { joins_at: Some("a".repeat(5_000)), ..hello };
        let read = Hello::decode(long.encode()).expect("it is cut").joins_at;
        assert_eq!(read.map(|address| address.len()), Some(ADDRESS_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_handshake(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Welcome::decode(Bytes::from(bytes.clone()));
            if let Some(first) = bytes.first_mut() {
                *first = 0;
            }
            prop_assert_eq!(Hello::decode(Bytes::from(bytes)), None);
        }
    }
}
