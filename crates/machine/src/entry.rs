//! Entries of the log, and the encoding of their heads.
//!
//! An entry has bodies (batches, which the journal keeps) and a head (time, commands, units). This
//! module encodes the head; the machine sees only an [`Append`] of each body.
//!
//! The leader puts the requests of many clients into one entry. Each append and each command stands
//! alone, unless a [`Unit`] binds some of them: those take effect together or not at all, on every
//! replica. A refused append of one client therefore never voids another client's.

use base::{Format, Level, Levelled, Levels, Offset, PartitionId, ShardId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::command::{Command, EndedPart, ProducerKey};
use crate::sequence::{BatchSequence, RowSequence};

/// The content of a log entry in the order of application: the appends in the order of the bodies,
/// each unit at the place of its appends, then the commands that stand alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<'a> {
    /// The leader's clock, ms since the epoch. The state's time never goes back, even if this clock
    /// does.
    pub now_ms: i64,
    /// The leader epoch that each append must have: the term in which the entry was proposed.
    /// `None` for a head of version 1, which does not guarantee it.
    pub leader_epoch: Option<i32>,
    pub appends: &'a [Append],
    /// Commands of the units first, in their order.
    pub commands: &'a [Command],
    /// Ascending, not overlapping.
    pub units: &'a [Unit],
}

/// One body: its partition, and the fields of its batch's 61-byte header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Append {
    pub partition: PartitionId,
    pub base_offset: Offset,
    /// Number of offsets that the batch covers: its last offset delta plus one.
    pub span: u32,
    pub leader_epoch: i32,
    pub max_timestamp: i64,
    /// -1: no producer; epoch and sequence are then unused.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub kind: BatchKind,
}

/// Relation of a batch to a transaction of its producer, from the attributes of its header and, of a marker, the key of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BatchKind {
    #[default]
    Plain,
    /// Records of the producer's open transaction.
    Transactional,
    /// Marker: the producer's transaction is committed in the partition.
    Commit,
    /// Marker: it is aborted.
    Abort,
}

impl BatchKind {
    /// `marker`: whether the marker that the batch is commits its transaction; `None` for a batch that is no marker.
    pub fn of(is_transactional: bool, marker: Option<bool>) -> Self {
        match marker {
            Some(commit) => Self::marker(commit),
            None if is_transactional => Self::Transactional,
            None => Self::Plain,
        }
    }

    /// The marker of an end.
    pub fn marker(commit: bool) -> Self {
        if commit { Self::Commit } else { Self::Abort }
    }

    pub fn is_marker(self) -> bool {
        matches!(self, Self::Commit | Self::Abort)
    }
}

impl Append {
    /// Its producer, which is not valid unless there is one.
    pub fn producer(&self) -> ProducerKey {
        ProducerKey { id: self.producer_id, epoch: self.producer_epoch }
    }

    /// Whether it is a marker of this end.
    pub fn is_marker_of(&self, part: &EndedPart) -> bool {
        self.kind == BatchKind::marker(part.commit)
            && self.span == 1
            && self.producer() == part.producer
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The offset after its last record.
    pub fn end(&self) -> Offset {
        self.base_offset.saturating_add(u64::from(self.span))
    }

    /// The same batch without its producer. In channels the message numbers detect duplicates.
    pub(crate) fn without_producer(self) -> Self {
        Self { producer_id: -1, kind: BatchKind::Plain, ..self }
    }

    /// The batch as a message has it: only a marker keeps its producer.
    pub(crate) fn message_form(self) -> Self {
        if self.kind.is_marker() { self } else { self.without_producer() }
    }

    /// Its place among its producer's batches.
    pub fn sequence(&self) -> BatchSequence {
        BatchSequence::new(self.producer_epoch, self.base_sequence, self.span)
    }
}

/// Neighbouring appends and commands of an entry that take effect together or not at all.
///
/// Only commands that can be validated beforehand may be in a unit: any number of `Settle`, one
/// `Send` or `SendWith` to each shard, and one `PutDocument` or `DeleteDocument`; or the end of a transaction with its
/// markers and messages; or one `Join` or `Open` of a transaction, alone. Any other command
/// makes the unit refused. The unit of a message has the `FromMessage`s of that message, and `Send`s
/// of what goes on to other shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unit {
    /// The number of its first append in the entry; for a unit without appends, of the append that
    /// follows it.
    pub first_append: u32,
    pub appends: u32,
    pub commands: u32,
    /// The unit is a message from another shard: it takes effect once, even if it is in the log
    /// repeatedly.
    pub origin: Option<Origin>,
    /// The unit has only appends brought by another node. Each of them stands alone, and takes
    /// effect once, even if it is in the log repeatedly.
    pub brought: Option<RowSequence>,
}

/// Identity of a message in a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The shard that sent it.
    pub shard: ShardId,
    pub number: Offset,
    /// The number of the next message.
    pub next: Offset,
}

/// An entry's head, decoded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub now_ms: i64,
    pub commands: Vec<Command>,
    pub units: Vec<Unit>,
    /// Whether its appends have the term of the entry as their leader epoch. Version 1 does not
    /// guarantee it.
    pub epochs_are_terms: bool,
}

/// First byte of every head. Version 1 has no units, and can still be read.
const VERSION: u8 = 2;
const _: () = assert!(VERSION as u32 == Format::EntryHead.newest(Levels::OURS.max));
const VERSION_WITHOUT_UNITS: u8 = 1;
/// The level at which it was written, u16 little-endian, then a head of version 2. The first level
/// is omitted, so that binaries without levels can read it. A reader that does not support the
/// level learns the required one before it decodes the head.
const VERSION_WITH_LEVEL: u8 = 3;

/// Size of a head without commands and units: version, varint of a time, two zeros.
const BYTES_TYPICAL: usize = 16;

/// A unit in its persisted form.
#[derive(Serialize, Deserialize)]
struct UnitV2 {
    /// Standalone appends between the previous unit and this one.
    appends_between: u32,
    appends: u32,
    commands: u32,
    /// Numbered sender, so that the unit is applied once even if it is sent repeatedly.
    origin: Option<OriginV2>,
}

#[derive(Serialize, Deserialize)]
enum OriginV2 {
    /// A message of the channel from another shard. The incarnation is that of the shard, and 0: it
    /// is reserved for recreated shards.
    Channel { shard: u64, incarnation: u64, number: u64, next: u64 },
    /// Rows brought by another node (since level 5), with the node's incarnation and the number of
    /// the first row.
    Request { node: u64, incarnation: u64, number: u64 },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("there is nothing to decode")]
    Empty,
    #[error("not a machine snapshot")]
    NotASnapshot,
    #[error("version {found} is not known here (up to {known} is)")]
    UnknownVersion { found: u32, known: u32 },
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Checksum { expected: u32, found: u32 },
    #[error("{what} cannot be decoded: {source}")]
    Malformed { what: &'static str, source: postcard::Error },
    #[error("{bytes} bytes are left over")]
    LeftOver { bytes: usize },
    #[error("{what} {name:?} is not consistent")]
    Inconsistent { what: &'static str, name: String },
    #[error("a later version wrote this entry: it came from another node")]
    FromElsewhere,
    #[error(
        "it was written at feature level {needed}, and this program supports {can}: start a later one, as the other \
         nodes of the cluster run"
    )]
    Level { needed: Level, can: Levels },
}

/// Encodes a head at the first level: see [`encode_head_at`].
pub fn encode_head(now_ms: i64, commands: &[Command], units: &[Unit]) -> Bytes {
    encode_head_at(Level::FIRST, now_ms, commands, units)
}

/// Encodes a head at the cluster's level. `commands` has those of the units first. A command that
/// requires a later level raises it: its creator knows that the cluster has reached it, which this
/// node may not have learned.
pub fn encode_head_at(level: Level, now_ms: i64, commands: &[Command], units: &[Unit]) -> Bytes {
    let level = commands.iter().map(Levelled::level).fold(level, Ord::max);
    let is_brought = units.iter().any(|unit| unit.brought.is_some());
    let level = if is_brought { level.max(Level::NUMBERED) } else { level };
    let mut head = Vec::with_capacity(BYTES_TYPICAL);
    if level > Level::FIRST {
        head.push(VERSION_WITH_LEVEL);
        head.extend_from_slice(&level.0.to_le_bytes());
    }
    head.push(VERSION);
    let mut end = 0;
    let units: Vec<UnitV2> = units
        .iter()
        .map(|unit| {
            let appends_between = unit.first_append - end;
            end = unit.first_append + unit.appends;
            let Unit { appends, commands, origin, brought, .. } = *unit;
            let origin = origin.map(OriginV2::from).or(brought.map(OriginV2::from));
            UnitV2 { appends_between, appends, commands, origin }
        })
        .collect();
    let head = postcard::to_extend(&(now_ms, units, commands), head)
        .expect("a vector grows, and no command holds a type that postcard cannot encode");
    Bytes::from(head)
}

/// Decodes a head of any level supported by this version: see [`decode_head_within`].
pub fn decode_head(head: &[u8]) -> Result<Head, DecodeError> {
    decode_head_within(Levels::OURS, head)
}

/// Decodes a head if it was written at one of these levels.
pub fn decode_head_within(can: Levels, head: &[u8]) -> Result<Head, DecodeError> {
    let Some(([VERSION_WITH_LEVEL, level @ ..], rest)) = head.split_first_chunk::<3>() else {
        return decode_content(head);
    };
    let needed = Level(u16::from_le_bytes(*level));
    match can.has(needed) {
        true => decode_content(rest),
        false => Err(DecodeError::Level { needed, can }),
    }
}

fn decode_content(head: &[u8]) -> Result<Head, DecodeError> {
    let (&version, rest) = head.split_first().ok_or(DecodeError::Empty)?;
    let (head, rest) = match version {
        VERSION_WITHOUT_UNITS => {
            let ((now_ms, commands), rest) = take(rest)?;
            (Head { now_ms, commands, ..Head::default() }, rest)
        }
        VERSION => {
            let (decoded, rest) = take::<(i64, Vec<UnitV2>, Vec<Command>)>(rest)?;
            let (now_ms, units, commands) = decoded;
            let units = decode_units(units, commands.len())?;
            (Head { now_ms, commands, units, epochs_are_terms: true }, rest)
        }
        _ => {
            let (found, known) = (u32::from(version), u32::from(VERSION));
            return Err(DecodeError::UnknownVersion { found, known });
        }
    };
    if rest.is_empty() { Ok(head) } else { Err(DecodeError::LeftOver { bytes: rest.len() }) }
}

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), DecodeError> {
    postcard::take_from_bytes(bytes)
        .map_err(|source| DecodeError::Malformed { what: "an entry's head", source })
}

fn decode_units(stored: Vec<UnitV2>, commands_there: usize) -> Result<Vec<Unit>, DecodeError> {
    let senseless = || DecodeError::Inconsistent { what: "a unit", name: String::new() };
    let mut units = Vec::with_capacity(stored.len());
    let (mut end, mut commands_bound) = (0_u32, 0_usize);
    for UnitV2 { appends_between, appends, commands, origin } in stored {
        let (origin, brought) = match origin {
            Some(OriginV2::Channel { shard, incarnation: 0, number, next }) => {
                let shard = ShardId(u32::try_from(shard).map_err(|_| senseless())?);
                (Some(Origin { shard, number, next }), None)
            }
            // A recreated shard sent it.
            Some(OriginV2::Channel { .. }) => return Err(DecodeError::FromElsewhere),
            Some(OriginV2::Request { node, incarnation, number }) => {
                let node = u32::try_from(node).map_err(|_| senseless())?;
                if commands > 0 {
                    return Err(senseless());
                }
                (None, Some(RowSequence { node, incarnation, number }))
            }
            None => (None, None),
        };
        let first_append = end.checked_add(appends_between).ok_or_else(senseless)?;
        end = first_append.checked_add(appends).ok_or_else(senseless)?;
        commands_bound += commands as usize;
        units.push(Unit { first_append, appends, commands, origin, brought });
    }
    if commands_bound > commands_there { Err(senseless()) } else { Ok(units) }
}

impl From<Origin> for OriginV2 {
    fn from(Origin { shard, number, next }: Origin) -> Self {
        Self::Channel { shard: shard.0.into(), incarnation: 0, number, next }
    }
}

impl From<RowSequence> for OriginV2 {
    fn from(RowSequence { node, incarnation, number }: RowSequence) -> Self {
        Self::Request { node: node.into(), incarnation, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Origin = Origin { shard: ShardId(2), number: 300, next: 301 };

    #[test]
    fn decoded_units_keep_their_positions() {
        let units = [
            Unit { first_append: 0, appends: 0, commands: 1, origin: None, brought: None },
            Unit { first_append: 3, appends: 2, commands: 1, origin: None, brought: None },
            Unit { first_append: 5, appends: 1, commands: 0, origin: Some(MESSAGE), brought: None },
            Unit { first_append: 6, appends: 0, commands: 0, origin: Some(MESSAGE), brought: None },
        ];
        let commands = vec![Command::AllocateProducerId; 3];
        let head = decode_head(&encode_head(7, &commands, &units)).unwrap();
        assert_eq!((head.now_ms, &head.commands), (7, &commands));
        assert_eq!(head.units, units);
        assert!(head.epochs_are_terms);
    }

    #[test]
    fn a_head_of_version_1_is_read() {
        // `encode_head(5, [AllocateProducerId])` of that version.
        let head = decode_head(&[1, 10, 1, 8]).unwrap();
        assert_eq!(head.commands, [Command::AllocateProducerId]);
        assert_eq!((head.now_ms, head.units.len(), head.epochs_are_terms), (5, 0, false));
    }

    #[test]
    fn head_records_its_level_unless_it_is_the_first() {
        let commands = [Command::AllocateProducerId];
        let first = encode_head(7, &commands, &[]);
        let head = encode_head_at(Level(300), 7, &commands, &[]);
        assert_eq!(head[..], [&[3, 44, 1], &first[..]].concat());
        let levels = |max| Levels { min: Level(2), max: Level(max) };
        assert_eq!(decode_head_within(levels(300), &head), decode_head(&first));
        let (needed, can) = (Level(300), levels(299));
        assert_eq!(decode_head_within(can, &head), Err(DecodeError::Level { needed, can }));
        // Without a level it is of the first one, which a binary may no longer write, but still
        // reads.
        assert_eq!(decode_head_within(levels(300), &first), decode_head(&first));
        assert!(decode_head_within(levels(300), &head[..3]).is_err(), "nothing follows");
    }

    #[test]
    fn units_that_bind_missing_commands_are_refused() {
        let units = [Unit { appends: 1, commands: 2, ..Unit::default() }];
        let head = encode_head(7, &[Command::AllocateProducerId], &units);
        assert!(matches!(decode_head(&head), Err(DecodeError::Inconsistent { .. })));
    }

    #[test]
    fn units_of_a_later_version_are_refused_by_name() {
        let origin = OriginV2::Channel { shard: 1, incarnation: 2, number: 3, next: 4 };
        let unit = UnitV2 { appends_between: 0, appends: 0, commands: 0, origin: Some(origin) };
        let nothing: &[Command] = &[];
        let head = postcard::to_extend(&(7_i64, vec![unit], nothing), vec![VERSION]).unwrap();
        assert_eq!(decode_head(&head), Err(DecodeError::FromElsewhere));
    }

    #[test]
    fn rows_that_a_node_brought_are_read_back_and_need_their_level() {
        let brought = Some(RowSequence { node: 3, incarnation: u64::MAX, number: 500 });
        let units = [Unit { first_append: 1, appends: 2, brought, ..Unit::default() }];
        let head = encode_head(7, &[], &units);
        assert_eq!(decode_head(&head).expect("it is read").units, units);
        let can = Levels { min: Level::FIRST, max: Level(4) };
        let needed = Level::NUMBERED;
        assert_eq!(decode_head_within(can, &head), Err(DecodeError::Level { needed, can }));
        // They bind no commands.
        let units = [Unit { commands: 1, ..units[0] }];
        let head = encode_head(7, &[Command::AllocateProducerId], &units);
        assert!(matches!(decode_head(&head), Err(DecodeError::Inconsistent { .. })));
    }
}
