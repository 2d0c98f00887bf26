//! Faults of nodes and links of a simulated cluster.

use std::time::Duration;

use base::PartitionId;
use tokio::time::sleep;
use turmoil::Sim;

use super::clients::producers::{PARTITIONS, TOPIC, leader};
use super::place::{IntendedState, PlaceRequest, name};
use super::{Shared, damage};
use crate::random::Random;

/// Random faults: mostly one node is down at a time, and links are cut and mended.
#[derive(Debug)]
pub(super) struct Chaos {
    random: Random,
    pace: FaultInterval,
    next: Duration,
    /// Nodes that are down, with the time of their return.
    down: Vec<Option<Duration>>,
    /// The node that is cut off, and the end of the cut.
    cut: Option<(NetworkCut, Duration)>,
    /// The scheduled simultaneous faults, with their time.
    strand: Option<(Strand, Duration)>,
}

/// The longest pause between two faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FaultInterval(u64);

impl FaultInterval {
    pub(super) const USUAL: Self = Self(4_000);
    /// With pauses in which all nodes receive each other's epochs.
    pub(super) const CALM: Self = Self(15_000);
    /// No random faults.
    pub(super) const NEVER: Self = Self(u64::MAX);
}

/// Two simultaneous faults, shortly after a first cut: afterwards one node has entries that the others lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Strand {
    leader: usize,
    /// The only follower that received the leader's entries since the first cut.
    follower: usize,
    how: CutScenario,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CutScenario {
    /// The leader ends, perhaps before it has synced its last entries, and returns. The follower, which may have
    /// synced them, is cut off: the others elect a leader without them.
    LeaderEnds,
    /// The follower ends, and returns. The leader is cut off: entries acknowledged by both must not be lost.
    FollowerEnds,
    /// The leader received nothing since the first cut, and then is cut off: the others may commit their copies of
    /// its last entries without it.
    LeaderIsDeaf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NetworkCut {
    /// From all others, in both directions.
    Off(usize),
    /// One link only, in both directions: the third node sees both.
    Link(usize, usize),
    /// It sends, and receives nothing.
    Deaf(usize),
    /// The first from all but the second, in both directions.
    Pair(usize, usize),
}

impl Chaos {
    pub(super) fn new(places: usize, pace: FaultInterval, mut random: Random) -> Self {
        let next = match pace {
            FaultInterval::NEVER => Duration::MAX,
            _ => Duration::from_millis(random.between(500, 3_000)),
        };
        Self { random, pace, next, down: vec![None; places], cut: None, strand: None }
    }

    pub(super) fn step(&mut self, sim: &mut Sim<'_>, shared: &Shared) {
        let now = sim.elapsed();
        let healed = shared.lock().is_healed;
        for place in 0..self.down.len() {
            self.execute_request(place, sim, shared);
            self.after_it_ended(place, sim, shared, now);
            self.lose_power(place, sim, shared, now);
            if self.down[place].is_some_and(|until| healed || until <= now) {
                self.down[place] = None;
                shared.lock().trace.note(format_args!("{} is started", name(place)));
                sim.bounce(name(place));
            }
        }
        if self.cut.is_some_and(|(_, until)| healed || until <= now) {
            self.mend(sim, shared);
        }
        if let Some((strand, _)) = self.strand.take_if(|(_, at)| healed || *at <= now)
            && !healed
        {
            self.strand(strand, sim, shared, now);
        }
        if self.cut.is_some() || self.down.iter().any(Option::is_some) {
            shared.lock().image.disturbed(now);
        }
        if healed || now < self.next || self.strand.is_some() {
            return;
        }
        self.next = now + Duration::from_millis(self.random.between(50, self.pace.0));
        match self.random.below(7) {
            0..=2 => self.crash(sim, shared, now),
            3 | 4 => self.cut(sim, shared, now),
            _ => self.begin_strand(sim, shared, now),
        }
    }

    /// Carries out the operator's request for a machine.
    fn execute_request(&mut self, place: usize, sim: &mut Sim<'_>, shared: &Shared) {
        let mut state = shared.lock();
        let Some(asked) = state.nodes[place].asked.take() else { return };
        self.down[place] = None;
        match asked {
            PlaceRequest::CutOff(lasts) => {
                drop(state);
                let until = sim.elapsed() + lasts;
                self.begin_cut(NetworkCut::Off(place), until, sim, shared);
            }
            PlaceRequest::SetBack => {
                state.set_back(place);
                drop(state);
                sim.crash(name(place));
                let pause = Duration::from_millis(self.random.between(20, 2_000));
                self.down[place] = Some(sim.elapsed() + pause);
            }
            PlaceRequest::Start => {
                let here = &mut state.nodes[place];
                here.emptied();
                here.standing = IntendedState::Member;
                here.joins = true;
                state.trace.note(format_args!("{} is started with an empty disk", name(place)));
                drop(state);
                sim.bounce(name(place));
            }
            PlaceRequest::Lose => {
                let here = &mut state.nodes[place];
                here.emptied();
                here.standing = IntendedState::Lost;
                state.trace.note(format_args!("{} is lost with its disk", name(place)));
                drop(state);
                sim.crash(name(place));
            }
        }
    }

    /// Restarts a node that ended by itself, as a supervisor does.
    fn after_it_ended(&mut self, place: usize, sim: &mut Sim<'_>, shared: &Shared, now: Duration) {
        {
            let mut state = shared.lock();
            let here = &mut state.nodes[place];
            if !std::mem::take(&mut here.trouble.has_ended) {
                return;
            }
            here.disk = here.disk.killed();
        }
        sim.crash(name(place));
        self.down[place] = Some(now + Duration::from_millis(self.random.between(20, 2_000)));
    }

    fn lose_power(&mut self, place: usize, sim: &mut Sim<'_>, shared: &Shared, now: Duration) {
        let goes = {
            let mut state = shared.lock();
            let here = &mut state.nodes[place];
            std::mem::take(&mut here.trouble.lose_power) && here.may_run() && !state.is_healed
        };
        if goes && self.down[place].is_none() {
            let until = now + Duration::from_millis(self.random.between(20, 4_000));
            self.end(place, true, until, sim, shared);
        }
    }

    /// Ends a node's process, or its power: in the worst case that of all nodes.
    fn crash(&mut self, sim: &mut Sim<'_>, shared: &Shared, now: Duration) {
        let places = self.down.len();
        let place = self.random.below(places as u64) as usize;
        let all = self.random.once_in(12);
        let power = self.random.once_in(2);
        for victim in 0..places {
            let others_are_up = self.down.iter().all(Option::is_none);
            let chosen = all || (victim == place && (others_are_up || self.random.once_in(6)));
            let runs = shared.lock().nodes[victim].may_run();
            if !chosen || !runs || self.down[victim].is_some() {
                continue;
            }
            let until = now + Duration::from_millis(self.random.between(20, 4_000));
            self.end(victim, power, until, sim, shared);
        }
    }

    fn end(
        &mut self,
        victim: usize,
        power: bool,
        until: Duration,
        sim: &mut Sim<'_>,
        shared: &Shared,
    ) {
        self.down[victim] = Some(until);
        sim.crash(name(victim));
        let mut state = shared.lock();
        let (verb, number) =
            (if power { "loses power" } else { "is killed" }, self.random.number());
        state.trace.note(format_args!("{} {verb}", name(victim)));
        state.crashes += 1;
        let place = &mut state.nodes[victim];
        place.ended();
        place.disk = match power {
            true => place.disk.power_loss(number),
            false => place.disk.killed(),
        };
    }

    /// Makes the first cut.
    fn begin_strand(&mut self, sim: &mut Sim<'_>, shared: &Shared, now: Duration) {
        let members = shared.members();
        let all_are_up = members.iter().all(|place| shared.broker(*place).is_some());
        if self.cut.is_some() || !all_are_up {
            return;
        }
        let Some(leader) = leading(shared, &mut self.random) else { return };
        let followers: Vec<usize> = members.into_iter().filter(|it| *it != leader).collect();
        if followers.is_empty() {
            return;
        }
        let follower = self.random.of(&followers);
        let how = self.random.of(&[
            CutScenario::LeaderEnds,
            CutScenario::FollowerEnds,
            CutScenario::LeaderIsDeaf,
        ]);
        let cut = match how {
            CutScenario::LeaderIsDeaf => NetworkCut::Deaf(leader),
            CutScenario::LeaderEnds | CutScenario::FollowerEnds => {
                NetworkCut::Pair(leader, follower)
            }
        };
        let at = now + Duration::from_millis(self.random.of(&[2, 5, 10, 20, 50, 200]));
        self.begin_cut(cut, at, sim, shared);
        self.strand = Some((Strand { leader, follower, how }, at));
    }

    fn strand(&mut self, of: Strand, sim: &mut Sim<'_>, shared: &Shared, now: Duration) {
        let Strand { leader, follower, how } = of;
        let (ends, is_cut_off) = match how {
            CutScenario::LeaderEnds => (Some(leader), follower),
            CutScenario::FollowerEnds => (Some(follower), leader),
            CutScenario::LeaderIsDeaf => (None, leader),
        };
        let is_up = |place: usize| self.down[place].is_none() && shared.broker(place).is_some();
        if self.cut.is_some() || !is_up(leader) || !is_up(follower) {
            return;
        }
        if let Some(ends) = ends {
            let back = now + Duration::from_millis(self.random.between(20, 500));
            let power = !self.random.once_in(4);
            self.end(ends, power, back, sim, shared);
            if how == CutScenario::FollowerEnds && self.random.once_in(2) {
                damage::strike_last(&mut shared.lock(), ends, &mut self.random);
            }
        }
        let until = now + Duration::from_millis(self.random.between(1_000, 6_000));
        self.begin_cut(NetworkCut::Off(is_cut_off), until, sim, shared);
    }

    fn cut(&mut self, sim: &mut Sim<'_>, shared: &Shared, now: Duration) {
        if self.cut.is_some() {
            return;
        }
        let places = self.down.len();
        let one = self.random.below(places as u64) as usize;
        let other = (one + 1) % places;
        let cut = match self.random.below(4) {
            0 | 1 => NetworkCut::Off(one),
            2 => NetworkCut::Link(one, other),
            _ => NetworkCut::Deaf(one),
        };
        let until = now + Duration::from_millis(self.random.between(100, 5_000));
        self.begin_cut(cut, until, sim, shared);
    }

    fn begin_cut(&mut self, cut: NetworkCut, until: Duration, sim: &mut Sim<'_>, shared: &Shared) {
        shared.lock().trace.note(format_args!("links are cut: {cut:?}"));
        match cut {
            NetworkCut::Off(node) => {
                self.others(node).for_each(|it| sim.partition(name(node), name(it)));
            }
            NetworkCut::Pair(node, with) => {
                let others = self.others(node).filter(|it| *it != with);
                others.for_each(|it| sim.partition(name(node), name(it)));
            }
            NetworkCut::Link(node, it) => sim.partition(name(node), name(it)),
            NetworkCut::Deaf(node) => {
                self.others(node).for_each(|it| sim.partition_oneway(name(it), name(node)));
            }
        }
        self.cut = Some((cut, until));
    }

    fn mend(&mut self, sim: &mut Sim<'_>, shared: &Shared) {
        let Some((cut, _)) = self.cut.take() else { return };
        shared.lock().trace.note(format_args!("links are mended: {cut:?}"));
        match cut {
            NetworkCut::Off(node) => {
                self.others(node).for_each(|it| sim.repair(name(node), name(it)));
            }
            NetworkCut::Pair(node, with) => {
                let others = self.others(node).filter(|it| *it != with);
                others.for_each(|it| sim.repair(name(node), name(it)));
            }
            NetworkCut::Link(node, it) => sim.repair(name(node), name(it)),
            NetworkCut::Deaf(node) => {
                self.others(node).for_each(|it| sim.repair_oneway(name(it), name(node)));
            }
        }
    }

    fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.down.len()).filter(move |it| *it != node)
    }
}

/// The place of some shard's leader, as far as a node knows.
pub(super) fn leading(shared: &Shared, random: &mut Random) -> Option<usize> {
    let topic = shared.any_broker(random)?.catalog().topic_id(TOPIC)?;
    let partition = PartitionId::new(topic, random.below(PARTITIONS.into()) as u32);
    let node = leader(shared, random, partition)?.node();
    let state = shared.lock();
    state.nodes.iter().position(|place| place.number == Some(node))
}

/// Makes nodes transfer their leaderships now and then, as at an orderly stop.
pub(super) async fn hand_over(shared: Shared, mut random: Random) {
    loop {
        sleep(Duration::from_millis(random.between(200, 6_000))).await;
        if shared.lock().is_healed {
            return;
        }
        if let Some(broker) = shared.any_broker(&mut random) {
            shared.lock().trace.note(format_args!("node {} hands over", broker.node()));
            broker.hand_over().await;
        }
    }
}
