//! The stored form of a group of Kafka Streams. It does not contain the configured topology: the next heartbeat
//! computes it from the existing topics.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use world::Instant;

use super::status::Endpoint;
use super::tasks::{Task, Tasks};
use super::topology::{CopartitionGroup, InternalTopic, Subtopology, Topology};
use super::{Member, StreamsGroup};
use crate::client::Client;
use crate::members::{Enrolment, Members};
use crate::reconcile::{MemberState, Progress};
use crate::stored_fields::{KeptError, ProgressV1, millis, own};
use crate::{Text, text};

#[derive(Serialize, Deserialize)]
pub(crate) struct StreamsV1<'a> {
    epoch: i32,
    target_epoch: i32,
    #[serde(borrow)]
    topology: Option<TopologyV1<'a>>,
    /// The first members wait for others before they get tasks.
    is_delayed: bool,
    standbys: u32,
    endpoint_epoch: i32,
    shutdown_by: Option<&'a str>,
    #[serde(borrow)]
    members: Vec<MemberV1<'a>>,
}

#[derive(Serialize, Deserialize)]
struct TopologyV1<'a> {
    epoch: i32,
    #[serde(borrow)]
    subtopologies: Vec<SubtopologyV1<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SubtopologyV1<'a> {
    id: &'a str,
    #[serde(borrow)]
    source_topics: Vec<&'a str>,
    #[serde(borrow)]
    source_patterns: Vec<&'a str>,
    #[serde(borrow)]
    changelogs: Vec<InternalTopicV1<'a>>,
    #[serde(borrow)]
    repartition_sinks: Vec<&'a str>,
    #[serde(borrow)]
    repartition_sources: Vec<InternalTopicV1<'a>>,
    /// For each group, places in the lists of sources, patterns and repartition sources.
    copartition_groups: Vec<[Vec<i16>; 3]>,
}

#[derive(Serialize, Deserialize)]
struct InternalTopicV1<'a> {
    name: &'a str,
    partitions: i32,
    replication_factor: i16,
    #[serde(borrow)]
    configs: Vec<(&'a str, &'a str)>,
}

/// Task numbers of each subtopology.
type TasksV1<'a> = Vec<(&'a str, Vec<i32>)>;
/// The same, with the epoch in which the member got each.
type ActiveV1<'a> = Vec<(&'a str, Vec<(i32, i32)>)>;

#[derive(Serialize, Deserialize)]
struct HeldV1<'a> {
    #[serde(borrow)]
    active: ActiveV1<'a>,
    #[serde(borrow)]
    standby: TasksV1<'a>,
}

#[derive(Serialize, Deserialize)]
struct MemberV1<'a> {
    id: &'a str,
    rack_id: Option<&'a str>,
    client: &'a str,
    host: &'a str,
    rebalance_timeout_ms: u32,
    topology_epoch: i32,
    process_id: &'a str,
    endpoint: Option<(&'a str, u16)>,
    #[serde(borrow)]
    tags: Vec<(&'a str, &'a str)>,
    epoch: i32,
    previous_epoch: i32,
    progress: ProgressV1,
    #[serde(borrow)]
    assigned: HeldV1<'a>,
    #[serde(borrow)]
    revoking: HeldV1<'a>,
    #[serde(borrow)]
    target_active: TasksV1<'a>,
    #[serde(borrow)]
    target_standby: TasksV1<'a>,
}

fn names(all: &[Text]) -> Vec<&str> {
    all.iter().map(|name| &**name).collect()
}

fn texts(all: &[&str]) -> Vec<Text> {
    all.iter().map(|name| text(name)).collect()
}

fn pairs(all: &[(Text, Text)]) -> Vec<(&str, &str)> {
    all.iter().map(|(key, value)| (&**key, &**value)).collect()
}

fn text_pairs(all: &[(&str, &str)]) -> Vec<(Text, Text)> {
    all.iter().map(|(key, value)| (text(key), text(value))).collect()
}

// ------------------------------------------------------------------------------------- topologies

impl InternalTopic {
    fn to_keep(&self) -> InternalTopicV1<'_> {
        InternalTopicV1 {
            name: &self.name,
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            configs: pairs(&self.configs),
        }
    }
}

impl InternalTopicV1<'_> {
    fn restored(&self) -> InternalTopic {
        InternalTopic {
            name: text(self.name),
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            configs: text_pairs(&self.configs),
        }
    }
}

impl Topology {
    fn to_keep(&self) -> TopologyV1<'_> {
        let subtopologies = self.subtopologies.iter().map(|it| SubtopologyV1 {
            id: &it.id,
            source_topics: names(&it.source_topics),
            source_patterns: names(&it.source_patterns),
            changelogs: it.changelogs.iter().map(InternalTopic::to_keep).collect(),
            repartition_sinks: names(&it.repartition_sinks),
            repartition_sources: it
                .repartition_sources
                .iter()
                .map(InternalTopic::to_keep)
                .collect(),
            copartition_groups: it
                .copartition_groups
                .iter()
                .map(|CopartitionGroup { sources, patterns, repartition_sources }| {
                    [sources.clone(), patterns.clone(), repartition_sources.clone()]
                })
                .collect(),
        });
        TopologyV1 { epoch: self.epoch, subtopologies: subtopologies.collect() }
    }
}

impl TopologyV1<'_> {
    fn restored(&self) -> Result<Topology, KeptError> {
        let subtopologies = self.subtopologies.iter().map(|it| Subtopology {
            id: text(it.id),
            source_topics: texts(&it.source_topics),
            source_patterns: texts(&it.source_patterns),
            changelogs: it.changelogs.iter().map(InternalTopicV1::restored).collect(),
            repartition_sinks: texts(&it.repartition_sinks),
            repartition_sources: it
                .repartition_sources
                .iter()
                .map(InternalTopicV1::restored)
                .collect(),
            copartition_groups: it
                .copartition_groups
                .iter()
                .cloned()
                .map(|[sources, patterns, repartition_sources]| CopartitionGroup {
                    sources,
                    patterns,
                    repartition_sources,
                })
                .collect(),
        });
        let topology = Topology { epoch: self.epoch, subtopologies: subtopologies.collect() };
        let checked = topology.check();
        checked.map_err(|_| KeptError::Inconsistent("its topology is none"))?;
        Ok(topology)
    }
}

// ---------------------------------------------------------------------------------------- members

fn stored(tasks: &BTreeSet<Task>) -> TasksV1<'_> {
    let mut rows: TasksV1<'_> = Vec::new();
    for Task { subtopology, partition } in tasks {
        match rows.last_mut() {
            Some((id, partitions)) if **subtopology == **id => partitions.push(*partition),
            _ => rows.push((subtopology, vec![*partition])),
        }
    }
    rows
}

fn tasks(stored: &TasksV1<'_>) -> BTreeSet<Task> {
    let of_one = |(id, partitions): &(&str, Vec<i32>)| {
        let id = text(id);
        partitions.iter().map(move |partition| Task::new(&id, *partition)).collect::<Vec<_>>()
    };
    stored.iter().flat_map(of_one).collect()
}

fn held<'a>(state: &MemberState<Tasks>, held: &'a Tasks) -> HeldV1<'a> {
    let mut active: ActiveV1<'a> = Vec::new();
    for task in &held.active {
        let given_in = state.given_in.get(task).copied().unwrap_or(state.epoch);
        let one = (task.partition, given_in);
        match active.last_mut() {
            Some((id, partitions)) if *task.subtopology == **id => partitions.push(one),
            _ => active.push((&task.subtopology, vec![one])),
        }
    }
    HeldV1 { active, standby: stored(&held.standby) }
}

impl HeldV1<'_> {
    /// Each active task with the epoch in which it was assigned.
    fn given(&self) -> Vec<(Task, i32)> {
        let of_one = |(id, partitions): &(&str, Vec<(i32, i32)>)| {
            let id = text(id);
            let partitions = partitions.iter();
            partitions
                .map(move |(at, given_in)| (Task::new(&id, *at), *given_in))
                .collect::<Vec<_>>()
        };
        self.active.iter().flat_map(of_one).collect()
    }

    fn tasks(&self) -> Tasks {
        let active = self.given().into_iter().map(|(task, _)| task).collect();
        Tasks { active, standby: tasks(&self.standby) }
    }
}

impl Member {
    fn to_keep(&self) -> MemberV1<'_> {
        let Self { enrolment, state, .. } = self;
        MemberV1 {
            id: &enrolment.id,
            rack_id: enrolment.rack_id.as_deref(),
            client: &enrolment.client.id,
            host: &enrolment.client.host,
            rebalance_timeout_ms: millis(self.rebalance_timeout),
            topology_epoch: self.topology_epoch,
            process_id: &self.process_id,
            endpoint: self.endpoint.as_ref().map(|Endpoint { host, port }| (&**host, *port)),
            tags: pairs(&self.tags),
            epoch: state.epoch,
            previous_epoch: state.previous_epoch,
            progress: state.progress.into(),
            assigned: held(state, &state.assigned),
            revoking: held(state, &state.revoking),
            target_active: stored(&state.target.active),
            target_standby: stored(&state.target.standby),
        }
    }
}

impl MemberV1<'_> {
    fn restored(&self, session_timeout: Duration, now: Instant) -> Member {
        let client = Client { id: text(self.client), host: text(self.host) };
        let mut enrolment = Enrolment::new(&text(self.id), &client, now + session_timeout);
        enrolment.rack_id = own(self.rack_id);
        let rebalance_timeout = Duration::from_millis(self.rebalance_timeout_ms.into());
        let progress = Progress::from(self.progress);
        if progress == Progress::Revoking {
            enrolment.deadlines.revocation = Some(now + rebalance_timeout);
        }
        Member {
            enrolment,
            rebalance_timeout,
            topology_epoch: self.topology_epoch,
            process_id: text(self.process_id),
            endpoint: self.endpoint.map(|(host, port)| Endpoint { host: text(host), port }),
            tags: text_pairs(&self.tags),
            state: MemberState {
                epoch: self.epoch,
                previous_epoch: self.previous_epoch,
                progress,
                assigned: self.assigned.tasks(),
                revoking: self.revoking.tasks(),
                given_in: self.assigned.given().into_iter().chain(self.revoking.given()).collect(),
                target: Tasks {
                    active: tasks(&self.target_active),
                    standby: tasks(&self.target_standby),
                },
            },
        }
    }
}

// ----------------------------------------------------------------------------------------- groups

impl StreamsGroup {
    pub(crate) fn to_keep(&self) -> StreamsV1<'_> {
        StreamsV1 {
            epoch: self.epoch(),
            target_epoch: self.target_epoch(),
            topology: self.own.topology.as_ref().map(Topology::to_keep),
            is_delayed: self.own.delayed_until.is_some(),
            standbys: u32::try_from(self.own.standbys).unwrap_or(u32::MAX),
            endpoint_epoch: self.own.endpoint_epoch,
            shutdown_by: self.own.shutdown_by.as_deref(),
            members: self.members().map(Member::to_keep).collect(),
        }
    }
}

impl StreamsV1<'_> {
    pub(crate) fn restored(
        &self,
        name: Text,
        session_timeout: Duration,
        now: Instant,
    ) -> Result<StreamsGroup, KeptError> {
        if self.members.is_empty() || !(0..=self.epoch).contains(&self.target_epoch) {
            return Err(KeptError::Inconsistent("it is no group with members"));
        }
        let mut group = StreamsGroup::new(name);
        group.members = Members::at(self.epoch, self.target_epoch);
        let own_of_group = &mut group.own;
        own_of_group.topology = self.topology.as_ref().map(TopologyV1::restored).transpose()?;
        // It has waited already, and the wait is over with the next heartbeat.
        own_of_group.delayed_until = self.is_delayed.then_some(now);
        own_of_group.standbys = usize::try_from(self.standbys).unwrap_or(usize::MAX);
        own_of_group.endpoint_epoch = self.endpoint_epoch;
        own_of_group.shutdown_by = own(self.shutdown_by);
        let mut active = BTreeSet::new();
        for kept in &self.members {
            let member = kept.restored(session_timeout, now);
            if group.members.contains_key(&member.enrolment.id) {
                return Err(KeptError::Inconsistent("two members are the same"));
            }
            let MemberState { assigned, revoking, .. } = &member.state;
            let is_nobodys = |task: &Task| active.insert(task.clone());
            if !assigned.active.iter().chain(&revoking.active).all(is_nobodys) {
                return Err(KeptError::Inconsistent("a task is active at two members"));
            }
            group.insert(member);
        }
        Ok(group)
    }
}
