//! Forged bytes: an error, never a panic, and never more memory than the bytes can account for.

use std::collections::BTreeMap;

use base::checksum::crc32c;
use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use machine::catalog::feed::{AdoptedGroup, AdoptedTopic};
use machine::{
    Adoption, Append, BatchKind, Command, DecodeError, Entry, EntryEffects, GroupSettle, Head,
    MinimumCounters, Origin, SentBatch, State, TopicDefinition, Unit, decode_head, encode_head,
};
use proptest::prelude::*;

mod states;

use states::{commands, state, states};

const HEADER_BYTES: usize = 12;

/// Recomputes the checksum, so that the content behind it is decoded.
fn seal(mut snapshot: Vec<u8>) -> Vec<u8> {
    if snapshot.len() >= HEADER_BYTES {
        let checksum = crc32c(&snapshot[HEADER_BYTES..]);
        snapshot[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
    snapshot
}

/// Every decoded state must work.
fn exercise(state: &mut State) {
    let partition = PartitionId::new(TopicId(0), 0);
    let appends: Vec<_> = (0..3)
        .map(|n| Append {
            partition,
            base_offset: state.rows.partition(partition).map_or(0, |found| found.next_offset()),
            span: 2,
            leader_epoch: 9,
            max_timestamp: 0,
            producer_id: n,
            producer_epoch: 0,
            base_sequence: 0,
            kind: BatchKind::Plain,
        })
        .collect();
    let entry = Entry { now_ms: 7, appends: &appends, commands: &commands(), ..Entry::default() };
    state.apply(&entry, &mut EntryEffects::new());
    let bytes = state.encode();
    assert_eq!(State::decode(&bytes).expect("a state that was applied to").encode(), bytes);
}

#[test]
fn any_changed_bit_or_cut_of_a_snapshot_is_detected() {
    states().iter().for_each(every_change_is_noticed);
}

fn every_change_is_noticed(state: &State) {
    let bytes = state.encode();
    assert!(State::decode(&bytes).is_ok());
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(State::decode(&changed).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(State::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        assert!(State::decode(&seal(bytes[..cut].to_vec())).is_err(), "sealed cut at {cut}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(State::decode(&seal(longer)).unwrap_err(), DecodeError::LeftOver { bytes: 1 });
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = state().encode();
    for version in [0, 12] {
        bytes[4] = version;
        let unknown = DecodeError::UnknownVersion { found: version.into(), known: 11 };
        assert_eq!(State::decode(&bytes).unwrap_err(), unknown);
    }
    let mut head = encode_head(0, &[], &[]).to_vec();
    head[0] = 4;
    let unknown = DecodeError::UnknownVersion { found: 4, known: 2 };
    assert_eq!(decode_head(&head).unwrap_err(), unknown);
    assert_eq!(State::decode(b"").unwrap_err(), DecodeError::Empty);
    assert_eq!(State::decode(b"not a snapshot").unwrap_err(), DecodeError::NotASnapshot);
}

/// The format before lease groups: it ended with the offset groups.
#[test]
fn a_snapshot_of_version_1_is_still_read() {
    let mut state = State::new();
    let before = &commands()[..6];
    state.apply(
        &Entry { now_ms: 5, appends: &[], commands: before, ..Entry::default() },
        &mut EntryEffects::new(),
    );
    let mut old = state.encode();
    // There never were lease groups or documents; the last byte is the time.
    assert_eq!(old.split_off(old.len() - 5), [0, 0, 0, 0, 10]);
    old[4] = 1;
    let mut restored = State::decode(&seal(old)).unwrap();
    assert_eq!(restored, state);
    assert_eq!(restored.encode(), state.encode());
    exercise(&mut restored);
}

/// [`state`] as written by the version without the time of the log.
const VERSION_2: &str = "\
         50524d5302000000854d6e65010201106c6f672e726574656e74696f6e2e6d73023737010167011b636f6e7375\
         6d65722e73657373696f6e2e74696d656f75742e6d730237370101000000000000000000000000000000000303\
         612e620a010c726574656e74696f6e2e6d73023737030207010300020203040602000c00040000000202020404\
         04060606000000020c0003000001020203040405000000000000000cd00f0000000000000167010001ac020401\
         6d0c0112010101010000046d61696e01086c656173652e6d730237370302010203040607020204050100000000\
         000c017301640103010203";

#[test]
fn a_snapshot_of_version_2_is_still_read() {
    let digits: Vec<u8> =
        VERSION_2.chars().filter_map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let mut restored = State::decode(&bytes).unwrap();
    assert_eq!(restored, state());
    exercise(&mut restored);
}

/// Without messages between shards the older format is written, which an older program reads.
#[test]
fn only_rows_with_channels_or_members_are_of_a_later_version() {
    assert_eq!(states().map(|state| state.encode()[4]), [3, 4, 4, 5, 6, 6, 8, 10, 11]);
}

#[test]
fn counts_that_the_bytes_cannot_hold_are_refused_at_once() {
    // A catalog that announces 2^63 topics, or partitions, and ends.
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    let empty = State::new().encode();
    // next_topic 0, next_producer_id 0, no node configuration, no group configurations
    // no topics, no groups; no lease groups, no documents, and the counts of each; the time
    assert_eq!(empty[HEADER_BYTES..], [0; 11]);
    for kept in 2..=9 {
        let mut bytes = empty[..HEADER_BYTES + kept].to_vec();
        bytes.extend_from_slice(&huge);
        bytes.push(0);
        assert!(State::decode(&seal(bytes)).is_err(), "after {kept}");
    }
    let mut head = vec![1, 0];
    head.extend_from_slice(&huge);
    assert!(decode_head(&head).is_err());
}

#[test]
fn heads_are_decoded_unchanged() {
    for (now_ms, commands) in [(0, vec![]), (i64::MIN, commands()), (i64::MAX, commands())] {
        let units =
            [Unit { first_append: 2, appends: 3, commands: 1, origin: None, brought: None }];
        let units = &units[..usize::from(!commands.is_empty())];
        let head = encode_head(now_ms, &commands, units);
        let decoded = decode_head(&head).expect("it was encoded by us");
        assert_eq!((decoded.now_ms, decoded.commands), (now_ms, commands));
        assert_eq!(decoded.units, units);
        for cut in 0..head.len() {
            assert!(decode_head(&head[..cut]).is_err(), "cut at {cut}");
        }
    }
}

/// Existing logs contain the ordinals of commands: they must not change.
#[test]
fn the_persisted_form_of_commands_does_not_change() {
    assert_eq!(encode_head(3, &[], &[]), [2, 6, 0, 0].as_slice());
    let units = [Unit { first_append: 2, appends: 3, commands: 0, origin: None, brought: None }];
    assert_eq!(encode_head(3, &[], &units), [2, 6, 1, 2, 3, 0, 0, 0].as_slice());
    // A message of the channel from shard 2, whose incarnation is 0.
    let origin = Some(Origin { shard: ShardId(2), number: 300, next: 301 });
    let units = [Unit { first_append: 2, appends: 3, commands: 0, origin, brought: None }];
    let expected = [2, 6, 1, 2, 3, 0, 1, 0, 2, 0, 0xac, 2, 0xad, 2, 0];
    assert_eq!(encode_head(3, &[], &units), expected.as_slice());
    let topic = TopicId(5);
    let partition = PartitionId::new(topic, 2);
    let group = || "g".to_owned();
    let lease_group = LeaseGroupId(4);
    let settle = GroupSettle {
        group: lease_group,
        partition: 2,
        settled: vec![(7, 3)],
        attempts: vec![(9, 300)],
    };
    let adoption = Adoption {
        from: 1,
        to: 300,
        all: false,
        topics: vec![AdoptedTopic {
            topic,
            first: 1,
            step: 3,
            partitions: 9,
            deletes_settled: true,
        }],
        groups: vec![AdoptedGroup { group: lease_group, topic, starts: vec![7] }],
        topics_gone: vec![topic],
        groups_gone: vec![lease_group],
    };
    let sent = SentBatch { bytes: 300, targets: vec![partition] };
    let skipped =
        MinimumCounters { version: 300, next_topic: 5, next_lease_group: 4, next_producer_id: 7 };
    let persisted: [(Command, &[u8]); 31] = [
        (Command::CreateTopics { topics: vec![] }, &[0, 0]),
        (Command::DeleteTopic { topic }, &[1, 5]),
        (Command::CreatePartitions { topic, total: 9 }, &[2, 5, 9]),
        (Command::SetTopicConfig { topic, config: BTreeMap::new() }, &[3, 5, 0]),
        (Command::SetNodeConfig { config: BTreeMap::new() }, &[4, 0]),
        (Command::SetGroupConfig { group: group(), config: BTreeMap::new() }, &[5, 1, b'g', 0]),
        (Command::AdvanceStart { starts: vec![(partition, 7)] }, &[6, 1, 5, 2, 7]),
        (Command::Compacted { partition, up_to: 7 }, &[7, 5, 2, 7]),
        (Command::AllocateProducerId, &[8]),
        (Command::CommitOffsets { group: group(), offsets: vec![] }, &[9, 1, b'g', 0]),
        (Command::DeleteOffsets { group: group(), partitions: vec![] }, &[10, 1, b'g', 0]),
        (Command::DeleteGroup { group: group() }, &[11, 1, b'g']),
        (Command::ExpireOffsets { groups: vec![], before_ms: 1 }, &[12, 0, 2]),
        (Command::ExpireProducers { before_ms: 1 }, &[13, 2]),
        (
            Command::CreateLeaseGroup {
                topic,
                name: group(),
                starts: vec![1, 2],
                config: BTreeMap::new(),
            },
            &[14, 5, 1, b'g', 2, 1, 2, 0],
        ),
        (Command::SetLeaseGroupConfig { group: lease_group, config: BTreeMap::new() }, &[15, 4, 0]),
        (Command::DeleteLeaseGroup { group: lease_group }, &[16, 4]),
        (Command::PauseLeaseGroup { group: lease_group, paused: true }, &[17, 4, 1]),
        (Command::SeekLeaseGroup { group: lease_group, starts: vec![(2, 7)] }, &[18, 4, 1, 2, 7]),
        (Command::Settle { settles: vec![settle] }, &[19, 1, 4, 2, 1, 7, 3, 1, 9, 0xac, 2]),
        (
            Command::PutDocument { space: group(), name: group(), body: vec![9], expect: Some(3) },
            &[20, 1, b'g', 1, b'g', 1, 9, 1, 3],
        ),
        (
            Command::DeleteDocument { space: group(), name: group(), expect: None },
            &[21, 1, b'g', 1, b'g', 0],
        ),
        (Command::SetShards { count: 3 }, &[22, 3]),
        (
            Command::Adopt(adoption),
            &[23, 1, 0xac, 2, 0, 1, 5, 1, 3, 9, 1, 1, 4, 5, 1, 7, 1, 5, 1, 4],
        ),
        (Command::AllocateProducerIds { count: 300 }, &[24, 0xac, 2]),
        (Command::Send { to: ShardId(2), batches: vec![sent] }, &[25, 2, 1, 0xac, 2, 1, 5, 2]),
        (Command::Acknowledged { to: ShardId(2), below: 300 }, &[26, 2, 0xac, 2]),
        (Command::SkipNumbers(skipped), &[28, 0xac, 2, 5, 4, 14]),
        (
            Command::ResumeChannels { sent: vec![(ShardId(2), 300)], taken: vec![(ShardId(3), 1)] },
            &[29, 1, 2, 0xac, 2, 1, 3, 1],
        ),
        (
            Command::ChangeTopic {
                topic,
                seen: TopicDefinition { partitions: 2, config: BTreeMap::new() },
                wanted: TopicDefinition { partitions: 300, config: [(group(), group())].into() },
            },
            &[30, 5, 2, 0, 0xac, 2, 1, 1, b'g', 1, b'g'],
        ),
        (
            Command::KeepMembers { groups: vec![(group(), vec![9, 0xff])] },
            &[31, 1, 1, b'g', 2, 9, 0xff],
        ),
    ];
    for (command, bytes) in persisted {
        let head = encode_head(3, std::slice::from_ref(&command), &[]);
        assert_eq!(&head[..4], [2, 6, 0, 1]);
        assert_eq!(&head[4..], bytes, "{command:?}");
        // The format before units.
        let version_1 = decode_head(&[&[1, 6, 1], bytes].concat()).expect("it is still read");
        assert_eq!((version_1.now_ms, version_1.commands), (3, vec![command]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(State::decode(&bytes).is_err());
        let _ = decode_head(&bytes);
        let mut headed = State::new().encode()[..HEADER_BYTES].to_vec();
        headed.extend_from_slice(&bytes);
        if let Ok(mut state) = State::decode(&seal(headed)) {
            exercise(&mut state);
        }
    }

    /// Changed bytes behind a right checksum: refused, or a valid state.
    #[test]
    fn a_forged_snapshot_is_refused_or_sound(
        state in prop::sample::select(states().to_vec()),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = state.encode();
        for (place, value) in changes {
            let place = HEADER_BYTES + place.index(bytes.len() - HEADER_BYTES);
            bytes[place] = value;
        }
        if let Ok(mut state) = State::decode(&seal(bytes)) {
            exercise(&mut state);
        }
    }

    #[test]
    fn a_forged_head_is_refused_or_can_be_applied(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut head = {
            let units = [
                Unit { first_append: 0, appends: 2, commands: 1, origin: None, brought: None },
                Unit { first_append: 3, appends: 0, commands: 2, origin: None, brought: None },
            ];
            encode_head(5, &commands(), &units).to_vec()
        };
        for (place, value) in changes {
            let place = place.index(head.len());
            head[place] = value;
        }
        if let Ok(Head { now_ms, commands, units, .. }) = decode_head(&head) {
            for mut state in states() {
                let (appends, commands) = (&[][..], &commands[..]);
                let entry = Entry { now_ms, leader_epoch: None, appends, commands, units: &units };
                state.apply(&entry, &mut EntryEffects::new());
                let bytes = state.encode();
                let restored = State::decode(&bytes);
                prop_assert!(restored.is_ok(), "{:?}", restored);
            }
        }
    }
}
