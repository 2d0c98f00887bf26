//! A shard's knowledge of others at each of the last entries of its log. It applies the log to the state of the
//! snapshot, as the shard itself did.

use base::PartitionId;
use bytes::Bytes;
use journal::{Body, Encoded, EntryKind};
use machine::{Append, BatchKind, Entry, EntryEffects, State};
use record::BatchHeader;
use record::marker::Marker;
use thiserror::Error;

use crate::cut::{InterShardState, Window};

#[derive(Debug, Error)]
pub enum ReplayError {
    #[error("its state makes no sense: {0}")]
    State(machine::DecodeError),
    #[error("entry {index} of its log makes no sense: {what}")]
    Entry { index: u64, what: String },
    #[error("entry {expected} of its log is missing, and {found} comes in its place")]
    Gap { expected: u64, found: u64 },
    #[error("its log ends at {ends} and was to go to {end}")]
    Short { ends: u64, end: u64 },
}

/// Result of replaying a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    pub window: Window,
    /// Time of each entry from the start of the window on, by index.
    pub times: Vec<(u64, i64)>,
}

/// A state to which a log is applied, entry by entry.
#[derive(Debug)]
pub struct Replay {
    state: State,
    index: u64,
    from: u64,
    end: u64,
    known: Vec<(u64, InterShardState)>,
    /// Time of each entry from the start of the window on.
    times: Vec<(u64, i64)>,
    appends: Vec<Append>,
    applied: EntryEffects,
}

impl Replay {
    /// `machine` is the state after the entry `snapshot`; the window goes from `from` to `end`.
    pub fn new(machine: &[u8], snapshot: u64, from: u64, end: u64) -> Result<Self, ReplayError> {
        let state = State::decode(machine).map_err(ReplayError::State)?;
        let (appends, applied) = (Vec::new(), EntryEffects::new());
        let (known, times) = (Vec::new(), Vec::new());
        let mut replay = Self { state, index: snapshot, from, end, known, times, appends, applied };
        replay.note();
        Ok(replay)
    }

    /// Applies the next entry. `false`: it is behind the window, as are all later ones.
    pub fn apply(&mut self, encoded: &Encoded) -> Result<bool, ReplayError> {
        let (id, entry) = (encoded.id(), encoded.entry());
        if id.index != self.index + 1 {
            return Err(ReplayError::Gap { expected: self.index + 1, found: id.index });
        }
        if id.index > self.end {
            return Ok(false);
        }
        if entry.kind == EntryKind::Command {
            self.apply_command(id.index, id.term, &entry.head, &entry.bodies)?;
        }
        self.index = id.index;
        self.note();
        Ok(true)
    }

    fn apply_command(
        &mut self,
        index: u64,
        term: u64,
        head: &Bytes,
        bodies: &[Body],
    ) -> Result<(), ReplayError> {
        let senseless = |what: String| ReplayError::Entry { index, what };
        let head = machine::decode_head(head).map_err(|error| senseless(error.to_string()))?;
        let leader_epoch = head.epochs_are_terms.then_some(term as i32);
        self.appends.clear();
        for body in bodies {
            let header = BatchHeader::parse(&body.bytes);
            let header = header.map_err(|error| senseless(error.to_string()))?;
            let marker = Marker::read(&header, &body.bytes).map(|marker| marker.commit);
            self.appends.push(Append {
                partition: PartitionId::from_stream(body.stream),
                base_offset: body.base_offset,
                span: body.span,
                leader_epoch: header.leader_epoch,
                max_timestamp: body.max_timestamp,
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
                kind: BatchKind::of(header.attributes.is_transactional(), marker),
            });
        }
        let (appends, commands, units) = (&self.appends[..], &head.commands[..], &head.units[..]);
        let entry = Entry { now_ms: head.now_ms, leader_epoch, appends, commands, units };
        self.state.apply(&entry, &mut self.applied);
        Ok(())
    }

    fn note(&mut self) {
        if self.index < self.from {
            return;
        }
        self.times.push((self.index, self.state.last_ms()));
        let known = InterShardState::of(&self.state);
        if self.known.last().is_none_or(|(_, last)| *last != known) {
            self.known.push((self.index, known));
        }
    }

    pub fn finish(self) -> Result<Replayed, ReplayError> {
        let Self { index, end, known, times, .. } = self;
        match index == end {
            true => Ok(Replayed { window: Window { known, end }, times }),
            false => Err(ReplayError::Short { ends: index, end }),
        }
    }
}
