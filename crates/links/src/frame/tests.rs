//! Properties of frames for arbitrary input.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use gateway::UnsentOutput;
use proptest::prelude::*;
use tokio::io::{AsyncRead, ReadBuf};
use world::Instant;

use super::{Frame, HEADER_BYTES, Header, Incoming, Kind, Message, QueuedFrame, write_frame};
use crate::end::Violation;

const BYTES_MAX: usize = 64 << 10;

/// Returns bytes in pieces of these sizes, and then the end.
struct Socket<'a> {
    bytes: &'a [u8],
    pieces: Vec<usize>,
}

impl AsyncRead for Socket<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let piece = self.pieces.pop().unwrap_or(7);
        let (now, later) = self.bytes.split_at(piece.min(buffer.remaining()).min(self.bytes.len()));
        buffer.put_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}

fn allow(header: &Header) -> Result<(), Violation> {
    let bytes = header.length as usize;
    if bytes > BYTES_MAX { Err(Violation::TooLong { bytes, max: BYTES_MAX }) } else { Ok(()) }
}

/// The frames until the end or a violation, and the peak of held memory.
fn receive(
    bytes: &[u8],
    pieces: Vec<usize>,
    ahead: usize,
) -> (Vec<Frame>, Option<Violation>, usize) {
    let mut socket = Socket { bytes, pieces };
    let mut incoming = Incoming::new(ahead);
    let (mut frames, mut held) = (Vec::new(), 0);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        loop {
            match incoming.next(allow) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(violation) => return (frames, Some(violation), held),
            }
            held = held.max(incoming.held());
        }
        held = held.max(incoming.held());
        match incoming.poll_read(&mut context, &mut socket) {
            Poll::Ready(Ok(0)) if socket.bytes.is_empty() => return (frames, None, held),
            Poll::Ready(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn encode(frames: Vec<QueuedFrame>) -> Vec<u8> {
    let mut unsent = UnsentOutput::default();
    for frame in frames {
        write_frame(frame, Instant::now(), &mut unsent);
    }
    let mut bytes = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while !unsent.is_empty() {
        assert!(unsent.poll_write(&mut context, &mut bytes).is_ready());
    }
    bytes
}

fn message() -> impl Strategy<Value = Message> {
    let piece = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    let head = prop_oneof![
        9 => piece(),
        1 => prop::collection::vec(any::<u8>(), 4_000..5_000).prop_map(Bytes::from)
    ];
    (head, prop::collection::vec(piece(), 0..4)).prop_map(|(head, body)| Message { head, body })
}

fn outgoing() -> impl Strategy<Value = QueuedFrame> {
    let kind = prop_oneof![Just(Kind::Request), Just(Kind::Reply), Just(Kind::Append)];
    (kind, any::<u16>(), any::<u32>(), message()).prop_map(|(kind, shard, number, message)| {
        QueuedFrame { shard, ..QueuedFrame::new(kind, number, message) }
    })
}

proptest! {
    #[test]
    fn frames_decode_to_the_sent_ones_for_any_split(
        frames in prop::collection::vec(outgoing(), 0..8),
        pieces in prop::collection::vec(1_usize..2_000, 0..64),
        ahead in prop_oneof![Just(HEADER_BYTES), Just(64), Just(4_096)],
    ) {
        let sent: Vec<_> = frames
            .iter()
            .map(|it| (it.kind, it.shard, it.number, it.message.head.clone(), it.message.body.concat()))
            .collect();
        let (received, violation, _) = receive(&encode(frames), pieces, ahead);
        prop_assert_eq!(violation, None);
        let received: Vec<_> = received
            .into_iter()
            .map(|Frame { header, message, .. }| {
                (header.kind, header.shard, header.number, message.head, message.body.to_vec())
            })
            .collect();
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn corrupt_header_or_head_is_detected_without_a_large_allocation(
        frame in outgoing(),
        at in any::<prop::sample::Index>(),
        change in 1_u8..,
        pieces in prop::collection::vec(1_usize..2_000, 0..16),
    ) {
        let covered = HEADER_BYTES + 8 + frame.message.head.len() + 4;
        let mut bytes = encode(vec![frame]);
        let at = at.index(covered);
        bytes[at] ^= change;
        let (received, violation, held) = receive(&bytes, pieces, HEADER_BYTES);
        prop_assert!(received.is_empty());
        // A far too large length of the head may not fit the message.
        prop_assert!(
            matches!(violation, Some(Violation::Header | Violation::Message | Violation::Layout)),
            "{:?}", violation
        );
        prop_assert!(held <= bytes.len() + 64, "{} of {}", held, bytes.len());
    }

    #[test]
    fn arbitrary_bytes_are_rejected_or_wait_for_more(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        pieces in prop::collection::vec(1_usize..500, 0..16),
    ) {
        let (_, _, held) = receive(&bytes, pieces, 4_096);
        prop_assert!(held <= BYTES_MAX + 4_096 + 64);
    }
}

#[test]
fn too_long_frame_is_rejected_before_memory_is_allocated() {
    let mut bytes = BytesMut::new();
    let header = Header { length: u32::MAX, kind: Kind::Request, flags: 0, shard: 0, number: 1 };
    header.encode(&mut bytes);
    let (_, violation, held) = receive(&bytes, Vec::new(), HEADER_BYTES);
    assert_eq!(violation, Some(Violation::TooLong { bytes: u32::MAX as usize, max: BYTES_MAX }));
    assert!(held < 1_000, "{held}");
}

#[test]
fn received_message_is_slices_of_one_buffer_and_a_large_one_is_not_copied() {
    let message = Message { head: vec![1; 10].into(), body: vec![vec![2; 30_000].into()] };
    let bytes = encode(vec![QueuedFrame::new(Kind::Append, 1, message)]);
    let (received, _, _) = receive(&bytes, vec![100_000; 8], HEADER_BYTES);
    let [Frame { message, .. }] = &received[..] else { panic!("{received:?}") };
    // The body begins right behind the head and its checksum.
    assert_eq!(message.body.as_ptr() as usize, message.head.as_ptr() as usize + 10 + 4);
}

#[test]
fn message_without_its_parts_is_rejected() {
    let mut bytes = BytesMut::new();
    Header { length: 5, kind: Kind::Reply, flags: 0, shard: 0, number: 1 }.encode(&mut bytes);
    bytes.extend_from_slice(&[0; 5]);
    assert_eq!(receive(&bytes, Vec::new(), HEADER_BYTES).1, Some(Violation::Layout));
}
