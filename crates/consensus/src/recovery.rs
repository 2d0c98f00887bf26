//! Continues a group with one of its members after the permanent loss of its majority.
//!
//! No majority is left to vote on that, so an operator decides it: the member's log gets an entry that makes it
//! alone in the group, in a term in which no node has voted. Entries of the others that this one lacks are lost.
//! The others must never return to the group, which the caller ensures.

use std::io;

use base::limits::PROPOSAL_BYTES_MAX;
use bytes::Bytes;
use journal::{Entry, EntryId, EntryKind, Journal, JournalFailed, OpenedJournal, ReadError};
use tokio::sync::oneshot;

use crate::encoding::{self, DecodeError};
use crate::engine::{Membership, Vote};
use crate::group::Members;

/// Entries per read.
const READ_ENTRIES: u64 = 4_096;

/// The state of a member in its group, if it has any.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MemberLogState {
    /// The last entry.
    pub last: Option<EntryId>,
    /// The newest term that the member voted in, or has an entry of.
    pub term: u64,
    /// By the newest entry with members, committed or not.
    pub members: Members,
    /// Head of the last command of the machine, if the log has one behind the snapshot.
    pub last_head: Option<Bytes>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("{what} cannot be read: {source}")]
    Unreadable { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the log takes no entry: {0}")]
    Journal(#[from] JournalFailed),
    #[error("the vote cannot be saved: {0}")]
    Vote(#[from] io::Error),
}

/// Reads the state of a member. Blocking.
pub fn standing(opened: &OpenedJournal) -> Result<MemberLogState, RecoveryError> {
    let OpenedJournal { journal, snapshot, .. } = opened;
    let vote = vote(journal)?;
    let last = journal.last_id();
    let term = vote.map_or(0, |vote| vote.leader_id.term).max(last.map_or(0, |last| last.term));
    let mut found = MemberLogState { last, term, ..MemberLogState::default() };
    if let Some(snapshot) = snapshot {
        let meta = encoding::decode_snapshot_meta(&snapshot.meta);
        let meta = meta.map_err(unreadable("the head of the snapshot"))?;
        found.members = Members::of(meta.last_membership.membership());
    }
    let first = journal.purged_id().map_or(0, |purged| purged.index + 1);
    let mut end = last.map_or(0, |last| last.index + 1);
    let mut members = None;
    while end > first && (members.is_none() || found.last_head.is_none()) {
        let from = end.saturating_sub(READ_ENTRIES).max(first);
        let entries = all_of(journal, from, end).map_err(unreadable("the log"))?;
        for entry in entries.into_iter().rev() {
            match entry.kind {
                EntryKind::Membership if members.is_none() => {
                    let decoded = encoding::decode_members(&entry.head);
                    members = Some(decoded.map_err(unreadable("an entry with the members"))?);
                }
                EntryKind::Command if found.last_head.is_none() => {
                    found.last_head = Some(entry.head)
                }
                _ => {}
            }
        }
        end = from;
    }
    if let Some(members) = members {
        found.members = Members::of(&members);
    }
    Ok(found)
}

/// The existing entries from `from` on.
fn all_of(journal: &Journal, mut from: u64, end: u64) -> Result<Vec<Entry>, ReadError> {
    // A log may begin above 0.
    while from < end && journal.entry_id(from).is_none() {
        from += 1;
    }
    let mut all = Vec::new();
    while from < end {
        let entries = journal.entries(from..end, PROPOSAL_BYTES_MAX)?;
        let Some(last) = entries.last() else { break };
        from = last.id.index + 1;
        // Only heads are examined.
        all.extend(entries.into_iter().map(|entry| Entry { bodies: Vec::new(), ..entry }));
    }
    Ok(all)
}

/// Makes the node alone in the group from its next start on. Durable when this returns; may be repeated.
pub async fn continue_alone(
    journal: &Journal,
    standing: &MemberLogState,
    node: u64,
    address: &str,
) -> Result<EntryId, RecoveryError> {
    let term = standing.term + 1;
    let index = standing.last.map_or(0, |last| last.index + 1);
    let id = EntryId { term, leader: node, index };
    let alone = Members::voting([(node, address.to_owned())]);
    let members = Membership::new(vec![[node].into()], alone.nodes());
    let head = encoding::encode_members(&members.map_err(unreadable("the node"))?);
    let entry = Entry { id, kind: EntryKind::Membership, head, bodies: Vec::new() };
    let (reply, durable) = oneshot::channel();
    journal.append(vec![entry], move |result| drop(reply.send(result)))?;
    durable.await.unwrap_or(Err(JournalFailed::Closed))?;
    // Not as its leader: the next start elects it, in a new term.
    journal.save_vote(&encoding::encode_vote(&Vote::new(term, node)))?;
    Ok(id)
}

fn vote(journal: &Journal) -> Result<Option<Vote>, RecoveryError> {
    let vote = journal.vote().map(|bytes| encoding::decode_vote(&bytes)).transpose();
    vote.map_err(|error: DecodeError| unreadable("the vote")(error))
}

fn unreadable<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
) -> impl FnOnce(E) -> RecoveryError {
    move |error| RecoveryError::Unreadable { what, source: error.into() }
}
