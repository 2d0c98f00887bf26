//! Random histories of consumers that lose replies, crash and pause.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Join(usize, BTreeSet<usize>),
    /// A heartbeat of a consumer that has or has not completed its revocations; its reply may be lost.
    Beat {
        member: usize,
        revokes: bool,
        is_lost: bool,
    },
    Leave(usize),
    Pause(usize),
    Crash(usize),
    Topic(usize, u32),
    Delete(usize),
    Pass(u64),
    /// Another node becomes the coordinator, restored from the stored form this many changes ago.
    Move {
        lag: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let topics = prop::collection::btree_set(0usize..3, 0..3);
    prop_oneof![
        4 => (0usize..5, topics).prop_map(|(member, topics)| Step::Join(member, topics)),
        12 => (0usize..5, prop::bool::weighted(0.8), prop::bool::weighted(0.2)).prop_map(
            |(member, revokes, is_lost)| Step::Beat { member, revokes, is_lost }
        ),
        1 => (0usize..5).prop_map(Step::Leave),
        1 => (0usize..5).prop_map(Step::Pause),
        1 => (0usize..5).prop_map(Step::Crash),
        2 => (0usize..3, 1u32..9).prop_map(|(topic, count)| Step::Topic(topic, count)),
        1 => (0usize..3).prop_map(Step::Delete),
        2 => (0u64..40).prop_map(Step::Pass),
        1 => prop_oneof![3 => Just(0), 1 => 1usize..4].prop_map(|lag| Step::Move { lag }),
    ]
}

/// A consumer process: the partitions that it is really consuming, whatever the group assumes.
#[derive(Clone, Debug)]
struct Process {
    consumer: Consumer,
    /// Revoked partitions that it still consumes.
    unrevoked: Assignment,
    /// When it stops by itself, because it has had no reply from the group.
    session_deadline: Instant,
}

impl Process {
    fn consuming(&self) -> impl Iterator<Item = (Uuid, i32)> {
        self.consumer.owned.iter().chain(self.unrevoked.iter())
    }
}

struct History {
    world: World,
    processes: Vec<Option<Process>>,
    joins: usize,
    kept: Vec<Vec<u8>>,
    /// The group was restored from a form older than the newest.
    has_lost: bool,
}

impl History {
    fn new() -> Self {
        let world = World::new(&[("t0", 3), ("t1", 2)]);
        Self { world, processes: vec![None; 5], joins: 0, kept: Vec::new(), has_lost: false }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Join(member, topics) => self.join(member, topics),
            Step::Beat { member, revokes, is_lost } => self.beat(member, revokes, is_lost),
            Step::Leave(member) => self.leave(member, LEAVING),
            Step::Pause(member) => self.leave(member, PAUSING),
            Step::Crash(member) => self.processes[member] = None,
            Step::Topic(topic, count) => drop(self.world.topics.set(&format!("t{topic}"), count)),
            Step::Delete(topic) => self.world.topics.delete(&format!("t{topic}")),
            Step::Pass(seconds) => {
                self.world.pass(Duration::from_secs(seconds));
                let now = self.world.now;
                // A consumer that cannot reach its group stops when its session must be over.
                for process in &mut self.processes {
                    process.take_if(|process| process.session_deadline <= now);
                }
            }
            Step::Move { lag } => {
                let at = self.kept.len().saturating_sub(1 + lag);
                if let Some(kept) = self.kept.get(at).cloned() {
                    self.has_lost |= lag > 0;
                    self.world.moves(&kept);
                }
            }
        }
        let kept = self.world.group.kept();
        if self.kept.last() != Some(&kept) {
            self.kept.push(kept);
        }
        if !self.has_lost {
            self.check();
        }
    }

    fn join(&mut self, member: usize, topics: BTreeSet<usize>) {
        if self.processes[member].is_some() {
            return;
        }
        self.joins += 1;
        let mut consumer = Consumer::new(&format!("m{member}-{}", self.joins), &[]);
        consumer.names = topics.iter().map(|topic| format!("t{topic}")).collect();
        // Two of the five are static.
        consumer.instance_id = (member < 2).then(|| text(&format!("i{member}")));
        if self.world.join(&mut consumer).is_ok() {
            let session_deadline = self.world.now + SESSION;
            let unrevoked = Assignment::default();
            self.processes[member] = Some(Process { consumer, unrevoked, session_deadline });
        }
    }

    fn beat(&mut self, member: usize, revokes: bool, is_lost: bool) {
        let Some(mut process) = self.processes[member].take() else { return };
        if revokes {
            process.unrevoked = Assignment::default();
        }
        let mut message = heartbeat(&process.consumer.id, process.consumer.epoch);
        message.instance_id = process.consumer.instance_id.clone();
        message.owned = Some(process.consuming().collect());
        match self.world.send(message) {
            Ok(_) if is_lost => {}
            Ok(report) => {
                process.session_deadline = self.world.now + SESSION;
                let before: Assignment = process.consuming().collect();
                process.consumer.take(report);
                let owned = &process.consumer.owned;
                process.unrevoked = before.iter().filter(|&(t, p)| !owned.contains(t, p)).collect();
            }
            // Fenced: it abandons everything.
            Err(_) => return,
        }
        self.processes[member] = Some(process);
    }

    fn leave(&mut self, member: usize, epoch: i32) {
        if let Some(process) = self.processes[member].take() {
            let Consumer { id, instance_id, .. } = process.consumer;
            let epoch = if instance_id.is_some() { epoch } else { LEAVING };
            // It may have been fenced meanwhile.
            let _ = self.world.group.leave(&id, instance_id.as_deref(), epoch);
            check(&self.world.group);
        }
    }

    /// The central invariant: no partition has two consumers, as long as both are members. (A fenced member
    /// without knowledge of it is the case for sessions.)
    fn check(&self) {
        let mut consumed = BTreeSet::new();
        for process in self.processes.iter().flatten() {
            if self.world.group.members.contains_key(&process.consumer.id) {
                for partition in process.consuming() {
                    assert!(consumed.insert(partition), "{partition:?} is consumed twice");
                }
            }
        }
    }

    /// All remaining members follow their assignments until nothing changes.
    fn come_to_rest(&mut self) {
        for _ in 0..30 {
            self.apply(Step::Pass(5));
            for member in 0..5 {
                self.apply(Step::Beat { member, revokes: true, is_lost: false });
            }
        }
    }
}

proptest! {
    #[test]
    fn every_partition_has_at_most_one_consumer_and_finally_exactly_one(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut history = History::new();
        for step in steps {
            history.apply(step);
        }
        history.come_to_rest();
        // After a restore from an older form: members with newer epochs have rejoined.
        history.check();
        let group = &history.world.group;
        let expected = if group.is_empty() { "Empty" } else { "Stable" };
        prop_assert_eq!(group.state_name(), expected);
        let wanted: BTreeSet<_> = history
            .processes
            .iter()
            .flatten()
            .flat_map(|process| &process.consumer.names)
            .filter_map(|name| history.world.topics.topic(name))
            .flat_map(|topic| (0..topic.partitions as i32).map(move |p| (topic.id, p)))
            .collect();
        let consumed: BTreeSet<_> =
            history.processes.iter().flatten().flat_map(Process::consuming).collect();
        prop_assert_eq!(consumed, wanted);
    }
}
