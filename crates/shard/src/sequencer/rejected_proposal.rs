//! Proposals that their term rejected, to be proposed again in the next.

use base::{HashMap, Offset, PartitionId};
use bytes::{Bytes, BytesMut};
use journal::Body;
use machine::{Command, Unit};
use record::BatchHeader;

use super::pending_state::{PendingState, TouchedKeys};
use super::proposal::sequence_of;
use crate::state_machine::View;

/// The content of a proposal, in which every batch has its offset.
pub(super) struct ProposalContent {
    pub(super) bodies: Vec<Body>,
    pub(super) units: Vec<Unit>,
    pub(super) commands: Vec<Command>,
}

/// A proposal that is not in the log. Its waiting requests are still registered with the shard.
pub(super) struct RejectedProposal {
    pub(super) ticket: u64,
    /// The term of the proposal.
    pub(super) term: u64,
    pub(super) sequenced: ProposalContent,
}

impl ProposalContent {
    /// Removes the members stored for the coordinator of an ended term: a later one may have stored newer members.
    /// The commands remain, because their outcomes are found by position.
    pub(super) fn drop_members(&mut self) {
        for command in &mut self.commands {
            if let Command::KeepMembers { groups } = command {
                groups.clear();
            }
        }
    }

    /// Writes the new epoch into the batches, which keep their offsets. `None` where another leader has used one of
    /// these offsets.
    pub(super) fn place_again(
        &mut self,
        ticket: u64,
        leader_epoch: i32,
        ahead: &mut PendingState,
        state: &View<'_>,
    ) -> Option<TouchedKeys> {
        if !self.fits(ahead, state) {
            return None;
        }
        let mut touched = TouchedKeys::default();
        // Rows of one batch share its bytes, also afterwards.
        let mut former: Option<(i32, Bytes, Bytes)> = None;
        for body in &mut self.bodies {
            let partition = PartitionId::from_stream(body.stream);
            if state.rows.import(partition).is_some() {
                // It keeps the epochs of the shard that it comes from.
                continue;
            }
            let epoch = leader_epoch.saturating_add(state.rows.epoch_base(partition));
            let bytes = match former.take() {
                Some(same) if is_same(&same.1, &body.bytes) && same.0 == epoch => same,
                _ => (epoch, body.bytes.clone(), with_epoch(&body.bytes, epoch)),
            };
            body.bytes = former.insert(bytes).2.clone();
            let Some(found) = state.rows.partition(partition) else { continue };
            if let Ok(header) = BatchHeader::parse(&body.bytes)
                && let Some(sequence) = sequence_of(&header)
            {
                let producer = (partition, header.producer_id);
                let base_offset = body.base_offset;
                ahead.record_producer(producer, found, sequence, base_offset, ticket, &mut touched);
            }
            let end = body.base_offset + u64::from(body.span);
            ahead.record_end(partition, end, ticket, &mut touched);
        }
        for command in &self.commands {
            ahead.record_command(command, ticket, &mut touched);
            if let Some((to, message)) = command.sends() {
                ahead.record_sent(to, message.bytes(), &mut touched);
            }
        }
        for origin in self.units.iter().filter_map(|unit| unit.origin) {
            ahead.record_message(origin, ticket, &mut touched);
        }
        for from in self.units.iter().filter_map(|unit| unit.brought) {
            ahead.record_brought(from, ticket, &mut touched);
        }
        Some(touched)
    }

    /// Whether each body begins at the end of its partition. The machine rejects those of deleted partitions.
    fn fits(&self, ahead: &PendingState, state: &View<'_>) -> bool {
        let mut ends: HashMap<PartitionId, Offset> = HashMap::default();
        self.bodies.iter().all(|body| {
            let partition = PartitionId::from_stream(body.stream);
            let Some(found) = state.rows.partition(partition) else { return true };
            let end = ends
                .entry(partition)
                .or_insert_with(|| ahead.end(partition).unwrap_or_else(|| found.next_offset()));
            let fits = *end == body.base_offset;
            *end = body.base_offset + u64::from(body.span);
            fits
        })
    }
}

fn is_same(a: &Bytes, b: &Bytes) -> bool {
    a.as_ptr_range() == b.as_ptr_range()
}

/// Returns a copy of the batch: the proposed bytes may still be shared.
fn with_epoch(batch: &Bytes, leader_epoch: i32) -> Bytes {
    let Ok(header) = BatchHeader::parse(batch) else { return batch.clone() };
    let mut bytes = BytesMut::from(&batch[..]);
    record::assign(&mut bytes, header.base_offset, leader_epoch);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_ended_term_are_not_proposed_again() {
        let kept = Command::KeepMembers { groups: vec![("g".to_owned(), vec![1])] };
        let other = Command::DeleteGroup { group: "g".to_owned() };
        let commands = vec![other.clone(), kept];
        let mut sequenced = ProposalContent { bodies: Vec::new(), units: Vec::new(), commands };
        sequenced.drop_members();
        assert_eq!(sequenced.commands, [other, Command::KeepMembers { groups: Vec::new() }]);
    }
}
