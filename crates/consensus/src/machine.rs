//! The interface between consensus and a shard.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use journal::{Body, EntryId};

use crate::error::{ApplyError, RestoreError};

/// A proposal: one entry of the log. Every replica applies it once it is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// For the machine; opaque here.
    pub head: Bytes,
    /// Batches of records, stored as they are.
    pub bodies: Vec<Body>,
    /// Returned with the committed entry, so that the proposer finds the waiting request. Local: it is never
    /// stored, and 0 ("no caller waits") on every replica but the proposing one and on each replay.
    pub ticket: u64,
}

/// An entry that every later leader will have too.
#[derive(Clone, Copy, Debug)]
pub struct CommittedEntry<'a> {
    pub id: EntryId,
    pub head: &'a Bytes,
    pub bodies: &'a [Body],
    /// The proposal's ticket on the node that proposed it, while it lives; else 0.
    pub ticket: u64,
    /// The entry was in the log before this process started: its external effects were carried out.
    pub replay: bool,
}

/// A fixed state to be encoded.
pub type Encode = Box<dyn FnOnce() -> Bytes + Send>;

/// Another member's state, to replace this one's.
pub struct Replace {
    /// The streams that were removed and recreated in that state: their batches here are dead. Called once the
    /// state is decoded, and again when no more entries are applied.
    pub renewed: Box<dyn Fn() -> Vec<u64> + Send>,
    /// Replaces the state. Called between two `apply`s, once the batches that belong to it are durable. Calls its
    /// argument at the moment when readers switch from the former batches to these.
    pub put: StateReplacement,
}

/// Replaces one state by another.
pub type StateReplacement = Box<dyn FnOnce(&mut dyn FnMut()) + Send>;

impl Replace {
    /// For a machine whose streams are never recreated.
    pub fn new(put: impl FnOnce(&mut dyn FnMut()) + Send + 'static) -> Self {
        Self { renewed: Box::new(Vec::new), put: Box::new(put) }
    }
}

impl fmt::Debug for Replace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replace").finish_non_exhaustive()
    }
}

/// The replicated state of a shard, implemented by the broker.
pub trait StateMachine: Send + Sync + 'static {
    /// Called in log order, from one task. It is on the path of every proposal: it must neither wait nor compute
    /// for long. A panic stops the node.
    ///
    /// Returns the cost of a replay at a restart, in changes of about a microsecond each: snapshots bound it. An
    /// unknown entry must change nothing: this member's consensus stops there, as after a disk failure, and the
    /// entry is neither skipped nor half applied.
    fn apply(&self, entry: CommittedEntry<'_>) -> Result<u64, ApplyError>;

    /// The log index `index` is committed without a command for the machine: a term that begins, or other members.
    /// Called in the same order as `apply`. Callers that wait for a log position need not wait for the next
    /// command.
    fn passed(&self, _index: u64) {}

    /// The proposal is in this node's page cache, which survives the process but not a power loss. Called in
    /// groups of one only, in log order, from the journal's thread, before the sync: it must be quick.
    fn written(&self, _ticket: u64) {}

    /// Captures the state after the last `apply`. Called between two of them, on the task that applies: the
    /// returned closure encodes that state later, on another thread, while more is applied.
    fn capture(&self) -> Encode;

    /// Replaces the state; called at most once, before anything is applied.
    fn restore(&self, machine: &[u8]) -> Result<(), RestoreError>;

    /// Decodes another member's state, with everything up to the log index `index` applied, to replace this one's.
    /// Runs on a worker's thread while entries are applied. Nothing changes before the result is called, which
    /// need not happen. State derived from the replaced one is rebuilt then.
    fn replace(self: Arc<Self>, index: u64, machine: &[u8]) -> Result<Replace, RestoreError>;
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes and {} bodies", self.head.len(), self.bodies.len())
    }
}
