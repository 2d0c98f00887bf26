//! Messages: they round-trip, and arbitrary bytes cause no panic.

use bytes::Bytes;
use journal::Encoded;
use openraft::entry::RaftEntry;
use proptest::prelude::*;

use super::snapshots::SectionRecord;
use super::*;
use crate::engine::Entry;
use crate::engine::log_id;
use crate::machine::Payload;

const GROUP: GroupId = GroupId { cluster: 7 << 100, shard: 3 };
const FIRST: Route = Route { group: GROUP, here: 1 };
const SECOND: Route = Route { group: GROUP, here: 2 };

fn requests() -> Vec<Request> {
    let vote = VoteRecord { term: 5, node: 1, committed: false };
    let leader = VoteRecord { committed: true, ..vote };
    let last = Some(Position { term: 4, index: 99 });
    let candidacy = Candidacy { vote, last, transfer: true };
    let append =
        Append { leader, previous: last, committed: None, entries: 2, with_all: Some(u64::MAX) };
    vec![
        Request::Vote(candidacy.clone()),
        Request::PreVote(candidacy),
        Request::Transfer(Transfer { leader, to: 2, last }),
        Request::Snapshot(SnapshotOffer { leader, last, address: "a:1".to_owned() }),
        Request::Manifest(ManifestRequest { have: 7 }),
        Request::Section(SectionRequest { sending: 1, section: 3, from: u64::MAX }),
        Request::Segment(SegmentRequest { sending: 1, segment: 9, row: 0 }),
        Request::Covering(CoveringRequest { have: 7, up_to: 1 << 40 }),
        Request::Append(append),
    ]
}

fn manifest() -> ManifestRecord {
    let section = SectionRecord { bytes: 1 << 30, crc: 7 };
    ManifestRecord { sending: 5, index: 9, term: 3, leader: 1, sections: [section; 4] }
}

fn replies() -> Vec<Reply> {
    let vote = VoteRecord { term: 5, node: 9, committed: false };
    let at = Position { term: 4, index: 99 };
    vec![
        Reply::Vote { vote, granted: true, last: None },
        Reply::Transfer(TransferReply::Taken),
        Reply::Transfer(TransferReply::VoteChanged { expected: vote, actual: vote }),
        Reply::Transfer(TransferReply::NotDurable { expected: Some(at), actual: None }),
        Reply::Append(AppendResponse::Matches(Some(at))),
        Reply::Append(AppendResponse::Conflict(at)),
        Reply::Append(AppendResponse::HigherVote(vote)),
        Reply::Refused(Refusal::NotHeld),
        Reply::Refused(Refusal::Behind),
        Reply::Offered(OfferReply::UnderWay { bytes: 3, of_bytes: 1 << 40 }),
        Reply::Offered(OfferReply::Has),
        Reply::Offered(OfferReply::HigherVote(vote)),
        Reply::Manifest(manifest()),
        Reply::Piece(PieceRecord { next: Some(7) }),
        Reply::Refused(Refusal::Malformed("why".to_owned())),
    ]
}

/// Encoded entries that follow one of index 4.
fn entries(count: u64) -> Bytes {
    let encoded = (5..5 + count).flat_map(|index| {
        let id = journal::EntryId { term: 3, leader: 8, index };
        let body = journal::Body {
            stream: index,
            base_offset: 1,
            span: 1,
            max_timestamp: -1,
            bytes: vec![index as u8; 30].into(),
        };
        let kind = journal::EntryKind::Command;
        let entry = journal::Entry { id, kind, head: "head".into(), bodies: vec![body] };
        Encoded::new(entry).pieces().collect::<Vec<_>>()
    });
    encoded.flatten().collect()
}

fn follow(bytes: Bytes, count: u32) -> Result<Vec<Entry>, Refusal> {
    decode_entries(bytes, count, Some(log_id(3, 4)), 3)
}

#[test]
fn requests_and_replies_round_trip_between_members() {
    for request in requests() {
        let message = FIRST.encode(2, request.clone());
        assert_eq!(SECOND.decode(&message), Ok((1, request)));
    }
    for reply in replies() {
        let message = SECOND.encode(1, reply.clone());
        assert_eq!(FIRST.decode(&message), Ok((2, reply)));
    }
}

#[test]
fn message_for_another_member_or_group_is_rejected() {
    let request = requests().remove(0);
    let third = Route { here: 3, ..SECOND };
    let refused = third.decode::<Request>(&FIRST.encode(2, request.clone()));
    assert_eq!(refused, Err(Refusal::OtherNode));
    for group in [GroupId { cluster: 8, ..GROUP }, GroupId { shard: 4, ..GROUP }] {
        let stranger = Route { group, ..FIRST };
        let refused = SECOND.decode::<Request>(&stranger.encode(2, request.clone()));
        assert_eq!(refused, Err(Refusal::OtherGroup));
    }
}

#[test]
fn request_in_the_name_of_another_member_is_rejected() {
    let third = Route { here: 3, ..FIRST };
    // Any member may request a snapshot.
    let anybody_may = |request: &Request| {
        matches!(
            request,
            Request::Manifest(_) | Request::Section(_) | Request::Segment(_) | Request::Covering(_)
        )
    };
    for request in requests().into_iter().filter(|request| !anybody_may(request)) {
        let refused = SECOND.decode::<Request>(&third.encode(2, request));
        assert!(matches!(refused, Err(Refusal::Malformed(_))), "{refused:?}");
    }
}

#[test]
fn later_version_and_impossible_numbers_are_rejected() {
    let mut later = FIRST.encode(2, requests().remove(0)).to_vec();
    later[0] = 2;
    let Err(Refusal::Malformed(why)) = SECOND.decode::<Request>(&later) else { panic!("taken") };
    assert!(why.contains("version 2"), "{why}");
    let vote = VoteRecord { term: u64::MAX, node: 1, committed: false };
    let request = Request::Vote(Candidacy { vote, last: None, transfer: false });
    let refused = SECOND.decode::<Request>(&FIRST.encode(2, request));
    assert!(matches!(refused, Err(Refusal::Malformed(_))), "{refused:?}");
}

#[test]
fn entries_must_match_the_count_the_predecessor_and_the_term() {
    let decoded = follow(entries(3), 3).unwrap();
    let ids: Vec<_> =
        decoded.iter().map(|entry| (entry.index(), entry.encoded.is_some())).collect();
    assert_eq!(ids, [(5, true), (6, true), (7, true)]);
    let sent = encode_entries(&decoded);
    assert_eq!(sent.pieces.concat(), entries(3), "they are sent on as they came");
    assert_eq!(sent.bytes, entries(3).len());
    let Payload { bodies, .. } = match &decoded[0].payload {
        openraft::EntryPayload::Normal(payload) => payload.clone(),
        other => panic!("{other}"),
    };
    assert_eq!(bodies[0].bytes, vec![5; 30]);

    follow(entries(3), 2).unwrap_err();
    follow(entries(3), 4).unwrap_err();
    follow(entries(3), u32::MAX).unwrap_err();
    decode_entries(entries(3), 3, Some(log_id(3, 5)), 3).unwrap_err();
    decode_entries(entries(3), 3, Some(log_id(4, 4)), 4).unwrap_err();
    decode_entries(entries(3), 3, Some(log_id(1, 4)), 2).unwrap_err();
    decode_entries(entries(3), 3, None, 3).unwrap_err();
    let twice = [entries(1), entries(1)].concat();
    follow(twice.into(), 2).unwrap_err();
}

#[test]
fn bodies_are_encoded_without_a_copy() {
    let buffer = entries(2);
    let decoded = follow(buffer.clone(), 2).unwrap();
    let within = buffer.as_ptr_range();
    for piece in encode_entries(&decoded).pieces {
        assert!(within.contains(&piece.as_ptr()));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(SECOND.decode::<Request>(&bytes).is_err());
        prop_assert!(SECOND.decode::<Reply>(&bytes).is_err());
        prop_assert!(follow(bytes.into(), 1).is_err());
    }

    /// Also with a valid checksum.
    #[test]
    fn changed_content_with_a_valid_checksum_is_checked(
        content in prop::collection::vec(any::<u8>(), 0..100),
        which in 0_usize..5,
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let seal = |content: &[u8]| {
            let checksum = crc32c(content).to_le_bytes();
            [&[VERSION][..], &checksum, content].concat()
        };
        let _ = SECOND.decode::<Request>(&seal(&content));
        let _ = SECOND.decode::<Reply>(&seal(&content));
        let mut content = FIRST.encode(2, requests().remove(which))[CONTENT_AT..].to_vec();
        let place = place.index(content.len());
        content[place] = byte;
        if let Ok((from, request)) = SECOND.decode::<Request>(&seal(&content)) {
            prop_assert!(request.holds(from));
        }
    }

    #[test]
    fn entries_with_a_changed_or_missing_byte_are_rejected(
        place in any::<prop::sample::Index>(),
        byte in 1..=u8::MAX,
        len in any::<prop::sample::Index>(),
    ) {
        let whole = entries(3);
        let mut damaged = whole.to_vec();
        damaged[place.index(whole.len())] ^= byte;
        prop_assert!(follow(damaged.into(), 3).is_err());
        prop_assert!(follow(whole.slice(..len.index(whole.len())), 3).is_err());
    }
}
