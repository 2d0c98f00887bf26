//! Channels between shards: random histories of shards that send messages to one another. Some
//! messages are repeated, too early, or for deleted topics. A model keeps every message with the
//! partitions that must have it. Shards are restored from snapshots and replayed from any point.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use machine::catalog::feed::{AdoptedGroup, AdoptedTopic};
use machine::{
    Adoption, Append, AppendOutcome, BatchKind, Command, Entry, EntryEffects, GroupSettle,
    MessageCommand, Origin, Outcome, Preparation, Role, SentBatch, State, Unit, decode_head,
    encode_head,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const SHARDS: u32 = 3;
const TOPICS: u32 = 3;
const EPOCH: i32 = 3;

#[derive(Clone, Debug)]
struct Batch {
    span: u32,
    /// Topics; each shard has one partition of each.
    targets: Vec<u32>,
}

impl Batch {
    /// Gives it a target.
    fn fill(&mut self) {
        self.targets.push(0);
    }

    /// Weight in an outbox: its bytes, and eight for each target.
    fn weight(&self) -> u64 {
        u64::from(self.span) * 10 + self.targets.len() as u64 * 8
    }
}

#[derive(Clone, Debug)]
enum SendFault {
    Nothing,
    /// A batch goes to the channel without a command that names its targets.
    WithoutCommand,
    /// The command has fewer batches than the unit.
    WithoutBatch,
    Stale,
    /// Together with a command that is not allowed in a unit.
    BesideOther,
    /// A batch is for no partition, and the message has no command.
    ForNothing,
}

#[derive(Clone, Debug)]
enum Step {
    Append {
        shard: u32,
        topic: u32,
        span: u32,
    },
    Send {
        from: u32,
        to: u32,
        batches: Vec<Batch>,
        /// With a command that settles all records of the first topic that the other shard has now.
        settles: bool,
        local: Option<u32>,
        wrong: SendFault,
    },
    /// A message of the channel: the next one, an earlier one, or a later one. The leader of the
    /// shard may not know that a topic was deleted, or know that it will be.
    Deliver {
        from: u32,
        to: u32,
        which: i8,
        stale: bool,
    },
    Acknowledge {
        from: u32,
        to: u32,
        which: i8,
    },
    Delete {
        shard: u32,
        topic: u32,
    },
    Restart {
        shard: u32,
    },
}

struct LoggedEntry {
    head: bytes::Bytes,
    appends: Vec<Append>,
    applied: EntryEffects,
}

#[derive(Clone)]
struct Message {
    number: u64,
    batches: Vec<Batch>,
    /// Settles the other shard's records of the first topic up to here.
    settles_to: Option<u64>,
}

impl Message {
    fn commands(&self, to: u32) -> Vec<MessageCommand> {
        let settles_to = self.settles_to.map(|to| (0, to as u32));
        let settle = |settled| GroupSettle {
            group: LeaseGroupId(0),
            partition: to - 1,
            settled: vec![settled],
            attempts: vec![],
        };
        let command = |settled| MessageCommand::Settle { settles: vec![settle(settled)] };
        settles_to.map(command).into_iter().collect()
    }

    fn weight(&self, to: u32) -> u64 {
        let commands = self.commands(to);
        let commands = commands.iter().map(|command| command.weight() as u64);
        self.batches.iter().map(Batch::weight).sum::<u64>() + commands.sum::<u64>()
    }
}

/// Messages from one shard to another.
#[derive(Default)]
struct Channel {
    messages: Vec<Message>,
    end: u64,
    taken: usize,
    acknowledged: usize,
}

impl Channel {
    fn number(&self, at: usize) -> u64 {
        self.messages.get(at).map_or(self.end, |message| message.number)
    }
}

struct Shard {
    state: State,
    log: Vec<LoggedEntry>,
    /// End of each partition; `None` if its topic was deleted.
    ends: BTreeMap<u32, Option<u64>>,
    settled: u64,
    adopted: u64,
}

struct Model {
    shards: Vec<Shard>,
    channels: BTreeMap<(u32, u32), Channel>,
    /// Messages accepted, skipped and refused, rows whose topic was deleted, and commands of accepted
    /// messages.
    counts: [usize; 5],
}

fn partition(shard: u32, topic: u32) -> PartitionId {
    // The partition of the topic that is in this shard.
    PartitionId::new(TopicId(topic), shard - 1)
}

fn append(partition: PartitionId, base_offset: u64, span: u32) -> Append {
    Append {
        partition,
        base_offset,
        span,
        leader_epoch: EPOCH,
        max_timestamp: 0,
        // Sequences are ignored in a channel.
        producer_id: if partition.as_channel().is_some() { 7 } else { -1 },
        producer_epoch: 0,
        base_sequence: 0,
        kind: BatchKind::Plain,
    }
}

impl Shard {
    fn new(shard: u32) -> Self {
        let state = State::of(Role::Rows(ShardId(shard)));
        let ends = (0..TOPICS).map(|topic| (topic, Some(0))).collect();
        let mut new = Self { state, log: Vec::new(), ends, settled: 0, adopted: 0 };
        let topics = (0..TOPICS).map(|topic| AdoptedTopic {
            topic: TopicId(topic),
            first: shard - 1,
            step: SHARDS,
            partitions: SHARDS,
            deletes_settled: false,
        });
        let group = AdoptedGroup { group: LeaseGroupId(0), topic: TopicId(0), starts: vec![] };
        let adoption = Adoption {
            from: 0,
            to: 1,
            all: false,
            topics: topics.collect(),
            groups: vec![group],
            topics_gone: vec![],
            groups_gone: vec![],
        };
        new.apply(&[], &[Command::Adopt(adoption)], &[]);
        new.adopted = 1;
        new
    }

    fn apply(&mut self, appends: &[Append], commands: &[Command], units: &[Unit]) -> EntryEffects {
        let (now_ms, leader_epoch) = (self.log.len() as i64, Some(EPOCH));
        let mut applied = EntryEffects::new();
        self.state.apply(&Entry { now_ms, leader_epoch, appends, commands, units }, &mut applied);
        let head = encode_head(now_ms, commands, units);
        let (appends, copy) = (appends.to_vec(), applied.clone());
        self.log.push(LoggedEntry { head, appends, applied: copy });
        applied
    }
}

impl Model {
    fn new() -> Self {
        let shards = (1..=SHARDS).map(Shard::new).collect();
        Self { shards, channels: BTreeMap::new(), counts: [0; 5] }
    }

    fn shard(&mut self, shard: u32) -> &mut Shard {
        &mut self.shards[shard as usize - 1]
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Append { shard, topic, span } => {
                let Some(end) = self.shard(shard).ends[&topic] else { return };
                let append = append(partition(shard, topic), end, span);
                let applied = self.shard(shard).apply(&[append], &[], &[]);
                assert_eq!(applied.appends, [AppendOutcome::Taken { base_offset: end }]);
                self.shard(shard).ends.insert(topic, Some(end + u64::from(span)));
            }
            Step::Send { from, to, ref batches, settles, local, ref wrong } => {
                let settles_to = self.shard(to).ends[&0].filter(|_| settles);
                let number = self.channels.get(&(from, to)).map_or(0, |channel| channel.end);
                let message = Message { number, batches: batches.clone(), settles_to };
                self.send(from, to, message, local, wrong);
            }
            Step::Deliver { from, to, which, stale } => self.deliver(from, to, which, stale),
            Step::Acknowledge { from, to, which } => self.acknowledge(from, to, which),
            Step::Delete { shard, topic } => {
                let found = self.shard(shard);
                let (from, to) = (found.adopted, found.adopted + 1);
                let topics_gone = vec![TopicId(topic)];
                let adoption = Adoption { from, to, topics_gone, ..Adoption::default() };
                found.apply(&[], &[Command::Adopt(adoption)], &[]);
                found.adopted = to;
                found.ends.insert(topic, None);
            }
            Step::Restart { shard } => {
                let state = &mut self.shard(shard).state;
                let restored = State::decode(&state.encode()).expect("it was encoded by us");
                assert!(restored == *state);
                *state = restored;
            }
        }
    }

    fn send(
        &mut self,
        from: u32,
        to: u32,
        mut message: Message,
        local: Option<u32>,
        wrong: &SendFault,
    ) {
        let channel_id = PartitionId::channel_to(ShardId(to));
        if let SendFault::ForNothing = wrong {
            message.settles_to = None;
            message.batches.iter_mut().for_each(|batch| batch.targets.clear());
        } else if message.settles_to.is_none() {
            // Only with a command may a batch be for no partition.
            message.batches.iter_mut().filter(|it| it.targets.is_empty()).for_each(Batch::fill);
        }
        let (number, batches) = (message.number, &message.batches);
        let shard = self.shard(from);
        let mut appends = Vec::new();
        let local = local.and_then(|topic| Some((topic, shard.ends[&topic]?)));
        if let Some((topic, end)) = local {
            appends.push(append(partition(from, topic), end, 1));
        }
        let (mut end, mut sent) = (number, Vec::new());
        for batch in batches {
            appends.push(append(channel_id, end, batch.span));
            end += u64::from(batch.span);
            let targets = batch.targets.iter().map(|topic| partition(to, *topic)).collect();
            sent.push(SentBatch { bytes: batch.span * 10, targets });
        }
        let settles = vec![GroupSettle {
            group: LeaseGroupId(0),
            partition: from - 1,
            settled: vec![(shard.settled, 1)],
            attempts: vec![],
        }];
        let carried = message.commands(to);
        let mut commands = vec![
            Command::Settle { settles },
            match carried.is_empty() {
                true => Command::Send { to: ShardId(to), batches: sent },
                false => {
                    let (to, preparation) = (ShardId(to), Preparation::default());
                    Command::SendWith { to, batches: sent, commands: carried, preparation }
                }
            },
        ];
        match wrong {
            SendFault::Nothing | SendFault::ForNothing => {}
            SendFault::WithoutCommand => drop(commands.pop()),
            SendFault::WithoutBatch => drop(appends.pop()),
            SendFault::Stale => appends.iter_mut().for_each(|it| it.leader_epoch -= 1),
            SendFault::BesideOther => commands.push(Command::ExpireProducers { before_ms: 0 }),
        }
        let unit = Unit {
            appends: appends.len() as u32,
            commands: commands.len() as u32,
            ..Unit::default()
        };
        let has_records = shard.ends[&0].is_some_and(|end| end > shard.settled);
        let applied = shard.apply(&appends, &commands, &[unit]);
        let taken = matches!(wrong, SendFault::Nothing) && from != to;
        let all = applied.appends.iter().all(|it| matches!(it, AppendOutcome::Taken { .. }));
        assert_eq!(all && !applied.appends.is_empty(), taken, "{applied:?}");
        if !taken {
            assert!(applied.commands.iter().all(Result::is_err), "{applied:?}");
            return;
        }
        assert!(applied.commands.iter().all(|it| *it == Ok(Outcome::Done)));
        if let Some((topic, end)) = local {
            shard.ends.insert(topic, Some(end + 1));
        }
        if has_records || local.is_some_and(|(topic, end)| topic == 0 && end >= shard.settled) {
            shard.settled += 1;
        }
        let channel = self.channels.entry((from, to)).or_default();
        channel.messages.push(message);
        channel.end = end;
    }

    fn deliver(&mut self, from: u32, to: u32, which: i8, stale: bool) {
        // One of the used channels.
        let place = (from * SHARDS + to) as usize % self.channels.len().max(1);
        let Some(&(from, to)) = self.channels.keys().nth(place) else { return };
        let Some(channel) = self.channels.get(&(from, to)) else { return };
        let at = channel.taken as i64 + i64::from(which);
        let Some(at) = usize::try_from(at).ok().filter(|at| *at < channel.messages.len()) else {
            return;
        };
        let (number, next) = (channel.number(at), channel.number(at + 1));
        let message = channel.messages[at].clone();
        let shard = &mut self.shards[to as usize - 1];
        let mut ends = shard.ends.clone();
        let (mut appends, mut gone) = (Vec::new(), 0);
        for batch in &message.batches {
            for topic in &batch.targets {
                match ends[topic] {
                    Some(end) => {
                        appends.push(append(partition(to, *topic), end, batch.span));
                        ends.insert(*topic, Some(end + u64::from(batch.span)));
                    }
                    None if stale => {
                        gone += 1;
                        appends.push(append(partition(to, *topic), 0, batch.span));
                    }
                    None => gone += 1,
                }
            }
        }
        let origin = Some(Origin { shard: ShardId(from), number, next });
        let commands: Vec<Command> =
            message.commands(to).into_iter().map(Command::FromMessage).collect();
        let (counted, bound) = (appends.len() as u32, commands.len() as u32);
        let unit = Unit { appends: counted, commands: bound, origin, ..Unit::default() };
        let applied = shard.apply(&appends, &commands, &[unit]);
        let done = applied.commands.iter().all(|it| *it == Ok(Outcome::Done));
        assert!(done == (which == 0) || commands.is_empty(), "{applied:?}");
        let outcomes: BTreeSet<_> = applied.appends.iter().map(|it| format!("{it:?}")).collect();
        match which {
            0 => {
                let fine = |(append, outcome): (&Append, &AppendOutcome)| match outcome {
                    AppendOutcome::Taken { base_offset } => *base_offset == append.base_offset,
                    AppendOutcome::UnknownPartition => {
                        shard.ends[&append.partition.topic.0].is_none()
                    }
                    _ => false,
                };
                assert!(appends.iter().zip(&applied.appends).all(fine), "{applied:?}");
                shard.ends = ends;
                shard.settled = shard.settled.max(message.settles_to.unwrap_or(0));
                self.counts[0] += 1;
                self.counts[4] += commands.len();
                self.counts[3] += gone;
                if let Some(channel) = self.channels.get_mut(&(from, to)) {
                    channel.taken += 1;
                }
            }
            ..0 => {
                let passed = applied.appends.iter().all(|it| *it == AppendOutcome::PassedOver);
                assert!(passed, "{outcomes:?}");
                self.counts[1] += 1;
            }
            _ => {
                let refused = applied.appends.iter().all(|it| *it == AppendOutcome::UnitRefused);
                assert!(refused, "{outcomes:?}");
                self.counts[2] += 1;
            }
        }
    }

    fn acknowledge(&mut self, from: u32, to: u32, which: i8) {
        let Some(channel) = self.channels.get_mut(&(from, to)) else { return };
        let at = (channel.taken as i64 + i64::from(which)).max(0) as usize;
        let at = at.min(channel.taken);
        let below = channel.number(at);
        let moves = at > channel.acknowledged;
        channel.acknowledged = channel.acknowledged.max(at);
        let to = ShardId(to);
        let applied = self.shard(from).apply(&[], &[Command::Acknowledged { to, below }], &[]);
        assert_eq!(applied.commands, [Ok(Outcome::Done)]);
        let trimmed = [(PartitionId::channel_to(to), below)];
        assert_eq!(applied.trimmed, &trimmed[..usize::from(moves)]);
    }

    fn check(&self) {
        for (place, shard) in self.shards.iter().enumerate() {
            let number = place as u32 + 1;
            for (&topic, &end) in &shard.ends {
                let row = shard.state.rows.partition(partition(number, topic));
                assert_eq!(row.map(|row| row.next_offset()), end, "{topic} of shard {number}");
            }
            if shard.ends[&0].is_some() {
                let progress = shard.state.rows.progress(LeaseGroupId(0), place as u32);
                assert_eq!(progress.map(|it| it.floor()), Some(shard.settled));
            }
            assert!(shard.state.rows.topics().all(|topic| topic.row_count() == 1));
        }
        for (&(from, to), channel) in &self.channels {
            let sender = &self.shards[from as usize - 1].state.rows;
            let outbox = sender.channels().outbox(ShardId(to)).expect("something was sent");
            let waiting = &channel.messages[channel.acknowledged..];
            let numbers: Vec<u64> = outbox.messages_from(0).map(|(number, _)| number).collect();
            let expected: Vec<u64> = waiting.iter().map(|message| message.number).collect();
            assert_eq!(numbers, expected);
            let bytes = waiting.iter().map(|message| message.weight(to));
            assert_eq!(outbox.bytes(), bytes.sum::<u64>());
            let bounds = (channel.number(channel.acknowledged), channel.end);
            assert_eq!((outbox.acknowledged(), outbox.end()), bounds);
            let receiver = &self.shards[to as usize - 1].state.rows;
            let expected = receiver.channels().expected(ShardId(from));
            assert_eq!(expected, channel.number(channel.taken));
        }
    }
}

fn replay(state: &mut State, log: &[LoggedEntry]) {
    let mut applied = EntryEffects::new();
    for logged in log {
        let head = decode_head(&logged.head).expect("it was encoded by us");
        let entry = Entry {
            now_ms: head.now_ms,
            leader_epoch: Some(EPOCH),
            appends: &logged.appends,
            commands: &head.commands,
            units: &head.units,
        };
        state.apply(&entry, &mut applied);
        assert_eq!(applied, logged.applied);
    }
}

fn shard() -> impl Strategy<Value = u32> {
    1..=SHARDS
}

fn batch() -> impl Strategy<Value = Batch> {
    (1..4_u32, prop::collection::vec(0..TOPICS, 0..4))
        .prop_map(|(span, targets)| Batch { span, targets })
}

fn step() -> impl Strategy<Value = Step> {
    let wrong = prop_oneof![
        24 => Just(SendFault::Nothing),
        1 => Just(SendFault::WithoutCommand),
        1 => Just(SendFault::WithoutBatch),
        1 => Just(SendFault::Stale),
        1 => Just(SendFault::BesideOther),
        1 => Just(SendFault::ForNothing),
    ];
    let batches = prop::collection::vec(batch(), 1..4);
    let local = prop::option::of(0..TOPICS);
    let send = (shard(), shard(), batches, any::<bool>(), local, wrong).prop_map(
        |(from, to, batches, settles, local, wrong)| Step::Send {
            from,
            to,
            batches,
            settles,
            local,
            wrong,
        },
    );
    let which = prop_oneof![4 => Just(0_i8), 1 => -3..0_i8, 2 => 1..3_i8];
    let deliver = (shard(), shard(), which, any::<bool>())
        .prop_map(|(from, to, which, stale)| Step::Deliver { from, to, which, stale });
    let acknowledge = (shard(), shard(), -2..1_i8)
        .prop_map(|(from, to, which)| Step::Acknowledge { from, to, which });
    prop_oneof![
        3 => (shard(), 0..TOPICS, 1..4_u32)
            .prop_map(|(shard, topic, span)| Step::Append { shard, topic, span }),
        12 => send,
        10 => deliver,
        3 => acknowledge,
        1 => (shard(), 0..TOPICS).prop_map(|(shard, topic)| Step::Delete { shard, topic }),
        1 => shard().prop_map(|shard| Step::Restart { shard }),
    ]
}

fn run(steps: &[Step]) -> Model {
    let mut model = Model::new();
    for step in steps {
        model.run(step);
        model.check();
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::histories(), ..ProptestConfig::default() })]

    #[test]
    fn message_is_accepted_once_and_in_order(
        steps in prop::collection::vec(step(), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let model = run(&steps);
        for (place, shard) in model.shards.iter().enumerate() {
            let (before, after) = shard.log.split_at(cut.index(shard.log.len() + 1));
            let mut restored = State::of(Role::Rows(ShardId(place as u32 + 1)));
            replay(&mut restored, before);
            let mut restored = State::decode(&restored.encode()).expect("it was encoded by us");
            replay(&mut restored, after);
            prop_assert_eq!(restored.encode(), shard.state.encode());
        }
    }
}

#[test]
fn histories_cover_all_kinds_of_messages() {
    let mut runner = TestRunner::deterministic();
    let mut all = [0; 5];
    for _ in 0..100 {
        let steps = prop::collection::vec(step(), 1..80);
        let steps = steps.new_tree(&mut runner).expect("it can always be made").current();
        let counts = run(&steps).counts;
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(
        all.iter().all(|count| *count > 20),
        "taken, passed over, refused, gone, commands: {all:?}"
    );
}

#[test]
fn image_keeps_the_outbox_of_its_capture() {
    let mut model = Model::new();
    let batches = vec![Batch { span: 1, targets: vec![0] }];
    let (settles, local, wrong) = (true, None, SendFault::Nothing);
    let send = Step::Send { from: 1, to: 2, batches, settles, local, wrong };
    model.run(&send);
    let (image, bytes) = (model.shards[0].state.capture(), model.shards[0].state.encode());
    model.run(&send);
    model.run(&Step::Deliver { from: 1, to: 2, which: 0, stale: false });
    model.run(&Step::Acknowledge { from: 1, to: 2, which: 0 });
    assert!(model.shards[0].state.encode() != bytes);
    assert_eq!(image.encode(), bytes);
}
