//! The sticky assignor of tasks, as in Kafka 4.3.
//!
//! Tasks stay with their members as long as that keeps the load even. A task of a departed member goes to a member
//! with a copy of its state, and only then to the least loaded one. A process, which may have several members,
//! never has a task twice: a copy in the same process is of no use.

use std::collections::{BTreeMap, BTreeSet};

use crate::Text;
use base::HashMap;

use super::tasks::{Task, Tasks};
use super::topology::SubtopologyShape;

/// A member as the assignor sees it.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) id: &'a Text,
    pub(super) process: &'a Text,
    /// Its previous tasks.
    pub(super) before: &'a Tasks,
}

/// Assigns each task to one member, and `standbys` copies of each task with state to others.
pub(super) fn assign(
    candidates: &[Candidate<'_>],
    subtopologies: &BTreeMap<Text, SubtopologyShape>,
    standbys: usize,
) -> BTreeMap<Text, Tasks> {
    let mut plan = Plan::new(candidates);
    if candidates.is_empty() {
        return BTreeMap::new();
    }
    let all = tasks_of(subtopologies, |_| true);
    let stateful = tasks_of(subtopologies, |shape| shape.is_stateful);
    let mut fair = Quota::new(all.len(), candidates.len());
    let mut fair_with_copies = Quota::new(all.len() + stateful.len() * standbys, candidates.len());
    plan.place_active(all, &mut fair, &mut fair_with_copies);
    if standbys > 0 {
        plan.place_standbys(stateful, standbys, &mut fair_with_copies);
    }
    let ids = candidates.iter().map(|candidate| candidate.id.clone());
    ids.zip(plan.members.into_iter().map(|member| member.tasks)).collect()
}

/// Sorted by partition first, so that the tasks of one partition are adjacent.
fn tasks_of(
    subtopologies: &BTreeMap<Text, SubtopologyShape>,
    is_wanted: impl Fn(&SubtopologyShape) -> bool,
) -> Vec<Task> {
    let wanted = subtopologies.iter().filter(|(_, shape)| is_wanted(shape));
    let mut tasks: Vec<Task> = wanted
        .flat_map(|(id, shape)| (0..shape.tasks).map(|partition| Task::new(id, partition as i32)))
        .collect();
    tasks.sort_by(|a, b| (a.partition, &a.subtopology).cmp(&(b.partition, &b.subtopology)));
    tasks
}

/// Number of tasks that a member may have for an even load. Full members take their part out, and the rest share
/// the remainder.
struct Quota {
    tasks: usize,
    members: usize,
    each: usize,
}

impl Quota {
    fn new(tasks: usize, members: usize) -> Self {
        Self { tasks, members, each: tasks.div_ceil(members.max(1)) }
    }

    fn placed(&mut self, has_now: usize) {
        if has_now == self.each && self.members > 0 {
            self.members -= 1;
            self.tasks = self.tasks.saturating_sub(has_now);
            self.each = self.tasks.div_ceil(self.members.max(1));
        }
    }
}

struct Member {
    process: usize,
    tasks: Tasks,
}

#[derive(Default)]
struct Process {
    members: Vec<usize>,
    tasks: BTreeSet<Task>,
}

struct Plan {
    members: Vec<Member>,
    processes: Vec<Process>,
    active_before: HashMap<Task, usize>,
    standby_before: HashMap<Task, Vec<usize>>,
    /// Processes by load, and by number for a total order.
    by_load: BTreeSet<(Load, usize)>,
}

/// Tasks per member of a process, as an exactly comparable fraction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Load {
    tasks: u64,
    members: u64,
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.tasks * other.members).cmp(&(other.tasks * self.members))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Plan {
    fn new(candidates: &[Candidate<'_>]) -> Self {
        let mut numbers: HashMap<&Text, usize> = HashMap::default();
        let mut plan = Self {
            members: Vec::with_capacity(candidates.len()),
            processes: Vec::new(),
            active_before: HashMap::default(),
            standby_before: HashMap::default(),
            by_load: BTreeSet::new(),
        };
        for (member, candidate) in candidates.iter().enumerate() {
            let process = *numbers.entry(candidate.process).or_insert_with(|| {
                plan.processes.push(Process::default());
                plan.processes.len() - 1
            });
            plan.processes[process].members.push(member);
            plan.members.push(Member { process, tasks: Tasks::default() });
            for task in &candidate.before.active {
                plan.active_before.insert(task.clone(), member);
            }
            for task in &candidate.before.standby {
                plan.standby_before.entry(task.clone()).or_default().push(member);
            }
        }
        plan.by_load = (0..plan.processes.len()).map(|it| (plan.load(it), it)).collect();
        plan
    }

    fn load(&self, process: usize) -> Load {
        let Process { members, tasks } = &self.processes[process];
        Load { tasks: tasks.len() as u64, members: members.len() as u64 }
    }

    fn count(&self, member: usize) -> usize {
        self.members[member].tasks.len()
    }

    fn has(&self, process: usize, task: &Task) -> bool {
        self.processes[process].tasks.contains(task)
    }

    /// Places a task. Returns the number of tasks that the member then has.
    fn place(&mut self, member: usize, task: Task, is_active: bool) -> usize {
        let process = self.members[member].process;
        self.by_load.remove(&(self.load(process), process));
        self.processes[process].tasks.insert(task.clone());
        let tasks = &mut self.members[member].tasks;
        if is_active {
            tasks.active.insert(task)
        } else {
            tasks.standby.insert(task)
        };
        self.by_load.insert((self.load(process), process));
        self.count(member)
    }

    fn least_loaded_member(&self, process: usize) -> Option<usize> {
        let members = self.processes[process].members.iter().copied();
        members.min_by_key(|member| (self.count(*member), *member))
    }

    fn place_active(&mut self, tasks: Vec<Task>, fair: &mut Quota, with_copies: &mut Quota) {
        // First to its previous member, while that is fair; then to a member with its state.
        let mut homeless = Vec::new();
        for task in tasks {
            match self.active_before.get(&task).copied() {
                Some(member) if self.count(member) < fair.each => {
                    let count = self.place(member, task, true);
                    fair.placed(count);
                    with_copies.placed(count);
                }
                _ => homeless.push(task),
            }
        }
        let mut rest = Vec::new();
        for task in homeless {
            match self.former_standby(&task) {
                Some(member) if self.count(member) < fair.each => {
                    let count = self.place(member, task, true);
                    fair.placed(count);
                    with_copies.placed(count);
                }
                _ => rest.push(task),
            }
        }
        // Then to the least loaded member, one subtopology after the other.
        rest.sort();
        for task in rest {
            let least = self.by_load.first().and_then(|(_, it)| self.least_loaded_member(*it));
            let Some(member) = least else { return };
            let count = self.place(member, task, true);
            fair.placed(count);
            with_copies.placed(count);
        }
    }

    /// The least loaded former standby of the task whose process does not have the task.
    fn former_standby(&self, task: &Task) -> Option<usize> {
        let members = self.standby_before.get(task)?.iter().copied();
        members
            .filter(|member| !self.has(self.members[*member].process, task))
            .min_by_key(|member| (self.load(self.members[*member].process), self.count(*member)))
    }

    fn place_standbys(&mut self, mut tasks: Vec<Task>, copies: usize, fair: &mut Quota) {
        tasks.reverse();
        let mut rest = Vec::new();
        for task in tasks {
            for placed in 0..copies {
                let was_active = self.active_before.get(&task).copied();
                let was_active =
                    was_active.filter(|it| !self.has(self.members[*it].process, &task));
                let fits = |member: &usize| self.count(*member) < fair.each;
                let former = was_active.filter(fits);
                let former = former.or_else(|| self.former_standby(&task).filter(fits));
                let Some(member) = former else {
                    rest.push((task, copies - placed));
                    break;
                };
                let count = self.place(member, task.clone(), false);
                fair.placed(count);
            }
        }
        rest.sort_by(|(a, _), (b, _)| b.cmp(a));
        for (task, copies) in rest {
            for _ in 0..copies {
                let free = self.by_load.iter().find(|(_, process)| !self.has(*process, &task));
                // More copies than processes: as many as there are.
                let Some(process) = free.map(|(_, process)| *process) else { break };
                let Some(member) = self.least_loaded_member(process) else { break };
                let count = self.place(member, task.clone(), false);
                fair.placed(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    /// Members by name and process.
    struct World {
        members: Vec<(Text, Text, Tasks)>,
        subtopologies: BTreeMap<Text, SubtopologyShape>,
        standbys: usize,
    }

    impl World {
        fn new(subtopologies: &[(&str, u32, bool)]) -> Self {
            let shapes = subtopologies.iter().map(|(id, tasks, is_stateful)| {
                (text(id), SubtopologyShape { tasks: *tasks, is_stateful: *is_stateful })
            });
            Self { members: Vec::new(), subtopologies: shapes.collect(), standbys: 0 }
        }

        fn joins(&mut self, member: &str, process: &str) {
            self.members.push((text(member), text(process), Tasks::default()));
        }

        fn leaves(&mut self, member: &str) {
            self.members.retain(|(id, _, _)| **id != *member);
        }

        /// Assigns, and checks the invariants of every assignment. Returns the number of active tasks that moved
        /// to another member.
        fn assign(&mut self) -> usize {
            let candidates: Vec<_> = self
                .members
                .iter()
                .map(|(id, process, before)| Candidate { id, process, before })
                .collect();
            let assigned = assign(&candidates, &self.subtopologies, self.standbys);
            let mut owners = BTreeMap::new();
            let mut in_process = BTreeSet::new();
            for (id, process, _) in &self.members {
                for task in &assigned[id].active {
                    assert!(owners.insert(task.clone(), id.clone()).is_none(), "{task:?} twice");
                }
                for task in assigned[id].active.iter().chain(&assigned[id].standby) {
                    assert!(in_process.insert((process.clone(), task.clone())), "{task:?} twice");
                }
            }
            let total: u32 = self.subtopologies.values().map(|shape| shape.tasks).sum();
            assert_eq!(owners.len(), total as usize, "every task is done");
            let mut moved = 0;
            for (id, _, before) in &mut self.members {
                moved += before.active.difference(&assigned[id].active).count();
                *before = assigned[id].clone();
            }
            moved
        }

        fn counts(&self) -> Vec<(usize, usize)> {
            let counts = self.members.iter();
            counts.map(|(_, _, tasks)| (tasks.active.len(), tasks.standby.len())).collect()
        }
    }

    #[test]
    fn tasks_are_balanced_with_minimal_moves() {
        let mut world = World::new(&[("0", 6, false), ("1", 6, true)]);
        world.joins("a", "p");
        world.assign();
        assert_eq!(world.counts(), [(12, 0)]);
        world.joins("b", "q");
        assert_eq!(world.assign(), 6, "half of them");
        assert_eq!(world.counts(), [(6, 0), (6, 0)]);
        world.joins("c", "r");
        assert_eq!(world.assign(), 4);
        assert_eq!(world.counts(), [(4, 0), (4, 0), (4, 0)]);
        assert_eq!(world.assign(), 0, "nothing has changed");
        world.leaves("b");
        assert_eq!(world.assign(), 0, "only those of the member that left");
        assert_eq!(world.counts(), [(6, 0), (6, 0)]);
    }

    #[test]
    fn standby_copies_are_of_stateful_tasks_in_other_processes() {
        let mut world = World::new(&[("0", 4, false), ("1", 4, true)]);
        world.standbys = 1;
        world.joins("a", "p");
        world.assign();
        assert_eq!(world.counts(), [(8, 0)], "no copy beside the original");
        world.joins("b", "p");
        world.assign();
        assert_eq!(world.counts(), [(4, 0), (4, 0)], "nor in another thread of the process");
        world.joins("c", "q");
        world.assign();
        let standbys: usize = world.counts().iter().map(|(_, standbys)| standbys).sum();
        assert_eq!(standbys, 4, "{:?}", world.counts());
    }

    #[test]
    fn standby_takes_over_the_task_of_a_departed_member() {
        let mut world = World::new(&[("1", 4, true)]);
        world.standbys = 1;
        for member in ["a", "b", "c"] {
            world.joins(member, member);
        }
        world.assign();
        let lost = world.members[0].2.active.clone();
        let copies: BTreeMap<Task, Text> = world.members[1..]
            .iter()
            .flat_map(|(id, _, tasks)| tasks.standby.iter().map(|it| (it.clone(), id.clone())))
            .collect();
        world.leaves("a");
        assert_eq!(world.assign(), 0);
        let followed = lost
            .iter()
            .filter(|task| {
                let (_, _, tasks) =
                    world.members.iter().find(|(id, _, _)| *id == copies[*task]).unwrap();
                tasks.active.contains(*task)
            })
            .count();
        assert!(followed * 2 >= lost.len(), "as far as the load stays even: {followed}");
    }
}
