//! The topology of a Streams application, and the topics and tasks that follow from it.
//!
//! A subtopology reads source topics and repartition topics, and writes repartition topics and changelogs. It has
//! as many tasks as the largest of its input topics has partitions. The topics between subtopologies, and the
//! changelogs, are created by the group. Their partition counts follow from the sources, from counts fixed by the
//! application, and from joins, which require equal counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::Text;
use crate::error::ErrorKind;
use crate::limits::STREAMS_TASKS_MAX;

use super::status::{Status, StatusCode};
use crate::error::GroupError;
use crate::subscription::Catalog;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    pub epoch: i32,
    pub subtopologies: Vec<Subtopology>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subtopology {
    pub id: Text,
    pub source_topics: Vec<Text>,
    pub source_patterns: Vec<Text>,
    pub changelogs: Vec<InternalTopic>,
    pub repartition_sinks: Vec<Text>,
    pub repartition_sources: Vec<InternalTopic>,
    pub copartition_groups: Vec<CopartitionGroup>,
}

/// A topic that the group creates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InternalTopic {
    pub name: Text,
    /// 0: not fixed by the application.
    pub partitions: i32,
    pub replication_factor: i16,
    pub configs: Vec<(Text, Text)>,
}

/// Places in the subtopology's lists of topics that must have equal partition counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopartitionGroup {
    pub sources: Vec<i16>,
    pub patterns: Vec<i16>,
    pub repartition_sources: Vec<i16>,
}

impl Subtopology {
    /// All its input topics.
    pub fn reads(&self) -> impl Iterator<Item = &Text> {
        self.source_topics.iter().chain(self.repartition_sources.iter().map(|topic| &topic.name))
    }

    pub fn is_stateful(&self) -> bool {
        !self.changelogs.is_empty()
    }
}

/// A topology resolved with the existing topics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfiguredTopology {
    /// Number of tasks of each subtopology; none while the topology is not ready.
    pub tasks: BTreeMap<Text, SubtopologyShape>,
    /// Topics to be created, with their partitions.
    pub missing: Vec<InternalTopic>,
    /// The reason why there are no tasks.
    pub status: Option<Status>,
    /// Partition counts of the internal topics, for descriptions of the group.
    pub counts: BTreeMap<Text, u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubtopologyShape {
    pub tasks: u32,
    pub is_stateful: bool,
}

impl ConfiguredTopology {
    pub fn is_ready(&self) -> bool {
        self.status.is_none()
    }
}

/// Reason why a topology cannot be configured, temporary or permanent.
enum Obstacle {
    Status(Status),
    Invalid(GroupError),
}

impl Obstacle {
    fn status(code: StatusCode, detail: String) -> Self {
        Self::Status(Status { code, detail })
    }
}

fn invalid(reason: impl Into<String>) -> GroupError {
    GroupError::new(ErrorKind::StreamsInvalidTopology, reason.into())
}

impl Topology {
    /// Performs the checks that need no topics.
    pub fn check(&self) -> Result<(), GroupError> {
        let mut ids = BTreeSet::new();
        for subtopology in &self.subtopologies {
            if !ids.insert(&subtopology.id) {
                return Err(invalid(format!("Subtopology {} is there twice.", &*subtopology.id)));
            }
            if !subtopology.source_patterns.is_empty() {
                return Err(GroupError::new(
                    ErrorKind::InvalidRequest,
                    "Regular expressions for source topics are not supported yet.",
                ));
            }
            if let Some(topic) = subtopology.changelogs.iter().find(|topic| topic.partitions != 0) {
                return Err(invalid(format!(
                    "Changelog topic {} must have an undefined partition count, but it is set to \
                     {}.",
                    &*topic.name, topic.partitions
                )));
            }
            let sources = &subtopology.repartition_sources;
            if let Some(topic) = sources.iter().find(|topic| topic.partitions < 0) {
                return Err(invalid(format!(
                    "Repartition topic {} cannot have {} partitions.",
                    &*topic.name, topic.partitions
                )));
            }
            if subtopology.reads().next().is_none() {
                return Err(invalid(format!("Subtopology {} reads no topic.", &*subtopology.id)));
            }
            for group in &subtopology.copartition_groups {
                subtopology.copartitioned(group)?;
            }
        }
        Ok(())
    }

    /// Names of all required topics.
    pub fn required_topics(&self) -> BTreeSet<&Text> {
        let mut required = BTreeSet::new();
        for subtopology in &self.subtopologies {
            required.extend(subtopology.changelogs.iter().map(|topic| &topic.name));
            required.extend(subtopology.reads());
        }
        required
    }

    pub fn subtopology(&self, id: &str) -> Option<&Subtopology> {
        self.subtopologies.iter().find(|subtopology| subtopology.id.as_ref() == id)
    }

    /// Computes tasks and internal topics. An error means that the topology can never work.
    pub fn configure(&self, catalog: &impl Catalog) -> Result<ConfiguredTopology, GroupError> {
        let required = self.required_topics();
        let found: BTreeMap<&str, u32> = required
            .into_iter()
            .filter_map(|name| Some((&**name, catalog.topic(name)?.partitions)))
            .collect();
        match PartitionCounter::new(self, &found).run() {
            Ok(configured) => Ok(configured),
            Err(Obstacle::Status(status)) => {
                Ok(ConfiguredTopology { status: Some(status), ..ConfiguredTopology::default() })
            }
            Err(Obstacle::Invalid(fault)) => Err(fault),
        }
    }

    /// The topology for descriptions: the internal topics have their computed partition counts.
    pub fn with_counts(&self, counts: &BTreeMap<Text, u32>) -> Self {
        let mut topology = self.clone();
        for subtopology in &mut topology.subtopologies {
            let sources = &mut subtopology.repartition_sources;
            for topic in subtopology.changelogs.iter_mut().chain(sources) {
                topic.partitions = counts.get(&topic.name).map_or(0, |count| *count as i32);
            }
        }
        topology
    }

    /// Memory of the topology.
    pub fn bytes(&self) -> usize {
        const ROW_BYTES: usize = 96;
        let text = |text: &Text| text.len() + ROW_BYTES;
        let topic = |topic: &InternalTopic| {
            let configs = topic.configs.iter().map(|(name, value)| text(name) + text(value));
            text(&topic.name) + configs.sum::<usize>()
        };
        let subtopology = |it: &Subtopology| {
            let names = it.source_topics.iter().chain(&it.repartition_sinks).map(text);
            let topics = it.changelogs.iter().chain(&it.repartition_sources).map(topic);
            let groups = it.copartition_groups.iter().map(|group| {
                ROW_BYTES + 2 * (group.sources.len() + group.repartition_sources.len())
            });
            text(&it.id) + names.chain(topics).chain(groups).sum::<usize>()
        };
        self.subtopologies.iter().map(subtopology).sum()
    }
}

impl Subtopology {
    /// The names of a copartition group.
    fn copartitioned(&self, group: &CopartitionGroup) -> Result<BTreeSet<&str>, GroupError> {
        let place = |place: i16| usize::try_from(place).ok();
        let sources = group.sources.iter().map(|at| Some(&**self.source_topics.get(place(*at)?)?));
        let repartition = group
            .repartition_sources
            .iter()
            .map(|at| Some(&*self.repartition_sources.get(place(*at)?)?.name));
        let names: Option<BTreeSet<&str>> = sources.chain(repartition).collect();
        names.filter(|_| group.patterns.is_empty()).ok_or_else(|| {
            invalid(format!("Subtopology {} copartitions topics that it does not have.", &*self.id))
        })
    }
}

/// Computes the partition count of each internal topic.
struct PartitionCounter<'a> {
    topology: &'a Topology,
    found: &'a BTreeMap<&'a str, u32>,
    decided: BTreeMap<&'a str, u32>,
}

impl<'a> PartitionCounter<'a> {
    fn new(topology: &'a Topology, found: &'a BTreeMap<&'a str, u32>) -> Self {
        Self { topology, found, decided: BTreeMap::new() }
    }

    fn run(mut self) -> Result<ConfiguredTopology, Obstacle> {
        self.find_sources()?;
        self.count_repartition_topics()?;
        self.copartition()?;
        for subtopology in &self.topology.subtopologies {
            let tasks = self.tasks_of(subtopology)?;
            for topic in &subtopology.changelogs {
                self.decided.insert(&topic.name, tasks);
            }
        }
        self.configured()
    }

    fn repartition_sources(&self) -> impl Iterator<Item = &'a InternalTopic> + use<'a> {
        self.topology.subtopologies.iter().flat_map(|it| &it.repartition_sources)
    }

    /// An existing topic's count takes precedence over a decided one.
    fn count(&self, topic: &str) -> Option<u32> {
        self.found.get(topic).or_else(|| self.decided.get(topic)).copied()
    }

    fn find_sources(&self) -> Result<(), Obstacle> {
        let internal: BTreeSet<_> = self.repartition_sources().map(|topic| &*topic.name).collect();
        let sources = self.topology.subtopologies.iter().flat_map(|it| &it.source_topics);
        let missing: BTreeSet<&str> = sources
            .map(|name| &**name)
            .filter(|name| !self.found.contains_key(name) && !internal.contains(name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let detail = format!("Source topics {} are missing.", summary(&missing));
        Err(Obstacle::status(StatusCode::MissingSourceTopics, detail))
    }

    /// A repartition topic has the partition count that the application fixed, or that of the largest input topic
    /// of its writer, which may be another repartition topic.
    fn count_repartition_topics(&mut self) -> Result<(), Obstacle> {
        for topic in self.repartition_sources().filter(|topic| topic.partitions > 0) {
            self.decided.insert(&topic.name, topic.partitions as u32);
        }
        let mut open: Vec<(&'a Subtopology, &'a str)> = Vec::new();
        for subtopology in &self.topology.subtopologies {
            let sinks = subtopology.repartition_sinks.iter().map(|sink| (subtopology, &**sink));
            open.extend(sinks.filter(|(_, sink)| !self.decided.contains_key(sink)));
        }
        while !open.is_empty() {
            let before = open.len();
            let mut left = Vec::new();
            for (subtopology, sink) in open {
                let repartition = subtopology.repartition_sources.iter();
                let read = repartition.filter_map(|topic| self.decided.get(&*topic.name));
                let sources = subtopology.source_topics.iter();
                let found = sources.filter_map(|name| self.found.get(&**name));
                match read.chain(found).max().copied() {
                    Some(count) => drop(self.decided.insert(sink, count)),
                    None => left.push((subtopology, sink)),
                }
            }
            if left.len() == before {
                return Err(Obstacle::Invalid(invalid(
                    "Failed to compute number of partitions for all repartition topics. There may \
                     be loops in the topology that cannot be resolved.",
                )));
            }
            open = left;
        }
        match self.repartition_sources().find(|topic| !self.decided.contains_key(&*topic.name)) {
            Some(topic) => Err(Obstacle::Invalid(invalid(format!(
                "Repartition topic {} is read, and nothing writes it.",
                &*topic.name
            )))),
            None => Ok(()),
        }
    }

    /// Joined topics have equal partition counts: external ones are checked, and those that the application left
    /// open are adapted.
    fn copartition(&mut self) -> Result<(), Obstacle> {
        let fixed: BTreeSet<&str> = self
            .repartition_sources()
            .filter(|topic| topic.partitions > 0)
            .map(|topic| &*topic.name)
            .collect();
        let internal: BTreeSet<&str> =
            self.repartition_sources().map(|topic| &*topic.name).collect();
        for subtopology in &self.topology.subtopologies {
            for group in &subtopology.copartition_groups {
                let names = subtopology.copartitioned(group).map_err(Obstacle::Invalid)?;
                let counted: Vec<(&str, u32)> =
                    names.iter().filter_map(|name| Some((*name, self.count(name)?))).collect();
                let of = |binding: &dyn Fn(&str) -> bool| -> Vec<(&str, u32)> {
                    counted.iter().copied().filter(|(name, _)| binding(name)).collect()
                };
                let external = of(&|name| !internal.contains(name));
                let told = of(&|name| fixed.contains(name));
                let (binding, all) = match (external.is_empty(), told.is_empty()) {
                    (false, _) => (external, told),
                    (true, false) => (told.clone(), told),
                    (true, true) => {
                        let most = counted.iter().copied().max_by_key(|(_, count)| *count);
                        (most.into_iter().collect(), Vec::new())
                    }
                };
                let Some((_, count)) = binding.first().copied() else { continue };
                let differs = |(_, other): &(&str, u32)| *other != count;
                if binding.iter().any(differs) || all.iter().any(differs) {
                    let counts: BTreeMap<_, _> = binding.into_iter().chain(all).collect();
                    let counts: Vec<_> =
                        counts.iter().map(|(name, count)| format!("{name}={count}")).collect();
                    let detail = format!(
                        "Following topics do not have the same number of partitions: [{}]",
                        counts.join(", ")
                    );
                    let code = StatusCode::IncorrectlyPartitionedTopics;
                    return Err(Obstacle::status(code, detail));
                }
                for topic in subtopology.repartition_sources.iter() {
                    if names.contains(&*topic.name) {
                        self.decided.insert(&topic.name, count);
                    }
                }
            }
        }
        Ok(())
    }

    fn tasks_of(&self, subtopology: &Subtopology) -> Result<u32, Obstacle> {
        let most = subtopology.reads().filter_map(|topic| self.count(topic)).max();
        most.ok_or_else(|| {
            Obstacle::Invalid(invalid(format!(
                "No source topics found for subtopology {}",
                &*subtopology.id
            )))
        })
    }

    fn configured(self) -> Result<ConfiguredTopology, Obstacle> {
        let mut configured = ConfiguredTopology::default();
        let mut total = 0_u64;
        for subtopology in &self.topology.subtopologies {
            let tasks = self.tasks_of(subtopology)?;
            total += u64::from(tasks);
            let shape = SubtopologyShape { tasks, is_stateful: subtopology.is_stateful() };
            configured.tasks.insert(subtopology.id.clone(), shape);
            for topic in subtopology.repartition_sources.iter().chain(&subtopology.changelogs) {
                let Some(expected) = self.decided.get(&*topic.name).copied() else { continue };
                configured.counts.insert(topic.name.clone(), expected);
                match self.found.get(&*topic.name).copied() {
                    Some(found) if found != expected => {
                        let detail = format!(
                            "Existing topic {} has different number of partitions: expected \
                             {expected}, found {found}",
                            &*topic.name
                        );
                        let code = StatusCode::IncorrectlyPartitionedTopics;
                        return Err(Obstacle::status(code, detail));
                    }
                    Some(_) => {}
                    None if configured.missing.iter().any(|known| known.name == topic.name) => {}
                    None => configured
                        .missing
                        .push(InternalTopic { partitions: expected as i32, ..topic.clone() }),
                }
            }
        }
        if total > STREAMS_TASKS_MAX {
            return Err(Obstacle::Invalid(invalid(format!(
                "The topology comes to {total} tasks, and a group has at most {STREAMS_TASKS_MAX}."
            ))));
        }
        if !configured.missing.is_empty() {
            let names = configured.missing.iter().map(|topic| &*topic.name).collect();
            let detail = format!("Internal topics are missing: {}", summary(&names));
            configured.status = Some(Status { code: StatusCode::MissingInternalTopics, detail });
        }
        Ok(configured)
    }
}

/// Lists the first three of the names.
fn summary(names: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} additional topics"),
    }
}
