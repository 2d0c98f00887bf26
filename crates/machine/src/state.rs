//! The state of a shard, and the effects of commands on it.
//!
//! Everything that reaches an outcome or a snapshot is iterated in an order that follows from the
//! history alone (sorted maps, vectors), never from a hash: two replicas must not differ by a byte.

use base::{ShardId, Stripe, TopicId};

use crate::catalog::Catalog;
use crate::catalog::changes::NewLeaseGroup;
use crate::command::{Command, DocumentsChange, Home, NewGroup, TopicChange};
use crate::config::Overrides;
use crate::outcome::{ALL_PARTITIONS, EntryEffects, Outcome, Refusal};
use crate::rows::Rows;

/// The kinds of commands in the log of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Catalog and rows in one log, as before shards existed.
    #[default]
    Whole,
    Catalog,
    /// The rows of this shard.
    Rows(ShardId),
}

impl Role {
    pub fn shard(self) -> ShardId {
        match self {
            Self::Whole | Self::Catalog => ShardId::CATALOG,
            Self::Rows(shard) => shard,
        }
    }
}

/// The state machine of a shard's log. The catalog has no rows, and rows refer to topics and groups
/// only by number. If one log has both, this type passes changes from one to the other; if they
/// have logs of their own, adoption does ([`crate::catalog::feed`]).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct State {
    pub(crate) role: Role,
    /// Empty in a shard with rows.
    pub catalog: Catalog,
    /// Empty in the catalog's shard.
    pub rows: Rows,
    /// See [`State::last_ms`].
    pub(crate) last_ms: i64,
}

impl State {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn of(role: Role) -> Self {
        Self { role, ..Self::default() }
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// Splits a whole state into those of the catalog's shard and of the first shard with rows.
    pub fn split(self) -> (Self, Self) {
        let Self { mut catalog, mut rows, last_ms, .. } = self;
        catalog.begin_feed();
        rows.adopted = catalog.version();
        let of = |role, catalog, rows| Self { role, catalog, rows, last_ms };
        (
            of(Role::Catalog, catalog, Rows::default()),
            of(Role::Rows(ShardId::FIRST), Catalog::default(), rows),
        )
    }

    /// The time of the log, ms since the epoch: the latest time of any entry so far. A leader never
    /// goes back behind it, even if its clock does.
    pub fn last_ms(&self) -> i64 {
        self.last_ms
    }

    pub(crate) fn command(
        &mut self,
        command: &Command,
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        let now_ms = self.last_ms;
        self.check_home(command)?;
        match command {
            Command::CreateTopics { topics } => {
                let outcomes = topics.iter().map(|new| {
                    let id = self.catalog.create_topic(new, now_ms)?;
                    if self.role == Role::Whole {
                        let deletes_settled = self.deletes_settled(id);
                        self.rows.adopt_topic(id, Stripe::ALL, new.partitions, deletes_settled);
                    }
                    Ok(id)
                });
                Ok(Outcome::Topics(outcomes.collect()))
            }
            Command::DeleteTopic { topic } => {
                if self.role == Role::Catalog {
                    self.note_groups_moved(*topic, applied);
                }
                self.catalog.delete_topic(*topic)?;
                self.rows.drop_topic(*topic, applied);
                Ok(Outcome::Done)
            }
            Command::CreatePartitions { topic, total } => {
                self.catalog.create_partitions(*topic, *total)?;
                if self.role == Role::Catalog {
                    self.note_groups_moved(*topic, applied);
                }
                self.rows.grow_topic(*topic, *total, applied);
                Ok(Outcome::Done)
            }
            Command::SetTopicConfig { topic, config } => {
                self.catalog.set_topic_config(*topic, config)?;
                self.rows.set_deletes_settled(*topic, self.deletes_settled(*topic));
                self.note_groups_moved(*topic, applied);
                self.rows.delete_settled_of_topic(*topic, applied);
                Ok(Outcome::Done)
            }
            Command::ChangeTopic { topic, seen, wanted } => {
                self.catalog.change_topic(*topic, seen, wanted)?;
                self.rows.set_deletes_settled(*topic, self.deletes_settled(*topic));
                self.note_groups_moved(*topic, applied);
                if wanted.partitions > seen.partitions {
                    self.rows.grow_topic(*topic, wanted.partitions, applied);
                }
                self.rows.delete_settled_of_topic(*topic, applied);
                Ok(Outcome::Done)
            }
            Command::SetNodeConfig { config } => self.set_node_config(config),
            Command::SetGroupConfig { group, config } => {
                self.catalog.set_group_config(group, config)?;
                Ok(Outcome::Done)
            }
            Command::AdvanceStart { starts } => {
                let outcomes = starts.iter().map(|&(partition, offset)| {
                    self.rows.advance_start(partition, offset, applied)
                });
                Ok(Outcome::Starts(outcomes.collect()))
            }
            Command::Compacted { partition, up_to } => {
                self.rows.note_compacted(*partition, *up_to)?;
                Ok(Outcome::Done)
            }
            Command::AllocateProducerId => {
                Ok(Outcome::ProducerId { id: self.catalog.allocate_producer_ids(1)?, epoch: 0 })
            }
            Command::AllocateProducerIds { count } => {
                let id = self.catalog.allocate_producer_ids(*count)?;
                Ok(Outcome::ProducerId { id, epoch: 0 })
            }
            Command::CommitOffsets { group, offsets } => {
                let (catalog, apart) = (&self.catalog, self.role != Role::Whole);
                self.rows.commit(group, offsets, now_ms, |partition| {
                    let topic = catalog.topic(partition.topic);
                    apart || topic.is_some_and(|topic| topic.has_partition(partition.index))
                })
            }
            Command::DeleteOffsets { group, partitions } => {
                self.rows.delete_offsets(group, partitions)?;
                Ok(Outcome::Done)
            }
            Command::DeleteGroup { group } => {
                self.rows.delete_group(group)?;
                Ok(Outcome::Done)
            }
            Command::KeepMembers { groups } => {
                for (group, members) in groups {
                    self.rows.memberships.keep(group, members);
                }
                Ok(Outcome::Done)
            }
            Command::ExpireOffsets { groups, before_ms } => {
                let count = self.rows.expire_offsets(groups, now_ms, *before_ms);
                Ok(Outcome::Expired { count })
            }
            Command::ExpireProducers { before_ms } => {
                Ok(Outcome::Expired { count: self.rows.expire_producers(*before_ms) })
            }
            Command::CreateLeaseGroup { topic, name, starts, config } => {
                let (rows, whole) = (&self.rows, self.role == Role::Whole);
                let check = || if whole { rows.check_starts(*topic, starts) } else { Ok(()) };
                let catalog = &mut self.catalog;
                match catalog.create_lease_group(*topic, name, config, starts, now_ms, check)? {
                    NewLeaseGroup::Existing(id) => Ok(Outcome::LeaseGroup(id)),
                    NewLeaseGroup::Created(id) => {
                        self.rows.adopt_lease_group(id, *topic, starts, applied);
                        Ok(Outcome::LeaseGroup(id))
                    }
                }
            }
            Command::SetLeaseGroupConfig { group, config } => {
                self.catalog.set_lease_group_config(*group, config)?;
                applied.moved.push((*group, ALL_PARTITIONS));
                Ok(Outcome::Done)
            }
            Command::DeleteLeaseGroup { group } => {
                self.catalog.delete_lease_group(*group)?;
                if self.role == Role::Catalog {
                    applied.moved.push((*group, ALL_PARTITIONS));
                }
                self.rows.drop_lease_group(*group, applied);
                Ok(Outcome::Done)
            }
            Command::PauseLeaseGroup { group, paused } => {
                self.catalog.pause_lease_group(*group, *paused)?;
                applied.moved.push((*group, ALL_PARTITIONS));
                Ok(Outcome::Done)
            }
            Command::SeekLeaseGroup { group, starts } => {
                self.rows.seek_lease_group(*group, starts, applied)?;
                Ok(Outcome::Done)
            }
            Command::Settle { settles } => {
                self.rows.settle(settles, applied);
                Ok(Outcome::Done)
            }
            Command::PutDocument { space, name, body, expect } => {
                let version = self.catalog.documents.put(space, name, body, *expect)?;
                Ok(Outcome::Document { version })
            }
            Command::DeleteDocument { space, name, expect } => {
                self.catalog.documents.delete(space, name, *expect)?;
                Ok(Outcome::Done)
            }
            Command::ChangeDocuments(change) => {
                self.change_documents(change, applied)?;
                Ok(Outcome::Done)
            }
            Command::SetShards { count } => {
                self.catalog.set_shards(*count)?;
                Ok(Outcome::Done)
            }
            Command::Adopt(adoption) => {
                self.rows.adopt(adoption, applied)?;
                Ok(Outcome::Done)
            }
            // In a unit it is applied with its batches.
            Command::Send { .. } | Command::SendWith { .. } | Command::FromMessage(_) => {
                Err(Refusal::NotAMessage)
            }
            Command::Fence { shard, before } => {
                Ok(Outcome::Fenced { end: self.rows.channels.fence(*shard, *before)? })
            }
            Command::Acknowledged { to, below } => {
                self.rows.channels.acknowledge(*to, *below, applied)?;
                Ok(Outcome::Done)
            }
            Command::SkipNumbers(skipped) => {
                self.catalog.skip(skipped);
                Ok(Outcome::Done)
            }
            Command::ResumeChannels { sent, taken } => {
                self.rows.channels.resume(sent, taken, applied)?;
                Ok(Outcome::Done)
            }
            Command::MovePartitions { topic, partitions, to } => {
                self.catalog.move_partitions(*topic, partitions, *to)?;
                Ok(Outcome::Done)
            }
            Command::CancelMoves { topic, partitions } => {
                self.catalog.cancel_moves(*topic, partitions)?;
                Ok(Outcome::Done)
            }
            Command::EndMove { partition, id, end } => {
                self.catalog.end_move(*partition, *id, *end)?;
                Ok(Outcome::Done)
            }
            Command::Move(step) => self.rows.move_step(step, applied),
            Command::Transaction(command) => {
                self.rows.transaction(command, self.role.shard(), now_ms)
            }
            // Requires the appends of its entry, and is applied with them.
            Command::RecordIds(_) => Err(Refusal::NotInUnit),
        }
    }

    /// Whether a command belongs in this log.
    pub(crate) fn check_home(&self, command: &Command) -> Result<(), Refusal> {
        let apart = matches!(
            command,
            Command::SetShards { .. }
                | Command::Adopt(_)
                | Command::Send { .. }
                | Command::SendWith { .. }
                | Command::FromMessage(_)
                | Command::Fence { .. }
                | Command::Acknowledged { .. }
                | Command::SkipNumbers(_)
                | Command::ResumeChannels { .. }
                | Command::KeepMembers { .. }
                | Command::MovePartitions { .. }
                | Command::CancelMoves { .. }
                | Command::EndMove { .. }
                | Command::Move(_)
                | Command::RecordIds(_)
                | Command::Transaction(_)
        );
        match (self.role, command.home()) {
            (Role::Catalog, Home::Catalog) | (Role::Rows(_), Home::Rows) => Ok(()),
            (Role::Whole, _) if !apart => Ok(()),
            (role, _) => Err(Refusal::NotHere { shard: role.shard() }),
        }
    }

    /// Changes the topic last: it can no longer fail.
    fn change_documents(
        &mut self,
        change: &DocumentsChange,
        applied: &mut EntryEffects,
    ) -> Result<(), Refusal> {
        self.catalog.change_documents(change)?;
        match &change.topic {
            TopicChange::None => {}
            TopicChange::Delete(topic) => {
                self.command(&Command::DeleteTopic { topic: *topic }, applied)?;
            }
            TopicChange::Create { topic, group } => {
                let id = TopicId(self.catalog.next_topic);
                self.command(&Command::CreateTopics { topics: vec![topic.clone()] }, applied)?;
                if let Some(NewGroup { name, config }) = group.clone() {
                    let starts = Vec::new();
                    let group = Command::CreateLeaseGroup { topic: id, name, starts, config };
                    self.command(&group, applied)?;
                }
                self.note_groups_moved(id, applied);
            }
        }
        Ok(())
    }

    fn set_node_config(&mut self, overrides: &Overrides) -> Result<Outcome, Refusal> {
        self.catalog.set_node_config(overrides)?;
        for topic in self.catalog.topics() {
            self.rows.set_deletes_settled(topic.id, topic.config.retention_settled);
        }
        Ok(Outcome::Done)
    }

    /// Records the topic's lease groups as changed, for delivery.
    fn note_groups_moved(&self, topic: TopicId, applied: &mut EntryEffects) {
        let groups = self.catalog.lease_groups.ids_of(topic).iter();
        applied.moved.extend(groups.map(|&group| (group, ALL_PARTITIONS)));
    }

    fn deletes_settled(&self, topic: TopicId) -> bool {
        self.catalog.topic(topic).is_some_and(|topic| topic.config.retention_settled)
    }
}
