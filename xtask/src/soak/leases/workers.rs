//! The load of `soak leases`: producers and consumers of both protocols, each a thread with a connection. A thread
//! normally ends when its server is killed; any other error is a finding.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::CallError;
use client::blocking::{Connection, SentBatches, ShareMember};
use client::records::NewRecord;
use client::requests::ProduceOutcome;
use client::share::{LeasedRecord, Settle, Settlement};
use client_amqp::blocking as amqp;
use client_amqp::{AmqpError, Mode};
use uuid::Uuid;

use crate::random::Random;
use crate::records::batch_of;
use histories::leases::{FinalSettlement, Ledger, Violation, Worker};
use histories::log::Mark;

/// A server without a reply for this long hangs.
pub(in crate::soak) const PATIENCE: Duration = Duration::from_secs(30);
/// The group of each queue, whose members AMQP consumers are.
pub(in crate::soak) const GROUP: &str = "main";
/// Unacknowledged requests or messages of a producer.
const REQUESTS_IN_FLIGHT: usize = 4;
const MESSAGES_IN_FLIGHT: usize = 50;
const BATCH_RECORDS: u64 = 20;
const FETCH_RECORDS: u64 = 60;
const PREFETCH: u16 = 60;
/// Time that a consumer waits for more records before it settles or checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time that an acknowledging consumer holds its records.
const HELD_FOR: Duration = Duration::from_millis(300);
/// Probability, one in this number, that a consumer closes its connection with unsettled records and reconnects.
const LEAVES_ONE_IN: u64 = 60;

/// Target of the load, and its ledger.
#[derive(Debug)]
pub(in crate::soak) struct Stage {
    pub(super) kafka: SocketAddr,
    /// Each connection takes one of them at random.
    amqp: Vec<SocketAddr>,
    pub(in crate::soak) queues: Vec<String>,
    pub(super) partitions: usize,
    pub(super) record_bytes: usize,
    pub(in crate::soak) ledger: Mutex<Ledger>,
    next_worker: AtomicU32,
    produces: AtomicBool,
    consumes: AtomicBool,
    /// The last paused node, with the time at which it continued.
    stood_still: Mutex<Option<(SocketAddr, Instant)>>,
}

/// Deliveries that a node sent before its pause may arrive this long after it continued.
const ARRIVES_LATE: Duration = Duration::from_secs(1);

/// Reason for the early end of a worker.
#[derive(Debug)]
pub(in crate::soak) enum WorkerEnd {
    Failed(io::Error),
    Violated(Violation),
}

impl From<io::Error> for WorkerEnd {
    fn from(error: io::Error) -> WorkerEnd {
        WorkerEnd::Failed(error)
    }
}

impl From<CallError> for WorkerEnd {
    fn from(error: CallError) -> WorkerEnd {
        WorkerEnd::Failed(error.into())
    }
}

impl From<AmqpError> for WorkerEnd {
    fn from(error: AmqpError) -> WorkerEnd {
        WorkerEnd::Failed(error.into())
    }
}

impl From<Violation> for WorkerEnd {
    fn from(violation: Violation) -> WorkerEnd {
        WorkerEnd::Violated(violation)
    }
}

impl WorkerEnd {
    /// The finding, if there is one: a broken connection is expected from a killed server.
    pub(super) fn finding(self) -> Option<String> {
        match self {
            WorkerEnd::Violated(violation) => Some(format!("VIOLATION: {violation}")),
            WorkerEnd::Failed(error) => {
                let is_broken = matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof
                        | ErrorKind::ConnectionReset
                        | ErrorKind::ConnectionRefused
                        | ErrorKind::ConnectionAborted
                        | ErrorKind::BrokenPipe
                );
                (!is_broken).then(|| error.to_string())
            }
        }
    }
}

type WorkerResult = Result<(), WorkerEnd>;

impl Stage {
    pub(in crate::soak) fn new(
        kafka: SocketAddr,
        amqp: Vec<SocketAddr>,
        queues: Vec<String>,
        partitions: usize,
        record_bytes: usize,
        producers: usize,
    ) -> Stage {
        Stage {
            kafka,
            amqp,
            queues,
            partitions,
            record_bytes,
            ledger: Mutex::new(Ledger::new(producers)),
            next_worker: AtomicU32::new(0),
            produces: AtomicBool::new(false),
            consumes: AtomicBool::new(false),
            stood_still: Mutex::default(),
        }
    }

    /// Call before the node at a place fails.
    pub(in crate::soak) fn node_fails(&self, place: usize) {
        self.ledger().node_fails(self.amqp[place % self.amqp.len()]);
    }

    /// Call before a paused node continues.
    pub(in crate::soak) fn node_resumes(&self, place: usize) {
        let node = self.amqp[place % self.amqp.len()];
        *self.stood_still.lock().expect("no worker panics") = Some((node, Instant::now()));
    }

    /// Whether a delivery may be from before the pause of its node: it was in flight to the client and cannot be
    /// recalled. Other consumers may have got the record meanwhile.
    fn may_be_late(&self, node: SocketAddr, connected: Instant) -> bool {
        let stood_still = *self.stood_still.lock().expect("no worker panics");
        stood_still.is_some_and(|(place, at)| {
            place == node && connected < at && at.elapsed() < ARRIVES_LATE
        })
    }

    pub(in crate::soak) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no worker panics")
    }

    pub(in crate::soak) fn begin(&self, produces: bool) {
        self.produces.store(produces, Ordering::Relaxed);
        self.consumes.store(true, Ordering::Relaxed);
    }

    pub(in crate::soak) fn stop(&self) {
        self.produces.store(false, Ordering::Relaxed);
        self.consumes.store(false, Ordering::Relaxed);
    }

    pub(in crate::soak) fn produces(&self) -> bool {
        self.produces.load(Ordering::Relaxed)
    }

    pub(in crate::soak) fn consumes(&self) -> bool {
        self.consumes.load(Ordering::Relaxed)
    }

    fn amqp(&self, random: &mut Random) -> SocketAddr {
        self.amqp[random.between(0, self.amqp.len() as u64 - 1) as usize]
    }

    fn worker(&self) -> Worker {
        self.next_worker.fetch_add(1, Ordering::Relaxed)
    }
}

// ------------------------------------------------------------------------------------- producers

/// Sends batches by Kafka's protocol, several requests in flight.
pub(super) fn produce_batches(stage: &Stage, producer: u32, mut random: Random) -> WorkerResult {
    let mut connection = Connection::open(stage.kafka, PATIENCE)?;
    let mut in_flight: VecDeque<(SentBatches, Vec<Mark>)> = VecDeque::new();
    loop {
        while in_flight.len() < REQUESTS_IN_FLIGHT && stage.produces() {
            let queue = random.between(0, stage.queues.len() as u64 - 1) as usize;
            let partition = random.between(0, stage.partitions as u64 - 1) as i32;
            let records = random.between(1, BATCH_RECORDS);
            let marks: Vec<Mark> = {
                let mut ledger = stage.ledger();
                (0..records).map(|_| ledger.send(producer, queue)).collect()
            };
            let record = |mark: &Mark| NewRecord {
                key: Some(Bytes::from(format!("{}", mark.sequence % 16))),
                value: mark.to_value(stage.record_bytes),
                headers: Vec::new(),
            };
            let batch = batch_of(marks.iter().map(record));
            let sent = connection.produce(&stage.queues[queue], partition, batch)?;
            in_flight.push_back((sent, marks));
        }
        let Some((sent, marks)) = in_flight.pop_front() else { return Ok(()) };
        match connection.answer(sent)? {
            ProduceOutcome::Acknowledged { .. } => {
                let mut ledger = stage.ledger();
                marks.into_iter().for_each(|mark| ledger.confirm(mark));
            }
            ProduceOutcome::Refused { code } => {
                return Err(io::Error::other(format!("a batch was refused: code {code}")).into());
            }
        }
    }
}

/// Publishes single messages by AMQP, each confirmed.
pub(in crate::soak) fn publish_messages(
    stage: &Stage,
    producer: u32,
    mut random: Random,
) -> WorkerResult {
    let mut connection = amqp::Connection::open(stage.amqp(&mut random), PATIENCE, Mode::Confirms)?;
    let mut unconfirmed = HashMap::new();
    loop {
        while connection.unconfirmed() < MESSAGES_IN_FLIGHT && stage.produces() {
            let queue = random.between(0, stage.queues.len() as u64 - 1) as usize;
            let mark = stage.ledger().send(producer, queue);
            let tag = connection.publish(&stage.queues[queue], &mark.to_value(stage.record_bytes));
            unconfirmed.insert(tag, mark);
        }
        if connection.unconfirmed() == 0 {
            return Ok(());
        }
        for confirm in connection.confirms()? {
            if !confirm.taken {
                return Err(io::Error::other("a message was refused").into());
            }
            if let Some(mark) = unconfirmed.remove(&confirm.tag) {
                stage.ledger().confirm(mark);
            }
        }
    }
}

// ------------------------------------------------------------------------------------- consumers

/// Settlement of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    End(FinalSettlement),
    Release,
}

fn choose(random: &mut Random) -> Choice {
    match random.between(0, 19) {
        0 => Choice::Release,
        1 => Choice::End(FinalSettlement::Rejected),
        _ => Choice::End(FinalSettlement::Accepted),
    }
}

fn announce(ledger: &mut Ledger, mark: Mark, choice: Choice) {
    match choice {
        Choice::End(end) => ledger.request_settle(mark, end),
        Choice::Release => ledger.release(mark),
    }
}

/// A member of a share group over all queues. The proof of a settle is the response to its request, a
/// ShareAcknowledge or the next ShareFetch.
pub(super) fn consume_shares(stage: &Stage, mut random: Random) -> WorkerResult {
    while stage.consumes() {
        let worker = stage.worker();
        let id = Uuid::new_v4();
        let mut member = ShareMember::open(stage.kafka, PATIENCE, GROUP, &stage.queues, id)?;
        let mut pending: Vec<(Settle, Mark, Choice)> = Vec::new();
        while stage.consumes() || !pending.is_empty() {
            let settles: Vec<Settle> = pending.iter().map(|(settle, ..)| *settle).collect();
            let by_itself = !stage.consumes() || random.between(0, 2) == 0;
            let leased = match by_itself && !settles.is_empty() {
                true => member.acknowledge(&settles).map(|()| Vec::new())?,
                false => {
                    let records = random.between(1, FETCH_RECORDS) as usize;
                    member.fetch(records, LOOK, &settles)?
                }
            };
            let mut ledger = stage.ledger();
            for (_, mark, choice) in pending.drain(..) {
                if let Choice::End(end) = choice {
                    ledger.settle(mark, end);
                }
            }
            let queue_of = |record: &LeasedRecord| member.place_of(record.topic);
            pending = decide(&mut ledger, worker, leased, queue_of, &mut random)?;
            if random.between(1, LEAVES_ONE_IN) == 1 && stage.consumes() {
                // It holds its pending records until the connection is closed; only then may the server give them
                // to others.
                ledger.leave(worker);
                break;
            }
            pending.iter().for_each(|&(_, mark, choice)| announce(&mut ledger, mark, choice));
        }
    }
    Ok(())
}

fn decide(
    ledger: &mut Ledger,
    worker: Worker,
    mut leased: Vec<LeasedRecord>,
    queue_of: impl Fn(&LeasedRecord) -> Option<usize>,
    random: &mut Random,
) -> Result<Vec<(Settle, Mark, Choice)>, WorkerEnd> {
    leased.sort_by_key(|record| (queue_of(record), record.partition, record.offset));
    let mut pending = Vec::with_capacity(leased.len());
    for record in leased {
        let place = || {
            let LeasedRecord { partition, offset, attempt, .. } = record;
            format!("partition {partition}, offset {offset}, delivery {attempt}, a share group")
        };
        let queue = queue_of(&record);
        let queue = queue.ok_or_else(|| io::Error::other("a topic that nobody asked for"))?;
        let mark = ledger.deliver(worker, queue, &record.value, place)?;
        let choice = choose(random);
        let settlement = match choice {
            Choice::End(FinalSettlement::Accepted) => Settlement::Accept,
            Choice::End(FinalSettlement::Rejected) => Settlement::Reject,
            Choice::Release => Settlement::Release,
        };
        pending.push((record.settle(settlement), mark, choice));
    }
    Ok(pending)
}

/// An AMQP consumer of one queue after another, which settles in transactions: `tx.commit-ok` is the proof.
pub(in crate::soak) fn consume_transactions(stage: &Stage, random: Random) -> WorkerResult {
    consume(stage, Mode::Transactions, random)
}

/// Acknowledges its records after a while without a reply, as most consumers do.
pub(in crate::soak) fn consume_acknowledging(stage: &Stage, random: Random) -> WorkerResult {
    consume(stage, Mode::Confirms, random)
}

fn consume(stage: &Stage, mode: Mode, mut random: Random) -> WorkerResult {
    while stage.consumes() {
        let worker = stage.worker();
        let worked = consume_until_close(stage, mode, worker, &mut random);
        // A broken connection releases its records, too.
        stage.ledger().leave(worker);
        worked?;
    }
    Ok(())
}

fn consume_until_close(
    stage: &Stage,
    mode: Mode,
    worker: Worker,
    random: &mut Random,
) -> WorkerResult {
    let queue = random.between(0, stage.queues.len() as u64 - 1) as usize;
    let node = stage.amqp(random);
    let mut connection = amqp::Connection::open(node, PATIENCE, mode)?;
    let connected = Instant::now();
    stage.ledger().set_node(worker, node);
    connection.consume(&stage.queues[queue], PREFETCH)?;
    while stage.consumes() {
        let mut pending = Vec::new();
        let (wanted, held_for) = match mode {
            Mode::Transactions => (random.between(1, u64::from(PREFETCH)), Duration::ZERO),
            Mode::Confirms => (u64::from(PREFETCH), random.duration(Duration::ZERO, HELD_FOR)),
        };
        let held_until = Instant::now() + held_for;
        // If the node fails, other consumers may get deliveries that lie unread here.
        while pending.len() < wanted as usize {
            let Some(delivery) = connection.delivery(LOOK)? else {
                match Instant::now() < held_until {
                    true => continue,
                    false => break,
                }
            };
            let place = || format!("delivery tag {}, AMQP", delivery.tag);
            let mut ledger = stage.ledger();
            match ledger.deliver(worker, queue, &delivery.body, place) {
                Ok(mark) => pending.push((delivery.tag, mark)),
                Err(Violation::SettledCameAgain { .. }) if stage.may_be_late(node, connected) => {
                    ledger.tally.late += 1;
                }
                Err(violation) => return Err(violation.into()),
            }
        }
        std::thread::sleep(held_until.saturating_duration_since(Instant::now()));
        if random.between(1, LEAVES_ONE_IN) == 1 {
            break;
        }
        match mode {
            Mode::Transactions => settle_in_transaction(stage, &mut connection, pending, random)?,
            Mode::Confirms => acknowledge(stage, &mut connection, pending)?,
        }
    }
    // Before the connection is closed, since the server may give its records to others at once.
    stage.ledger().leave(worker);
    Ok(())
}

fn acknowledge(
    stage: &Stage,
    connection: &mut amqp::Connection,
    pending: Vec<(u64, Mark)>,
) -> io::Result<()> {
    for (tag, mark) in pending {
        stage.ledger().acknowledge(mark);
        connection.ack(tag);
    }
    Ok(connection.flush()?)
}

fn settle_in_transaction(
    stage: &Stage,
    connection: &mut amqp::Connection,
    pending: Vec<(u64, Mark)>,
    random: &mut Random,
) -> io::Result<()> {
    if pending.is_empty() {
        return Ok(());
    }
    let mut settled = Vec::new();
    {
        let mut ledger = stage.ledger();
        for (tag, mark) in pending {
            let choice = choose(random);
            announce(&mut ledger, mark, choice);
            match choice {
                Choice::End(FinalSettlement::Accepted) => connection.ack(tag),
                Choice::End(FinalSettlement::Rejected) => connection.nack(tag, false),
                Choice::Release => connection.nack(tag, true),
            }
            if let Choice::End(end) = choice {
                settled.push((mark, end));
            }
        }
    }
    connection.commit()?;
    let mut ledger = stage.ledger();
    settled.into_iter().for_each(|(mark, end)| ledger.settle(mark, end));
    Ok(())
}
