//! Sequence numbers in logs, which distinguish a retried batch or row from a new one.

use base::Offset;
use serde::{Deserialize, Serialize};

/// Position of a batch in its producer's stream. Sequences are 31 bits and wrap to 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchSequence {
    pub epoch: i16,
    pub first: i32,
    pub last: i32,
}

impl BatchSequence {
    /// `span` is the number of offsets that the batch covers (its last offset delta plus one).
    pub fn new(epoch: i16, base_sequence: i32, span: u32) -> Self {
        let last = i64::from(base_sequence) + i64::from(span) - 1;
        Self { epoch, first: base_sequence, last: (last & i64::from(i32::MAX)) as i32 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceVerdict {
    New,
    /// A repetition of one of the last batches: respond with its offset.
    Duplicate {
        base_offset: Offset,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum SequenceRefusal {
    /// Kafka: `OUT_OF_ORDER_SEQUENCE_NUMBER`. Also covers duplicates older than the remembered
    /// ones.
    #[error("sequence {got} is out of order: {expected} comes next")]
    OutOfOrder { expected: i32, got: i32 },
    /// Kafka: `INVALID_PRODUCER_EPOCH`.
    #[error("producer epoch {got} is fenced by {current}")]
    Fenced { current: i16, got: i16 },
}

/// Node, incarnation and number of the first of several rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowSequence {
    pub node: u32,
    /// The node's incarnation: it counts from 0 in each. No two are equal.
    pub incarnation: u64,
    pub number: u64,
}

impl RowSequence {
    /// The row this many behind it.
    pub fn plus(self, rows: usize) -> Self {
        Self { number: self.number.saturating_add(rows as u64), ..self }
    }
}
