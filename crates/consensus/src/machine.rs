//! What a shard gives to consensus and what it gets back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use journal::{Body, EntryId};

use crate::error::{ApplyError, RestoreError};

/// What is proposed: one entry of the log. Every replica applies it once it is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// For the machine; opaque here.
    pub head: Bytes,
    /// Batches of records, stored as they are.
    pub bodies: Vec<Body>,
    /// Handed back with the committed entry, so that the proposer finds who waits for it. Local:
    /// it is never stored, and 0 ("nobody waits") on every replica but the proposing one and on
    /// each replay.
    pub ticket: u64,
}

/// An entry that every later leader will have too.
#[derive(Clone, Copy, Debug)]
pub struct Committed<'a> {
    pub id: EntryId,
    pub head: &'a Bytes,
    pub bodies: &'a [Body],
    /// The proposal's ticket on the node that proposed it, while it lives; else 0.
    pub ticket: u64,
    /// The entry was in the log before this process started: what it did to the outside was done.
    pub replay: bool,
}

/// A state that is fixed, to be encoded.
pub type Encode = Box<dyn FnOnce() -> Bytes + Send>;

/// Another member's state that is to take the place of this one's.
pub struct Replace {
    /// The streams that were removed and have begun anew in that state: of their batches here nothing is live any more.
    /// Called once the state is decoded, and again when nothing is applied any more.
    pub renewed: Box<dyn Fn() -> Vec<u64> + Send>,
    /// Replaces the state. Called between two `apply`s, once the batches that go with it are durable, and calls what it is
    /// given where readers change from the former batches to these.
    pub put: Put,
}

/// What puts a state in the place of another one.
pub type Put = Box<dyn FnOnce(&mut dyn FnMut()) + Send>;

impl Replace {
    /// Of a machine whose streams never begin anew.
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
    /// Called in log order, from one task. It is on the path of every proposal: it must neither
    /// wait nor compute for long. A panic stops the node.
    ///
    /// Answers how much a restart would have to do again, in changes of about a microsecond each:
    /// snapshots bound it. An entry that it does not understand must change nothing: this member's consensus
    /// stops there, as it does when a disk fails, and the entry is neither skipped nor half applied.
    fn apply(&self, entry: Committed<'_>) -> Result<u64, ApplyError>;

    /// The log index `index` is committed, and has nothing for the machine: a term that begins, or other members. Called
    /// as `apply` is. Who waits for a place in the log is not to wait for the next command.
    fn passed(&self, _index: u64) {}

    /// The proposal is in this node's page cache, which survives the process but not a power loss. Called
    /// in groups of one only, in log order, from the journal's thread, before the sync: it must be quick.
    fn written(&self, _ticket: u64) {}

    /// The state after the last `apply`. Called between two of them, on the task that applies: what is
    /// answered encodes that state later, on another thread, while more is applied.
    fn capture(&self) -> Encode;

    /// Takes the place of the state; called at most once, before anything is applied.
    fn restore(&self, machine: &[u8]) -> Result<(), RestoreError>;

    /// Another member's state, with all up to the log index `index` applied, is to take the place of this
    /// one's. It is decoded here, on a worker's thread, while entries are applied; nothing is changed before the
    /// answer is called, which need not happen. Whoever keeps something beside the state makes it anew then.
    fn replace(self: Arc<Self>, index: u64, machine: &[u8]) -> Result<Replace, RestoreError>;
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes and {} bodies", self.head.len(), self.bodies.len())
    }
}
