//! Topic names by number, and descriptions of entries' heads.

use std::path::Path;

use ::journal::EntryKind;
use ::journal::inspect::{self, EntryInfo, SnapshotFileInfo};
use ::world::RealDisk;
use base::{HashMap, PartitionId, TopicId};
use machine::{
    Command, DocumentsChange, EndedPart, Entry, EntryEffects, GroupSettle, Head, MessageCommand,
    MoveEnd, MoveStep, Origin, Outcome, Preparation, ProducerKey, State, Step, TopicChange,
    TransactionCommand,
};

use super::unreadable;
use crate::command_error::CommandError;

/// Description of an entry's head.
#[derive(Default)]
pub(super) struct HeadText {
    pub(super) time_ms: Option<i64>,
    pub(super) commands: Vec<String>,
}

/// Topic names by number: from the newest snapshot, and from topics created by later entries.
pub(super) struct Names {
    state: State,
    /// Last entry that the state includes.
    applied: u64,
    /// Includes deleted topics.
    pub(super) topics: HashMap<TopicId, String>,
}

/// `None` if this build cannot read it.
pub(super) fn state_of(
    dir: &Path,
    snapshot: &inspect::SnapshotContent,
) -> Result<Option<State>, CommandError> {
    let machine = inspect::snapshot_machine(&RealDisk, dir, snapshot).map_err(unreadable(dir))?;
    Ok(machine.and_then(|machine| State::decode(&machine).ok()))
}

fn settled(settles: &[GroupSettle]) -> String {
    let settled = settles.iter().flat_map(|settle| &settle.settled);
    let records: u64 = settled.map(|(_, count)| u64::from(*count)).sum();
    format!("settle {records} records of {} partitions", settles.len())
}

impl Names {
    pub(super) fn from_snapshots(
        dir: &Path,
        snapshots: &[SnapshotFileInfo],
        topics: HashMap<TopicId, String>,
    ) -> Result<Self, CommandError> {
        let mut names = Names { state: State::new(), applied: 0, topics };
        for content in snapshots.iter().filter_map(|snapshot| snapshot.content) {
            if let Some(state) = state_of(dir, &content)? {
                let named = state.catalog.topics().map(|topic| (topic.id, topic.name.to_string()));
                names.topics.extend(named);
                names.state = state;
                names.applied = content.id.index;
                break;
            }
        }
        Ok(names)
    }

    pub(super) fn partition(&self, partition: PartitionId) -> String {
        match self.topics.get(&partition.topic) {
            Some(topic) => format!("{topic}/{}", partition.index),
            None => partition.to_string(),
        }
    }

    fn topic(&self, topic: TopicId) -> String {
        self.topics.get(&topic).cloned().unwrap_or_else(|| topic.to_string())
    }

    /// Describes an entry, and learns the topics that it creates.
    pub(super) fn read(&mut self, entry: &EntryInfo) -> HeadText {
        if entry.kind != EntryKind::Command {
            return HeadText::default();
        }
        let Ok(Head { now_ms, commands, units, .. }) = machine::decode_head(&entry.head) else {
            return HeadText { time_ms: None, commands: vec!["(cannot be decoded)".into()] };
        };
        if entry.id.index > self.applied {
            self.applied = entry.id.index;
            self.learn(now_ms, &commands);
        }
        let messages = units.iter().filter_map(|unit| unit.origin).map(|origin| {
            let Origin { shard, number, .. } = origin;
            format!("take message {number} of {shard}")
        });
        let commands = commands.iter().map(|command| self.describe(command));
        let commands = messages.chain(commands).collect();
        HeadText { time_ms: Some(now_ms), commands }
    }

    fn learn(&mut self, now_ms: i64, commands: &[Command]) {
        if commands.is_empty() {
            return;
        }
        let mut applied = EntryEffects::new();
        // Only the names of topics matter: appends are not applied.
        self.state.apply(&Entry { now_ms, commands, ..Entry::default() }, &mut applied);
        for (command, outcome) in commands.iter().zip(applied.commands) {
            if let (Command::CreateTopics { topics }, Ok(Outcome::Topics(made))) =
                (command, outcome)
            {
                let made =
                    topics.iter().zip(made).filter_map(|(topic, id)| Some((id.ok()?, topic)));
                self.topics.extend(made.map(|(id, topic)| (id, topic.name.clone())));
            }
            if let Command::ChangeDocuments(DocumentsChange {
                topic: TopicChange::Create { topic, .. },
                ..
            }) = command
                && let Some(made) = self.state.catalog.topic_named(&topic.name)
            {
                self.topics.insert(made.id, topic.name.clone());
            }
        }
    }

    fn describe(&self, command: &Command) -> String {
        match command {
            Command::CreateTopics { topics } => match &topics[..] {
                [topic] => {
                    format!("create topic {} with {} partitions", topic.name, topic.partitions)
                }
                topics => format!("create {} topics", topics.len()),
            },
            Command::DeleteTopic { topic } => format!("delete topic {}", self.topic(*topic)),
            Command::CreatePartitions { topic, total } => {
                format!("grow topic {} to {total} partitions", self.topic(*topic))
            }
            Command::SetTopicConfig { topic, .. } | Command::ChangeTopic { topic, .. } => {
                format!("configure topic {}", self.topic(*topic))
            }
            Command::SetNodeConfig { .. } => "configure the node".into(),
            Command::SetGroupConfig { group, .. } => format!("configure group {group}"),
            Command::AdvanceStart { starts } => match &starts[..] {
                [(place, start)] => format!("delete {} below {start}", self.partition(*place)),
                starts => format!("delete old records of {} partitions", starts.len()),
            },
            Command::Compacted { partition, up_to } => {
                format!("{} is compacted up to {up_to}", self.partition(*partition))
            }
            Command::AllocateProducerId => "allocate a producer id".into(),
            Command::AllocateProducerIds { count } => format!("allocate {count} producer ids"),
            Command::CommitOffsets { group, offsets } => match &offsets[..] {
                [at] => {
                    format!(
                        "group {group} commits {} at {}",
                        self.partition(at.partition),
                        at.offset
                    )
                }
                offsets => format!("group {group} commits {} offsets", offsets.len()),
            },
            Command::DeleteOffsets { group, partitions } => {
                format!("group {group} forgets {} offsets", partitions.len())
            }
            Command::DeleteGroup { group } => format!("delete group {group}"),
            Command::ExpireOffsets { groups, .. } => {
                format!("expire offsets of {} groups", groups.len())
            }
            Command::ExpireProducers { .. } => "expire producers".into(),
            Command::CreateLeaseGroup { topic, name, .. } => {
                format!("create lease group {name} of {}", self.topic(*topic))
            }
            Command::SetLeaseGroupConfig { group, .. } => format!("configure lease group {group}"),
            Command::DeleteLeaseGroup { group } => format!("delete lease group {group}"),
            Command::PauseLeaseGroup { group, paused: true } => {
                format!("pause lease group {group}")
            }
            Command::PauseLeaseGroup { group, paused: false } => {
                format!("resume lease group {group}")
            }
            Command::SeekLeaseGroup { group, starts } => {
                format!("seek lease group {group} in {} partitions", starts.len())
            }
            Command::Settle { settles } => settled(settles),
            Command::PutDocument { space, name, body, .. } => {
                format!("put document {space}/{name} of {} bytes", body.len())
            }
            Command::DeleteDocument { space, name, .. } => {
                format!("delete document {space}/{name}")
            }
            Command::ChangeDocuments(change) => {
                let topic = match &change.topic {
                    TopicChange::None => String::new(),
                    TopicChange::Create { topic, .. } => format!(", create topic {}", topic.name),
                    TopicChange::Delete(topic) => format!(", delete topic {}", self.topic(*topic)),
                };
                format!("change {} documents{topic}", change.documents.len())
            }
            Command::SetShards { count } => {
                format!("set the number of shards with records to {count}")
            }
            Command::Send { to, batches } => {
                let targets: usize = batches.iter().map(|batch| batch.targets.len()).sum();
                let batches = batches.len();
                format!("send a message of {batches} batches to {targets} partitions of {to}")
            }
            Command::SendWith { to, batches, commands, .. } => {
                let targets: usize = batches.iter().map(|batch| batch.targets.len()).sum();
                let (batches, commands) = (batches.len(), commands.len());
                format!(
                    "send a message of {batches} batches to {targets} partitions of {to}, with {commands} commands"
                )
            }
            Command::Fence { shard, before: Preparation { term, number } } => {
                format!(
                    "send {shard} no commands for which it prepared before number {number} of its term {term}"
                )
            }
            Command::FromMessage(MessageCommand::Settle { settles }) => {
                format!("by a message from another shard: {}", settled(settles))
            }
            Command::FromMessage(MessageCommand::EndTransaction(part)) => {
                let EndedPart { producer: ProducerKey { id, epoch }, number, commit } = part;
                let end = if *commit { "commit" } else { "abort" };
                format!(
                    "by a message from another shard: {end} transaction {number} of producer {id}, epoch {epoch}"
                )
            }
            Command::Transaction(command) => transaction(command),
            Command::KeepMembers { groups } => match &groups[..] {
                [(group, members)] if members.is_empty() => {
                    format!("group {group} has no members")
                }
                [(group, _)] => format!("store the members of group {group}"),
                all => format!("store the members of each of {} groups", all.len()),
            },
            Command::Acknowledged { to, below } => {
                format!("{to} has all messages below {below}")
            }
            Command::SkipNumbers(to) => format!(
                "go on with version {}, topic {}, lease group {}, producer {}, after a recovery",
                to.version, to.next_topic, to.next_lease_group, to.next_producer_id
            ),
            Command::ResumeChannels { sent, taken } => {
                let numbers = |of: &[(base::ShardId, u64)]| {
                    let each = of.iter().map(|(shard, next)| format!("{shard}: {next}"));
                    each.collect::<Vec<_>>().join(", ")
                };
                let (sent, taken) = (numbers(sent), numbers(taken));
                format!("go on with channels, after a recovery: to {sent}; from {taken}")
            }
            Command::MovePartitions { topic, partitions, to } => {
                let topic = self.topic(*topic);
                format!("move {} partitions of topic {topic} to {to}", partitions.len())
            }
            Command::CancelMoves { topic, partitions } => {
                let topic = self.topic(*topic);
                format!("do not move {} partitions of topic {topic}", partitions.len())
            }
            Command::EndMove { partition, id, end } => {
                let partition = self.partition(*partition);
                let how = match end {
                    MoveEnd::Placed { .. } => "is where it was wanted",
                    MoveEnd::Cancelled => "stays where it was",
                };
                format!("{partition} {how} (move {id})")
            }
            Command::Move(MoveStep { partition, id, what }) => {
                let what = match what {
                    Step::Freeze { to } => format!("takes no appends, to be moved to {to}"),
                    Step::Thaw => "takes appends again".into(),
                    Step::Cancel => "is not moved".into(),
                    Step::HandOver { end } => format!("is handed over up to {end}"),
                    Step::Leave => "has left".into(),
                    Step::Forget => "is moved no more".into(),
                    Step::Import { from, to } => format!("comes from {from} to {to}"),
                    Step::Activate { row, .. } | Step::ActivateWith { row, .. } => {
                        format!("is here up to {}", row.next_offset())
                    }
                    Step::Discard => "does not come".into(),
                    Step::ImportIds(ids) => format!("comes with {} ids of records", ids.len()),
                };
                format!("{} {what} (move {id})", self.partition(*partition))
            }
            Command::RecordIds(change) => {
                let (ids, topics) = (change.len(), change.topics.len());
                format!("remember {ids} ids of records, in {topics} topics")
            }
            Command::Adopt(adoption) => format!(
                "take over version {} of the catalog (topics: {}, lease groups: {})",
                adoption.to,
                adoption.topics.len(),
                adoption.groups.len()
            ),
        }
    }
}

fn transaction(command: &TransactionCommand) -> String {
    let producer =
        |ProducerKey { id, epoch }: &ProducerKey| format!("producer {id}, epoch {epoch}");
    match command {
        TransactionCommand::Initialize { id, .. } => {
            format!("give transactional id {} its next producer", id)
        }
        TransactionCommand::Join { id, producer: of, shard, added, .. } => {
            let joins = shard.map_or_else(String::new, |shard| format!(" in {shard}"));
            let added = match added.len() {
                0 => String::new(),
                count => format!(", with {count} partitions"),
            };
            format!("transactional id {} ({}) takes part{joins}{added}", id, producer(of))
        }
        TransactionCommand::Open { producer: of, number, home } => {
            format!("open transaction {number} of {} for {home}", producer(of))
        }
        TransactionCommand::Pending { producer: of, group, offsets } => {
            let (group, count) = (group, offsets.len());
            format!("{count} offsets of group {group} wait for the end of {}", producer(of))
        }
        TransactionCommand::End { id, producer: of, commit, .. } => {
            let end = if *commit { "commit" } else { "abort" };
            format!("{end} the transaction of transactional id {} ({})", id, producer(of))
        }
        TransactionCommand::Forget { ids, .. } => format!("forget {} transactional ids", ids.len()),
    }
}
