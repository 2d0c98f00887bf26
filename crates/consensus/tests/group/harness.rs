//! A machine that records its inputs, and a node around it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use consensus::{
    ApplyError, CommittedEntry, Consensus, ConsensusOptions, Encode, Leadership, Payload,
    PendingProposal, Replace, RestoreError, StateMachine,
};
use journal::{Journal, Options};
use parking_lot::Mutex;
use world::{Disk, World};

/// State: the heads of all applied entries, in order.
#[derive(Default)]
pub(crate) struct Ledger {
    journal: Mutex<Option<Journal>>,
    heads: Mutex<Vec<Bytes>>,
    seen: Mutex<Vec<AppliedEntry>>,
    panics: AtomicBool,
}

/// Metadata of an applied entry. Not part of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AppliedEntry {
    pub(crate) index: u64,
    pub(crate) ticket: u64,
    pub(crate) replay: bool,
}

impl Ledger {
    pub(crate) fn set_journal(&self, journal: &Journal) {
        *self.journal.lock() = Some(journal.clone());
    }

    pub(crate) fn heads(&self) -> Vec<Bytes> {
        self.heads.lock().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.heads.lock().len()
    }

    /// Asserts that exactly the entries 0 to `len` were applied, each once and in order.
    #[track_caller]
    pub(crate) fn assert_holds(&self, len: usize) {
        let heads = self.heads();
        let expected = (0..len).map(head).zip(&heads);
        let wrong = expected.enumerate().find(|(_, (expected, found))| expected != *found);
        assert_eq!(wrong, None, "the first of {} that is not in its place", heads.len());
        assert_eq!(heads.len(), len);
    }

    /// Entries applied in this run, without restored ones.
    pub(crate) fn seen(&self) -> Vec<AppliedEntry> {
        self.seen.lock().clone()
    }

    pub(crate) fn panic_from_now_on(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }
}

/// The head of an entry that the machine does not support.
pub(crate) const UNKNOWN: &str = "of a later level";

impl StateMachine for Ledger {
    /// A head `changes N` counts as N changes, and the head [`UNKNOWN`] cannot be applied.
    fn apply(&self, entry: CommittedEntry<'_>) -> Result<u64, ApplyError> {
        if entry.head == UNKNOWN {
            return Err(ApplyError("it needs a later program".to_owned()));
        }
        assert!(!self.panics.load(Ordering::SeqCst), "the test asked for it");
        for body in 0..entry.bodies.len() {
            let journal = self.journal.lock();
            journal.as_ref().expect("set before start").accept(entry.id.index, body);
        }
        self.heads.lock().push(entry.head.clone());
        let CommittedEntry { id, ticket, replay, .. } = entry;
        self.seen.lock().push(AppliedEntry { index: id.index, ticket, replay });
        let said = std::str::from_utf8(entry.head).ok().and_then(|head| head.strip_prefix(CHANGES));
        Ok(said.map_or(0, |changes| changes.parse().expect("a number")))
    }

    fn capture(&self) -> Encode {
        let heads = self.heads();
        let mut bytes = Vec::new();
        for head in heads {
            bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&head);
        }
        Box::new(move || bytes.into())
    }

    fn restore(&self, mut machine: &[u8]) -> Result<(), RestoreError> {
        let mut heads = Vec::new();
        while let Some((len, rest)) = machine.split_first_chunk() {
            let (head, rest) = rest
                .split_at_checked(u32::from_le_bytes(*len) as usize)
                .ok_or_else(|| RestoreError("cut short".to_owned()))?;
            heads.push(Bytes::copy_from_slice(head));
            machine = rest;
        }
        *self.heads.lock() = heads;
        Ok(())
    }

    fn replace(self: Arc<Self>, _: u64, machine: &[u8]) -> Result<Replace, RestoreError> {
        let machine = machine.to_vec();
        Ok(Replace::new(move |switch| {
            switch();
            self.restore(&machine).expect("it was captured by another one");
        }))
    }
}

pub(crate) struct Node {
    pub(crate) consensus: Consensus,
    pub(crate) leadership: Leadership,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) journal: Journal,
    pub(crate) failure: tasks::Failure,
}

impl Node {
    pub(crate) async fn start(disk: impl Disk, dir: &Path) -> Self {
        Self::start_with(disk, dir, u64::MAX).await
    }

    pub(crate) async fn start_with(
        disk: impl Disk,
        dir: &Path,
        snapshot_log_bytes_min: u64,
    ) -> Self {
        Self::start_bounded(disk, dir, snapshot_log_bytes_min, u64::MAX).await
    }

    pub(crate) async fn start_bounded(
        disk: impl Disk,
        dir: &Path,
        snapshot_log_bytes_min: u64,
        snapshot_changes_min: u64,
    ) -> Self {
        let world = World::on(Arc::new(disk));
        let opened = Journal::open(&world, dir, small()).unwrap();
        let journal = opened.journal.clone();
        let ledger = Arc::new(Ledger::default());
        ledger.set_journal(&journal);
        let failure = tasks::Failure::new();
        let options = ConsensusOptions {
            snapshot_log_bytes_min,
            snapshot_changes_min,
            node: failure.clone(),
            ..ConsensusOptions::default()
        };
        let machine: Arc<dyn StateMachine> = ledger.clone();
        let consensus = Consensus::start(&world, 1, opened, machine, options).await.unwrap();
        let leadership = consensus.leadership().await.unwrap();
        Self { consensus, leadership, ledger, journal, failure }
    }

    pub(crate) async fn propose(&self, number: usize) -> PendingProposal {
        let payload = Payload { head: head(number), bodies: vec![], ticket: number as u64 + 1 };
        self.leadership.propose(payload).await.unwrap()
    }

    /// Proposes the numbers of `range`, all at once, and waits until they are applied.
    pub(crate) async fn propose_all(&self, range: std::ops::Range<usize>) {
        let mut under_way = Vec::new();
        for number in range {
            under_way.push(self.propose(number).await);
        }
        for proposed in under_way {
            proposed.await.unwrap();
        }
    }
}

const CHANGES: &str = "changes ";

/// The head of an entry with this many changes.
pub(crate) fn changes(changes: u64) -> Bytes {
    format!("{CHANGES}{changes}").into()
}

/// Options of a journal that a test fills quickly.
pub(crate) fn small() -> Options {
    Options { segment_bytes: 4 << 20, disk_reserve_bytes: 0, ..Options::default() }
}

pub(crate) fn head(number: usize) -> Bytes {
    format!("entry {number}").into()
}
