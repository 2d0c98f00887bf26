//! A group driven by its members' heartbeats, with topics that can be created.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::subscription::{Catalog, CatalogStamp, Topic};
use uuid::Uuid;

use super::status::StatusCode;
use super::topology::{CopartitionGroup, Subtopology};
use super::*;
use crate::error::ErrorKind;
use crate::members::JOINING;

mod another_node;
mod topologies;

const TIMEOUT: Duration = Duration::from_secs(45);
const REBALANCE: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Topics(RefCell<BTreeMap<String, u32>>);

impl Topics {
    fn make(&self, name: &str, partitions: u32) {
        self.0.borrow_mut().insert(name.to_owned(), partitions);
    }
}

impl Catalog for Topics {
    fn stamp(&self) -> CatalogStamp {
        let topics = self.0.borrow();
        (0, topics.len(), topics.values().map(|count| u64::from(*count)).sum())
    }

    fn topic(&self, name: &str) -> Option<Topic> {
        let partitions = *self.0.borrow().get(name)?;
        Some(Topic { id: Uuid::nil(), name: text(name), partitions })
    }

    fn topics(&self) -> Vec<Topic> {
        unreachable!("source topics have no patterns")
    }
}

fn internal(name: &str, partitions: i32) -> InternalTopic {
    InternalTopic { name: text(name), partitions, replication_factor: 0, configs: Vec::new() }
}

fn subtopology(id: &str, sources: &[&str]) -> Subtopology {
    Subtopology {
        id: text(id),
        source_topics: sources.iter().copied().map(text).collect(),
        source_patterns: Vec::new(),
        changelogs: Vec::new(),
        repartition_sinks: Vec::new(),
        repartition_sources: Vec::new(),
        copartition_groups: Vec::new(),
    }
}

/// Reads `in`, repartitions, and counts with state.
fn counting() -> Topology {
    let mut first = subtopology("0", &["in"]);
    first.repartition_sinks = vec![text("app-repartition")];
    let mut second = subtopology("1", &[]);
    second.repartition_sources = vec![internal("app-repartition", 0)];
    second.changelogs = vec![internal("app-changelog", 0)];
    Topology { epoch: 0, subtopologies: vec![first, second] }
}

/// A member as its client sees it.
struct Client {
    id: Text,
    process: Text,
    epoch: i32,
    tasks: Tasks,
    statuses: Vec<Status>,
}

impl Client {
    fn does(&self) -> (usize, usize) {
        (self.tasks.active.len(), self.tasks.standby.len())
    }

    fn has_status(&self, code: StatusCode) -> bool {
        self.statuses.iter().any(|status| status.code == code)
    }
}

struct World {
    group: StreamsGroup,
    topics: Topics,
    topology: Topology,
    limits: StreamsLimits,
    now: Instant,
    clients: Vec<Client>,
}

impl World {
    fn new(topology: Topology) -> Self {
        Self {
            group: StreamsGroup::new(text("app")),
            topics: Topics::default(),
            topology,
            limits: StreamsLimits {
                members_max: 100,
                session_timeout: TIMEOUT,
                standbys: 0,
                initial_delay: Duration::ZERO,
            },
            now: Instant::now(),
            clients: Vec::new(),
        }
    }

    fn heartbeat(&self, client: usize) -> Heartbeat {
        let Client { id, process, epoch, tasks, .. } = &self.clients[client];
        let is_joining = *epoch == JOINING;
        Heartbeat {
            member_id: id.clone(),
            epoch: *epoch,
            endpoint_epoch: 0,
            rack_id: None,
            rebalance_timeout: is_joining.then_some(REBALANCE),
            topology: is_joining.then(|| self.topology.clone()),
            owned: Some(if is_joining { Tasks::default() } else { tasks.clone() }),
            process_id: is_joining.then(|| process.clone()),
            endpoint: None,
            tags: None,
            shutdown: false,
            client: Default::default(),
        }
    }

    fn joins(&mut self, id: &str, process: &str) -> usize {
        let (id, process) = (text(id), text(process));
        let tasks = Tasks::default();
        self.clients.push(Client { id, process, epoch: JOINING, tasks, statuses: Vec::new() });
        let client = self.clients.len() - 1;
        self.reports(client).expect("is taken");
        client
    }

    /// A client reports, creates the missing topics, and adopts its tasks at once.
    fn reports(&mut self, client: usize) -> Result<Report, GroupError> {
        let report = self.sends_heartbeat(client)?;
        for topic in &report.missing {
            self.topics.make(&topic.name, topic.partitions as u32);
        }
        self.check();
        Ok(report)
    }

    fn sends_heartbeat(&mut self, client: usize) -> Result<Report, GroupError> {
        let heartbeat = self.heartbeat(client);
        let report = self.group.heartbeat(&heartbeat, self.limits, &self.topics, self.now)?;
        let known = &mut self.clients[client];
        known.epoch = report.epoch;
        known.statuses = report.statuses.clone();
        if let Some(tasks) = &report.tasks {
            known.tasks = tasks.clone();
        }
        Ok(report)
    }

    /// All members report until nothing changes any more.
    fn settles(&mut self) {
        for _ in 0..20 {
            for client in 0..self.clients.len() {
                self.reports(client).expect("is taken");
            }
        }
        assert_eq!(self.group.state_name(), "Stable");
    }

    /// Checks that no task is active twice, and that no process has one twice.
    fn check(&self) {
        let mut active = BTreeSet::new();
        let mut in_process = BTreeSet::new();
        for client in &self.clients {
            for task in &client.tasks.active {
                assert!(active.insert(task.clone()), "{task:?} is active twice");
            }
            for task in client.tasks.active.iter().chain(&client.tasks.standby) {
                let here = (client.process.clone(), task.clone());
                assert!(in_process.insert(here), "{task:?} is in a process twice");
            }
        }
    }

    fn leaves(&mut self, client: usize) {
        let client = self.clients.remove(client);
        self.group.leave(&client.id, false).expect("is a member");
    }
}

#[test]
fn tasks_move_to_a_new_member_once_they_are_revoked() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    let first = world.joins("a", "p");
    world.settles();
    let second = world.joins("b", "q");
    assert_eq!(world.clients[second].does(), (0, 0), "the other one has them still");
    assert_eq!(world.group.state_name(), "Reconciling");
    // While a revocation of half the tasks is incomplete, nothing moves.
    let before = world.clients[first].tasks.clone();
    world.sends_heartbeat(first).expect("is taken");
    world.clients[first].tasks = before;
    world.sends_heartbeat(first).expect("is taken");
    world.reports(second).expect("is taken");
    assert_eq!(world.clients[second].does(), (0, 0));
    world.settles();
    assert_eq!((world.clients[first].does(), world.clients[second].does()), ((4, 0), (4, 0)));
    world.leaves(second);
    world.settles();
    assert_eq!(world.clients[first].does(), (8, 0));
}

#[test]
fn standby_copies_in_other_processes_take_over() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    world.limits.standbys = 1;
    let first = world.joins("a", "p");
    world.settles();
    assert_eq!(world.clients[first].does(), (4, 0));
    let second = world.joins("b", "q");
    world.settles();
    let copies =
        world.clients[first].tasks.standby.len() + world.clients[second].tasks.standby.len();
    assert_eq!(copies, 2, "one of each task with state");
    world.leaves(first);
    world.settles();
    assert_eq!(world.clients[0].does(), (4, 0));
    // The number of standby copies is a setting of the group, and may change while it lives.
    world.joins("c", "r");
    world.limits.standbys = 0;
    world.settles();
    assert!(world.clients.iter().all(|client| client.tasks.standby.is_empty()));
}

#[test]
fn silent_member_and_member_that_does_not_revoke_are_removed() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    let first = world.joins("a", "p");
    world.settles();
    let second = world.joins("b", "q");
    let before = world.clients[first].tasks.clone();
    world.sends_heartbeat(first).expect("is taken");
    // It reports all the time, and does not complete the revocation.
    for _ in 0..9 {
        world.now += TIMEOUT - Duration::from_secs(5);
        world.group.expire(world.now);
        world.clients[first].tasks = before.clone();
        if world.sends_heartbeat(first).is_err() {
            break;
        }
        world.sends_heartbeat(second).expect("is taken");
    }
    let fenced = world.sends_heartbeat(first).unwrap_err();
    assert_eq!(fenced.kind, ErrorKind::UnknownMemberId);
    world.clients.remove(first);
    world.settles();
    assert_eq!(world.clients[0].does(), (8, 0));
    world.now += TIMEOUT;
    world.group.expire(world.now);
    assert!(world.group.is_empty());
    assert_eq!(world.group.check_at(), None);
}

#[test]
fn epochs_fence_members_that_are_behind_or_ahead() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    let first = world.joins("a", "p");
    for _ in 0..2 {
        let second = world.joins("b", "q");
        world.settles();
        world.leaves(second);
        world.settles();
    }
    let epoch = world.clients[first].epoch;
    for wrong in [epoch + 1, epoch - 2] {
        world.clients[first].epoch = wrong;
        let fenced = world.sends_heartbeat(first).unwrap_err();
        assert_eq!(fenced.kind, ErrorKind::FencedMemberEpoch, "{wrong} is not {epoch}");
    }
    // It abandons everything and rejoins.
    world.clients[first].epoch = JOINING;
    world.clients[first].tasks = Tasks::default();
    world.settles();
    assert_eq!(world.clients[first].does(), (4, 0));

    let (id, epoch) = (world.clients[first].id.clone(), world.clients[first].epoch);
    let commit = |epoch| world.group.may_commit(&id, epoch, [("in", 0)].into_iter());
    assert_eq!(commit(epoch), Ok(()));
    assert_eq!(commit(epoch + 1).unwrap_err().kind, ErrorKind::StaleMemberEpoch);
    assert_eq!(commit(0).unwrap_err().kind, ErrorKind::StaleMemberEpoch);
}

#[test]
fn commit_in_flight_is_valid_for_kept_tasks() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    let first = world.joins("a", "p");
    world.settles();
    let (id, before) = (world.clients[first].id.clone(), world.clients[first].epoch);
    world.joins("b", "q");
    world.settles();
    assert!(world.clients[first].epoch > before);
    let kept = world.clients[first].tasks.active.iter().find(|it| it.subtopology.as_ref() == "0");
    let kept = kept.expect("some of each").partition;
    let lost =
        (0..4).find(|at| !world.clients[first].tasks.active.contains(&Task::new(&text("0"), *at)));
    let commit = |partition| world.group.may_commit(&id, before, [("in", partition)].into_iter());
    assert_eq!(commit(kept), Ok(()));
    let stale = commit(lost.expect("some went")).unwrap_err();
    assert_eq!(stale.kind, ErrorKind::StaleMemberEpoch);
}

#[test]
fn new_group_waits_for_members_before_it_assigns_tasks() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    world.limits.initial_delay = Duration::from_secs(3);
    let first = world.joins("a", "p");
    assert!(world.clients[first].has_status(StatusCode::AssignmentDelayed));
    assert!(world.clients[first].epoch > 0);
    world.now += Duration::from_secs(1);
    let second = world.joins("b", "q");
    assert_eq!((world.clients[first].does(), world.clients[second].does()), ((0, 0), (0, 0)));
    world.now += Duration::from_secs(2);
    world.settles();
    assert_eq!((world.clients[first].does(), world.clients[second].does()), ((4, 0), (4, 0)));
}

#[test]
fn delayed_assignment_is_reported_until_the_member_has_a_task() {
    let mut world = World::new(counting());
    world.topics.make("in", 1);
    let first = world.joins("a", "p");
    assert!(!world.clients[first].has_status(StatusCode::AssignmentDelayed));
    world.settles();
    let second = world.joins("b", "q");
    assert!(world.clients[second].has_status(StatusCode::AssignmentDelayed));
    // The other member completes a revocation and reports it.
    world.reports(first).expect("is taken");
    world.reports(second).expect("is taken");
    assert!(world.clients[second].has_status(StatusCode::AssignmentDelayed));
    world.reports(first).expect("is taken");
    world.reports(second).expect("is taken");
    assert!(!world.clients[second].has_status(StatusCode::AssignmentDelayed));
    assert_eq!((world.clients[first].does(), world.clients[second].does()), ((1, 0), (1, 0)));
    // There is no task for a third member: it runs without.
    let third = world.joins("c", "r");
    world.settles();
    assert!(!world.clients[third].has_status(StatusCode::AssignmentDelayed));
    assert_eq!(world.clients[third].does(), (0, 0));
}

#[test]
fn changed_topology_is_rejected_with_members_and_stale_ones_are_reported() {
    let mut world = World::new(Topology { epoch: 1, ..counting() });
    world.topics.make("in", 2);
    let first = world.joins("a", "p");
    world.settles();
    let current = world.topology.clone();
    world.topology.epoch = 0;
    let stale = world.joins("old", "q");
    assert!(world.clients[stale].has_status(StatusCode::StaleTopology));
    world.leaves(stale);
    world.topology = current;
    world.topology.subtopologies.pop();
    world.clients[first].epoch = JOINING;
    assert_eq!(world.sends_heartbeat(first).unwrap_err().kind, ErrorKind::InvalidRequest);
    // A stopped and changed application restarts.
    world.leaves(first);
    assert_eq!(world.group.state_name(), "Empty");
    world.topology.subtopologies[0].repartition_sinks.clear();
    let first = world.joins("b", "p");
    world.settles();
    assert_eq!(world.clients[first].does(), (2, 0));
}

#[test]
fn one_member_can_shut_down_all_of_them() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    let first = world.joins("a", "p");
    let second = world.joins("b", "q");
    world.settles();
    let mut heartbeat = world.heartbeat(first);
    heartbeat.shutdown = true;
    let report =
        world.group.heartbeat(&heartbeat, world.limits, &world.topics, world.now).expect("taken");
    assert_eq!(report.statuses[0].code, StatusCode::ShutdownApplication);
    world.sends_heartbeat(second).expect("is taken");
    assert!(world.clients[second].has_status(StatusCode::ShutdownApplication));
    world.leaves(second);
    world.leaves(first);
    let again = world.joins("c", "p");
    assert!(!world.clients[again].has_status(StatusCode::ShutdownApplication));
}

#[test]
fn members_receive_the_query_endpoints_of_the_others() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    let first = world.joins("a", "p");
    world.settles();
    let mut heartbeat = world.heartbeat(first);
    heartbeat.endpoint = Some(Endpoint { host: text("here"), port: 7000 });
    let limits = world.limits;
    let report =
        world.group.heartbeat(&heartbeat, limits, &world.topics, world.now).expect("taken");
    let endpoints = report.endpoints.expect("are news");
    assert_eq!(endpoints[0].endpoint.port, 7000);
    let expected = [("app-repartition", vec![0, 1]), ("in", vec![0, 1])];
    let expected: Vec<_> =
        expected.into_iter().map(|(topic, partitions)| (text(topic), partitions)).collect();
    assert_eq!(endpoints[0].active, expected);
    heartbeat.endpoint_epoch = report.endpoint_epoch;
    let report =
        world.group.heartbeat(&heartbeat, limits, &world.topics, world.now).expect("taken");
    assert_eq!(report.endpoints, None, "it knows them");
}

/// The state of a group that others see.
fn described(group: &StreamsGroup) -> String {
    let members: Vec<_> = group.members().collect();
    format!("{:?} {} {:?}", (group.epoch(), group.target_epoch()), group.state_name(), members)
}

#[test]
fn rejected_heartbeat_changes_nothing() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    world.limits.members_max = 1;
    world.joins("a", "p");
    world.settles();
    let before = described(&world.group);
    world.clients.push(Client {
        id: text("b"),
        process: text("q"),
        epoch: JOINING,
        tasks: Tasks::default(),
        statuses: Vec::new(),
    });
    assert_eq!(world.sends_heartbeat(1).unwrap_err().kind, ErrorKind::GroupMaxSizeReached);
    assert_eq!(described(&world.group), before);
    world.clients.pop();
    world.clients[0].tasks.active.insert(Task::new(&text("0"), 2));
    assert_eq!(world.sends_heartbeat(0).unwrap_err().kind, ErrorKind::InvalidRequest);
}
