//! Heartbeats: members join, stay, and confirm revocations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::HashSet;
use tracing::{debug, info};
use world::Instant;

use super::assignor::{self, Candidate};
use super::status::{EndpointPartitions, Status, StatusCode};
use super::tasks::{Task, Tasks};
use super::topology::Topology;
use super::{Heartbeat, Member, Report, StreamsGroup, StreamsLimits};
use crate::Text;
use crate::error::{ErrorKind, GroupError};
use crate::members::{Enrolment, JOINING};
use crate::reconcile::{AssignmentSet, MemberState, Progress};
use crate::subscription::Catalog;

impl StreamsGroup {
    /// Processes a heartbeat. A rejected one changes nothing that other members see.
    pub fn heartbeat(
        &mut self,
        heartbeat: &Heartbeat,
        limits: StreamsLimits,
        catalog: &impl Catalog,
        now: Instant,
    ) -> Result<Report, GroupError> {
        let is_joining = heartbeat.epoch == JOINING;
        let topology = self.topology_after(heartbeat)?;
        if is_joining {
            if !self.members.contains_key(&heartbeat.member_id) {
                self.check_room(limits.members_max)?;
            }
        } else {
            self.recognise(heartbeat)?;
        }
        // The last possible rejection: a topology that can never work.
        let configured = match &topology {
            Some(topology) => Some(topology.configure(catalog)?),
            None if self.own.stamp != Some(catalog.stamp()) => self
                .own
                .topology
                .as_ref()
                .map(|topology| topology.configure(catalog))
                .transpose()?,
            None => None,
        };
        self.own.stamp = Some(catalog.stamp());
        let mut has_changed = false;
        if let Some(topology) = topology {
            info!(group = %self.name, epoch = topology.epoch, "topology initialised");
            self.own.topology = Some(topology);
            has_changed = true;
        }
        if let Some(configured) = configured.filter(|configured| *configured != self.own.configured)
        {
            self.own.configured = configured;
            has_changed = true;
        }
        if is_joining {
            has_changed |= self.welcome(heartbeat, limits, now);
        }
        has_changed |= self.update(heartbeat);
        if self.own.standbys != limits.standbys {
            self.own.standbys = limits.standbys;
            has_changed = true;
        }
        if self.own.delayed_until.is_some_and(|until| until <= now) {
            self.own.delayed_until = None;
            has_changed = true;
        }
        if has_changed {
            self.members.bump();
        }
        if self.members.needs_targets() {
            self.assign();
        }
        self.members.note_heartbeat(&heartbeat.member_id, now + limits.session_timeout);
        if heartbeat.shutdown {
            self.own.shutdown_by = Some(heartbeat.member_id.clone());
            self.members.note_change();
        }
        self.report(heartbeat, now)
    }

    /// The group's new topology from this heartbeat on, if it changes.
    fn topology_after(&self, heartbeat: &Heartbeat) -> Result<Option<Topology>, GroupError> {
        let Some(given) = &heartbeat.topology else {
            return Ok(None);
        };
        match &self.own.topology {
            Some(known) if known == given => Ok(None),
            // A restarted application may have changed.
            None => Ok(Some(given.clone())),
            Some(_) if self.members.is_empty() => Ok(Some(given.clone())),
            // The member is reported as stale, and continues with its topology.
            Some(known) if known.epoch > given.epoch => Ok(None),
            Some(_) => Err(GroupError::new(
                ErrorKind::InvalidRequest,
                "Topology updates are not supported yet.",
            )),
        }
    }

    /// Validates the epoch of a member that stays.
    fn recognise(&self, heartbeat: &Heartbeat) -> Result<(), GroupError> {
        let state = &self.member(&heartbeat.member_id)?.state;
        if state.accepts_epoch(heartbeat.epoch, heartbeat.owned.as_ref()) {
            return self.check_owned(heartbeat);
        }
        let relation = if heartbeat.epoch > state.epoch { "greater" } else { "smaller" };
        Err(GroupError::new(
            ErrorKind::FencedMemberEpoch,
            format!(
                "The streams group member has a {relation} member epoch ({}) than the one known by \
                 the group coordinator ({}). The member must abandon all its partitions and rejoin.",
                heartbeat.epoch, state.epoch
            ),
        ))
    }

    /// Checks that the tasks reported by a member are tasks of the topology.
    fn check_owned(&self, heartbeat: &Heartbeat) -> Result<(), GroupError> {
        // A restored group has not computed its tasks before the first heartbeat.
        let has_tasks = self.own.stamp.is_some() && self.own.configured.is_ready();
        let Some(owned) = heartbeat.owned.as_ref().filter(|_| has_tasks) else { return Ok(()) };
        let is_task = |task: &Task| {
            let shape = self.own.configured.tasks.get(&task.subtopology);
            shape.is_some_and(|it| u32::try_from(task.partition).is_ok_and(|at| at < it.tasks))
        };
        match owned.active.iter().chain(&owned.standby).find(|task| !is_task(task)) {
            Some(task) => Err(GroupError::new(
                ErrorKind::InvalidRequest,
                format!(
                    "Task {} of subtopology {} does not exist in the topology.",
                    task.partition, &*task.subtopology
                ),
            )),
            None => Ok(()),
        }
    }

    /// Handles a member that joins or rejoins. Returns `true`, because the group always changes.
    fn welcome(&mut self, heartbeat: &Heartbeat, limits: StreamsLimits, now: Instant) -> bool {
        if self.members.is_empty() && !limits.initial_delay.is_zero() {
            self.own.delayed_until = Some(now + limits.initial_delay);
        }
        let member_id = &heartbeat.member_id;
        // A known member has abandoned its tasks and starts over, as a fenced one has to.
        let target = self.take(member_id).map_or_else(Tasks::default, |known| known.state.target);
        info!(group = %self.name, member = %member_id, "member joins");
        self.insert(Member {
            enrolment: Enrolment::new(member_id, &heartbeat.client, now + limits.session_timeout),
            rebalance_timeout: Duration::ZERO,
            topology_epoch: 0,
            process_id: Text::default(),
            endpoint: None,
            tags: Vec::new(),
            state: MemberState::joining(target),
        });
        true
    }

    /// Updates the member's own fields. Returns whether the assignment depends on the change.
    fn update(&mut self, heartbeat: &Heartbeat) -> bool {
        let Some(mut member) = self.take(&heartbeat.member_id) else { return false };
        let mut has_changed = false;
        fn set<T: PartialEq + Clone>(place: &mut T, value: Option<&T>) -> bool {
            let Some(value) = value.filter(|value| *value != place) else { return false };
            *place = value.clone();
            true
        }
        has_changed |= set(&mut member.process_id, heartbeat.process_id.as_ref());
        has_changed |= set(&mut member.tags, heartbeat.tags.as_ref());
        if heartbeat.rack_id.is_some() {
            has_changed |= set(&mut member.enrolment.rack_id, Some(&heartbeat.rack_id));
        }
        if heartbeat.endpoint.is_some() && set(&mut member.endpoint, Some(&heartbeat.endpoint)) {
            self.own.endpoint_epoch += 1;
        }
        set(&mut member.rebalance_timeout, heartbeat.rebalance_timeout.as_ref());
        set(&mut member.topology_epoch, heartbeat.topology.as_ref().map(|given| &given.epoch));
        member.enrolment.client = heartbeat.client.clone();
        self.insert(member);
        has_changed
    }

    /// Computes a target for the group's epoch: an empty one while the group waits.
    fn assign(&mut self) {
        let waits = self.own.delayed_until.is_some() || !self.own.configured.is_ready();
        let mut targets = if waits {
            BTreeMap::new()
        } else {
            let candidates: Vec<_> = self
                .members()
                .map(|it| Candidate {
                    id: &it.enrolment.id,
                    process: &it.process_id,
                    before: &it.state.target,
                })
                .collect();
            assignor::assign(&candidates, &self.own.configured.tasks, self.own.standbys)
        };
        let ids = self.members.keys();
        let in_order = ids.map(|id| targets.remove(id).unwrap_or_default()).collect();
        self.members.set_targets(in_order);
        debug!(group = %self.name, epoch = self.epoch(), members = self.members.len(), "assigned");
    }

    /// Moves a member towards its target, and reports its state.
    fn report(&mut self, heartbeat: &Heartbeat, now: Instant) -> Result<Report, GroupError> {
        let is_joining = heartbeat.epoch == JOINING;
        let owned = if is_joining { Some(&NOTHING) } else { heartbeat.owned.as_ref() };
        let is_news = self.reconcile(&heartbeat.member_id, owned, now);
        let statuses = self.statuses(&heartbeat.member_id);
        let member = self.member(&heartbeat.member_id)?;
        let differs = heartbeat.owned.as_ref().is_some_and(|owned| *owned != member.state.assigned);
        let tell = is_joining || is_news || differs;
        let (epoch, tasks) = (member.state.epoch, tell.then(|| member.state.assigned.clone()));
        if tell && member.endpoint.is_some() && (is_joining || is_news) {
            self.own.endpoint_epoch += 1;
        }
        let knows = heartbeat.endpoint_epoch == self.own.endpoint_epoch;
        Ok(Report {
            epoch,
            tasks,
            statuses,
            endpoint_epoch: self.own.endpoint_epoch,
            endpoints: (!knows).then(|| self.endpoints()),
            missing: self.own.configured.missing.clone(),
        })
    }

    /// Returns whether the member's tasks changed.
    fn reconcile(&mut self, member_id: &str, owned: Option<&Tasks>, now: Instant) -> bool {
        let Some(member) = self.members.get(member_id) else { return false };
        if member.state.is_reconciled(self.target_epoch()) {
            return false;
        }
        let step = {
            let taken = OccupiedTasks::by_others(&self.members, member);
            member.state.next_step(self.target_epoch(), owned, |missing| taken.free_of(missing))
        };
        let Some(step) = step else { return false };
        let Some(mut member) = self.take(member_id) else { return false };
        let is_news = step.assigned != member.state.assigned;
        let was_revoking = member.state.progress == Progress::Revoking;
        debug!(group = %self.name, member = %member_id, ?step, "member advances");
        member.state.advance(step);
        member.enrolment.deadlines.revocation =
            match (member.state.progress, member.enrolment.deadlines.revocation) {
                (Progress::Revoking, Some(deadline)) if was_revoking => Some(deadline),
                (Progress::Revoking, _) => Some(now + member.rebalance_timeout),
                _ => None,
            };
        self.insert(member);
        is_news
    }

    fn statuses(&self, member_id: &str) -> Vec<Status> {
        let mut statuses = Vec::new();
        let group_epoch = self.own.topology.as_ref().map(|topology| topology.epoch);
        let member_epoch = self.members.get(member_id).map(|member| member.topology_epoch);
        if let (Some(group), Some(member)) = (group_epoch, member_epoch)
            && member < group
        {
            let detail = format!(
                "The member's topology epoch {member} is behind the group's topology epoch {group}."
            );
            statuses.push(Status { code: StatusCode::StaleTopology, detail });
        }
        // Without this status a client counts as running, even without a task.
        let delay = match self.members.get(member_id).map(|member| &member.state) {
            _ if self.own.delayed_until.is_some() => {
                Some("Assignment delayed due to the configured initial rebalance delay.")
            }
            Some(state) if state.assigned.is_empty() && !state.target.is_empty() => {
                Some("Assignment delayed until other members have given up their tasks.")
            }
            _ => None,
        };
        statuses.extend(delay.map(|detail| Status {
            code: StatusCode::AssignmentDelayed,
            detail: detail.to_owned(),
        }));
        statuses.extend(self.own.configured.status.clone());
        if let Some(member) = &self.own.shutdown_by {
            let detail = format!(
                "Streams group member {} encountered a fatal error and requested a shutdown for \
                 the entire application.",
                &**member
            );
            statuses.push(Status { code: StatusCode::ShutdownApplication, detail });
        }
        statuses
    }

    /// The query endpoint of each member, and the partitions whose state it has.
    fn endpoints(&self) -> Vec<EndpointPartitions> {
        let partitions = |tasks: &BTreeSet<Task>| {
            let mut topics: BTreeMap<&Text, Vec<i32>> = BTreeMap::new();
            for task in tasks {
                let topology = self.own.topology.as_ref();
                let subtopology = topology.and_then(|it| it.subtopology(&task.subtopology));
                for topic in subtopology.into_iter().flat_map(|it| it.reads()) {
                    topics.entry(topic).or_default().push(task.partition);
                }
            }
            topics.into_iter().map(|(topic, partitions)| (topic.clone(), partitions)).collect()
        };
        let known = self.members.values().filter_map(|member| {
            Some(EndpointPartitions {
                endpoint: member.endpoint.clone()?,
                active: partitions(&member.state.assigned.active),
                standby: partitions(&member.state.assigned.standby),
            })
        });
        known.collect()
    }
}

static NOTHING: Tasks = Tasks { active: BTreeSet::new(), standby: BTreeSet::new() };

/// Tasks of other members that prevent a member from starting its own.
struct OccupiedTasks<'a> {
    /// Active tasks of all other members: a task is active in one place.
    active: HashSet<&'a Task>,
    /// Tasks of the member's process, active or standby: it has one directory for the state of a task.
    in_process: HashSet<&'a Task>,
}

impl<'a> OccupiedTasks<'a> {
    fn by_others(members: &'a BTreeMap<Text, Member>, member: &Member) -> Self {
        let mut taken = Self { active: HashSet::default(), in_process: HashSet::default() };
        for other in members.values().filter(|other| other.enrolment.id != member.enrolment.id) {
            let shares_process = other.process_id == member.process_id;
            for held in [&other.state.assigned, &other.state.revoking] {
                taken.active.extend(&held.active);
                if shares_process {
                    taken.in_process.extend(held.active.iter().chain(&held.standby));
                }
            }
        }
        taken
    }

    fn free_of(&self, tasks: &Tasks) -> Tasks {
        let is_free = |task: &&Task| !self.in_process.contains(*task);
        let is_nobodys = |task: &&Task| !self.active.contains(*task);
        Tasks {
            active: tasks.active.iter().filter(is_free).filter(is_nobodys).cloned().collect(),
            standby: tasks.standby.iter().filter(is_free).cloned().collect(),
        }
    }
}
