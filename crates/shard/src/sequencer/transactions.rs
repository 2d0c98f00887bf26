//! Transactions of Kafka's producers: their batches, their markers, and the unit of a decision.
//!
//! A batch is accepted once the producer's transaction is open in this shard, or is opened by an earlier request. The
//! session opens it first, by a `Join` at home or an `Open` elsewhere, which take effect before later batches of the
//! same entry.
//!
//! An end needs a marker in each partition in which the transaction is open. So it is rejected, to be tried again in a
//! moment, while anything of the producer is in flight here. A client ends its transaction when it has the replies to
//! all its batches, so that happens to fenced producers alone.

use base::{Offset, PartitionId, ShardId};
use bytes::BytesMut;
use machine::{
    Command, EndedPart, MessageCommand, Preparation, ProducerKey, Refusal, Rows,
    TransactionCommand, TransactionRefusal, Unit,
};
use record::marker::Marker;

use super::limits;
use super::pending_state::PendingState;
use super::proposal::{BatchBytes, Context, Proposal};
use super::units::has_room_for_commands;
use crate::error::{ExecuteError, Unavailable};
use crate::pending_proposals::PendingProposals;
use crate::request::{CommandReply, CommandsElsewhere};

/// State of a producer's transaction in this shard after all pending proposals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PendingTransaction {
    /// It is opened with this epoch.
    Opens(i16),
    /// It has batches or offsets in flight.
    Writes,
    Ends,
}

impl Proposal {
    pub(super) fn add_transaction(
        &mut self,
        command: TransactionCommand,
        reply: CommandReply,
        context: &mut Context<'_>,
    ) {
        match &command {
            TransactionCommand::End { .. } => self.add_end(command, reply, context),
            TransactionCommand::Join { producer, shard, .. } => {
                let opens = *shard == Some(context.state.shard);
                let opens = opens.then_some(*producer);
                self.add_opening(command, opens, reply, context);
            }
            TransactionCommand::Open { producer, .. } => {
                let opens = Some(*producer);
                self.add_opening(command, opens, reply, context);
            }
            TransactionCommand::Pending { producer, .. } => {
                let writes = PendingTransaction::Writes;
                context.ahead.record_transaction(
                    producer.id,
                    writes,
                    self.ticket,
                    &mut self.touched,
                );
                self.add_alone(Command::Transaction(command), reply);
            }
            TransactionCommand::Initialize { .. } | TransactionCommand::Forget { .. } => {
                self.add_alone(Command::Transaction(command), reply);
            }
        }
    }

    /// Adds a command that takes effect before all later batches of the entry.
    fn add_opening(
        &mut self,
        command: TransactionCommand,
        opens: Option<ProducerKey>,
        reply: CommandReply,
        context: &mut Context<'_>,
    ) {
        if let Some(ProducerKey { id, epoch }) = opens {
            let opens = PendingTransaction::Opens(epoch);
            context.ahead.record_transaction(id, opens, self.ticket, &mut self.touched);
        }
        let first_append = self.bodies.len() as u32;
        self.units.push(Unit { first_append, commands: 1, ..Unit::default() });
        self.bound_replies.push((self.bound.len(), reply));
        self.bound.push(Command::Transaction(command));
    }

    /// Adds a decision, with the markers of this shard and a message to each other one.
    fn add_end(
        &mut self,
        command: TransactionCommand,
        reply: CommandReply,
        context: &mut Context<'_>,
    ) {
        let TransactionCommand::End { ref id, producer, commit, cause, fresh } = command else {
            return;
        };
        let transactions = context.state.rows.transactions();
        let planned = transactions.ids().plan_end(id, producer, commit, cause, fresh);
        let planned = match planned {
            Ok(planned) if pending(planned.producer.id, context).is_none() => planned,
            Ok(_) => return refuse(reply, TransactionRefusal::Markers.into()),
            Err(refusal) => return refuse(reply, refusal.into()),
        };
        let own = context.state.shard;
        let others: Vec<ShardId> =
            planned.shards.iter().copied().filter(|shard| *shard != own).collect();
        let part = planned.part.map(MessageCommand::EndTransaction);
        let elsewhere = || CommandsElsewhere {
            commands: part.clone().into_iter().collect(),
            preparation: Preparation::default(),
        };
        let full = others.iter().find(|to| !has_room_for_commands(**to, &elsewhere(), context));
        if let Some(&to) = full {
            let (messages, bytes) = context.ahead.sent(to);
            return refuse(reply, Refusal::OutboxFull { to, messages, bytes });
        }
        let first_append = self.bodies.len();
        if let Some(part) = &planned.part {
            self.push_markers(part, context);
        }
        let mut commands = vec![Command::Transaction(command)];
        for to in others {
            let (_, command, _) = self.send(to, Vec::new(), elsewhere(), context);
            commands.push(command);
        }
        let ends = PendingTransaction::Ends;
        context.ahead.record_transaction(planned.producer.id, ends, self.ticket, &mut self.touched);
        self.units.push(Unit {
            first_append: first_append as u32,
            appends: (self.bodies.len() - first_append) as u32,
            commands: commands.len() as u32,
            ..Unit::default()
        });
        self.bound_replies.push((self.bound.len(), reply));
        self.bound.extend(commands);
    }

    /// Whether the markers of an end in another shard's message can be placed now.
    pub(super) fn may_end(part: &EndedPart, context: &Context<'_>) -> Result<(), Unavailable> {
        let ProducerKey { id, .. } = part.producer;
        match pending(id, context) {
            None => Ok(()),
            Some(_) => Err(Unavailable::NotLeader),
        }
    }

    /// Adds the markers of an end: one batch, with a row in each partition in which the transaction is open here. They
    /// pass the limits of full topics and of the disk: a decision is never rejected.
    pub(super) fn push_markers(&mut self, part: &EndedPart, context: &mut Context<'_>) {
        let &EndedPart { producer: ProducerKey { id, epoch }, commit, .. } = part;
        let participations = context.state.rows.transactions().participations();
        let Some(open) = participations.partitions_ended_by(part) else { return };
        let coordinator_epoch = context.terms.leader_epoch;
        let marker = Marker { producer_id: id, producer_epoch: epoch, commit, coordinator_epoch };
        let (header, bytes) = marker.build(context.terms.now_ms);
        let mut bytes = BatchBytes::Unplaced(BytesMut::from(&bytes[..]));
        for &partition in open {
            let rows = context.state.rows;
            let known = || rows.partition(partition).map_or(0, |it| it.next_offset());
            let end: Offset = context.ahead.end(partition).unwrap_or_else(known);
            note_waived(partition, bytes.bytes(), context);
            let leader_epoch = context.terms.epoch_of(partition, context.state);
            let placed = bytes.place(end, leader_epoch);
            self.push_body(partition, end, &header, placed, context);
        }
        let ends = PendingTransaction::Ends;
        context.ahead.record_transaction(id, ends, self.ticket, &mut self.touched);
    }
}

fn note_waived(partition: PartitionId, marker: &[u8], context: &Context<'_>) {
    if let Some(topic) = context.state.catalog.topic(partition.topic) {
        let (state, shard) = (context.state, context.terms.shard);
        let ahead = |partition| context.ahead.end(partition);
        limits::note_waived(state, topic, shard, ahead, 1, marker);
    }
}

fn refuse(reply: CommandReply, refusal: Refusal) {
    let _ = reply.send(Err(ExecuteError::Refused(refusal)));
}

fn pending(producer: i64, context: &Context<'_>) -> Option<PendingTransaction> {
    context.ahead.transaction(producer, &context.terms.shard.pending)
}

/// Why a batch of a transaction is rejected here.
pub(super) fn refused(
    producer: ProducerKey,
    ahead: &PendingState,
    rows: &Rows,
    proposals: &PendingProposals,
) -> Option<TransactionRefusal> {
    let known = rows.transactions().participation(producer.id);
    match ahead.transaction(producer.id, proposals) {
        Some(PendingTransaction::Opens(epoch)) if epoch == producer.epoch => None,
        Some(PendingTransaction::Ends) => Some(TransactionRefusal::NotOpen),
        _ => match known {
            Some(it) if it.epoch > producer.epoch => {
                Some(TransactionRefusal::Fenced { current: it.epoch })
            }
            Some(it) if it.is_open && it.epoch == producer.epoch => None,
            _ => Some(TransactionRefusal::NotOpen),
        },
    }
}
