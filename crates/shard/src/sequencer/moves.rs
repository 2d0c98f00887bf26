//! Parts of a partition that moves to this shard. Its batches keep their offsets, and the leader epochs of the shard
//! in which they were appended. They are not sequenced; the machine only checks that they are the next ones.

use base::PartitionId;
use journal::Body;
use machine::{Command, MoveStep, Refusal, Unit};

use super::limits::refused_for_space;
use super::proposal::{Context, Proposal, span};
use crate::append::AppendBatch;
use crate::dedup::BatchTarget;
use crate::error::{ExecuteError, Unavailable};
use crate::request::CommandReply;
use crate::state_machine::View;

/// Checks that the catalog wants the move. A move that this node's copy does not have yet is to be retried.
fn check(partition: PartitionId, id: u64, state: &View<'_>) -> Result<(), ExecuteError> {
    let topic = state.catalog.topic(partition.topic);
    let moving = topic.and_then(|topic| topic.moving.get(&partition.index));
    match moving {
        Some(moving) if moving.id == id && moving.to == state.shard => Ok(()),
        _ if state.catalog.moves() < id => Err(Unavailable::NotLeader.into()),
        _ => Err(ExecuteError::Refused(Refusal::MoveOutOfTurn { partition })),
    }
}

impl Proposal {
    pub(super) fn add_import(
        &mut self,
        step: MoveStep,
        batches: Vec<AppendBatch>,
        reply: CommandReply,
        context: &mut Context<'_>,
    ) {
        let MoveStep { partition, id, .. } = step;
        let command = Command::Move(step);
        let Context { ahead, dedup, state, terms } = context;
        let checked = check(partition, id, state).and_then(|()| {
            let is_stray = |batch: &AppendBatch| batch.partition != partition || batch.rows() > 1;
            let is_late = ahead.is_deleted(partition.topic) || batches.iter().any(is_stray);
            // The import is retried, since space may be freed.
            let is_full = refused_for_space(&terms.room).is_some();
            match is_late || is_full || !terms.shard.level.permits(&command) {
                true => Err(Unavailable::NotLeader.into()),
                false => Ok(()),
            }
        });
        if let Err(refused) = checked {
            let _ = reply.send(Err(refused));
            return;
        }
        let topic = state.catalog.topic(partition.topic);
        let window_ms = topic.map_or(0, |topic| topic.config.dedup_window_ms);
        let first_append = self.bodies.len();
        // At the level with ids in the state, the ids are imported by a step of their own.
        let learns = window_ms > 0 && dedup.learns();
        let mut recent = Vec::new();
        for AppendBatch { header, bytes, .. } in batches {
            let (base_offset, now_ms, ticket) = (header.base_offset, terms.now_ms, self.ticket);
            let bytes = bytes.freeze();
            // A batch entirely outside the window has no relevant ids, and is not unpacked.
            if learns && header.max_timestamp >= now_ms.saturating_sub(window_ms) {
                recent.push((
                    bytes.clone(),
                    BatchTarget { partition, base_offset, window_ms, now_ms, ticket },
                ));
            }
            self.bodies.push(Body {
                stream: partition.stream(),
                base_offset,
                span: span(&header),
                max_timestamp: Some(header.max_timestamp).filter(|at| *at >= 0).unwrap_or(now_ms),
                bytes,
            });
        }
        dedup.learn_imported(&recent);
        self.units.push(Unit {
            first_append: first_append as u32,
            appends: (self.bodies.len() - first_append) as u32,
            commands: 1,
            origin: None,
            brought: None,
        });
        self.bound_replies.push((self.bound.len(), reply));
        self.imported.push(partition);
        self.bound.push(command);
    }
}
