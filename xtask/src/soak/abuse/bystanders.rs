//! Well-behaved clients: a Kafka producer, a consumer of its records, and an AMQP publisher with confirms. A record
//! is sent at its due time whether the previous one was acknowledged or not, as applications do. Its latency counts
//! from then: if the server stalls for a second, all records of that second are slow.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::{Connection, SentBatches};
use client::records::records_of;
use client::requests::ProduceOutcome;
use client_amqp::blocking as amqp;
use client_amqp::{Argument, Mode};
use serde::Serialize;

use super::PATIENCE;
use crate::failure::{Context, Failure, Outcome};
use crate::records::batch;

const TOPIC: &str = "bystanders";
// A queue is a topic: it needs a name of its own.
const QUEUE: &str = "bystanders-queue";
const RECORD_BYTES: usize = 1024;
const EVERY: Duration = Duration::from_millis(5);
/// Time without a reply after which a client counts as stopped.
const STOPPED_AFTER: Duration = Duration::from_secs(15);

pub(super) struct Bystanders {
    shared: Arc<Shared>,
    threads: Vec<(&'static str, JoinHandle<io::Result<()>>)>,
}

struct Shared {
    begun: Instant,
    stop: AtomicBool,
    abused: AtomicBool,
    /// Measurements of each client, in the order of [`WHO`].
    seen: [Mutex<ProbeLatencies>; 3],
}

type Work = Box<dyn FnOnce(&Shared) -> io::Result<()> + Send>;

const WHO: [&str; 3] = ["producer", "consumer", "amqp publisher"];

#[derive(Default)]
struct ProbeLatencies {
    before: Vec<Duration>,
    during: Vec<Duration>,
    last: Option<Instant>,
}

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) who: &'static str,
    pub(super) before: Figures,
    pub(super) during: Figures,
}

#[derive(Debug, Serialize)]
pub(super) struct Figures {
    records: usize,
    p50_ms: f64,
    pub(super) p99_ms: f64,
    max_ms: f64,
}

impl Latency {
    /// The finding if its p99 during the abuse was above the limit. Unacknowledged records are not counted: a
    /// client without replies is reported as stopped.
    pub(super) fn above(&self, p99_ms_max: f64) -> Option<String> {
        let p99_ms = self.during.p99_ms;
        let who = self.who;
        (p99_ms > p99_ms_max).then(|| {
            format!("the {who}'s p99 was {p99_ms:.1} ms, and {p99_ms_max} ms is the limit")
        })
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, before, during } = self;
        write!(f, "{who:<15} before {before}, during {during}")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, p50_ms, p99_ms, max_ms } = self;
        write!(f, "p50 {p50_ms:.1} p99 {p99_ms:.1} max {max_ms:.1} ms ({records})")
    }
}

impl Figures {
    fn of(mut latencies: Vec<Duration>) -> Figures {
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = ((latencies.len() as f64 * share).ceil() as usize).max(1) - 1;
            latencies.get(place).copied().unwrap_or_default().as_secs_f64() * 1e3
        };
        Figures { records: latencies.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn record_latency(&self, who: usize, due: Instant) {
        let now = Instant::now();
        let mut seen = self.seen[who].lock().expect("nobody panics with it");
        seen.last = Some(now);
        let took = now.duration_since(due);
        match self.abused.load(Ordering::Relaxed) {
            true => seen.during.push(took),
            false => seen.before.push(took),
        }
    }
}

impl Bystanders {
    pub(super) fn start(kafka: SocketAddr, amqp: SocketAddr) -> Outcome<Bystanders> {
        let mut producer = open(kafka).context(|| "a well-behaved producer cannot connect")?;
        producer.create_topic(TOPIC, 1, &[]).context(|| "cannot create their topic")?;
        let consumer = open(kafka).context(|| "a well-behaved consumer cannot connect")?;
        let mut publisher = amqp::Connection::open(amqp, PATIENCE, Mode::Confirms)
            .context(|| "a well-behaved publisher cannot connect")?;
        // Above this length the oldest messages are dropped, so that the queue does not grow.
        let length = [("x-max-length", Argument::Number(1000))];
        publisher
            .declare_with(&[QUEUE.to_owned()], &length)
            .context(|| "cannot declare their queue")?;
        let mut producer = Producer { connection: producer, sent: VecDeque::new() };
        let mut publisher = Publisher { connection: publisher, sent: HashMap::new() };
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            stop: AtomicBool::new(false),
            abused: AtomicBool::new(false),
            seen: Default::default(),
        });
        let run = |work: Work| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || work(&shared))
        };
        let threads = vec![
            (WHO[0], run(Box::new(move |shared| send_each(shared, 0, &mut producer)))),
            (WHO[1], run(Box::new(move |shared| consume(shared, consumer)))),
            (WHO[2], run(Box::new(move |shared| send_each(shared, 2, &mut publisher)))),
        ];
        Ok(Bystanders { shared, threads })
    }

    /// Counts all later records as during the abuse.
    pub(super) fn mark_abuse(&self) {
        self.shared.abused.store(true, Ordering::Relaxed);
    }

    /// Latencies of the clients, and reports of those that stopped.
    pub(super) fn end(self) -> (Vec<Latency>, Vec<String>) {
        let mut stopped = Vec::new();
        let mut latencies = Vec::new();
        let now = Instant::now();
        for (who, seen) in WHO.into_iter().zip(&self.shared.seen) {
            let mut seen = seen.lock().expect("nobody panics with it");
            let silent = seen.last.map_or(now.duration_since(self.shared.begun), |last| {
                now.saturating_duration_since(last)
            });
            if silent > STOPPED_AFTER {
                stopped.push(format!("the {who} heard nothing for {silent:.0?}"));
            }
            latencies.push(Latency {
                who,
                before: Figures::of(std::mem::take(&mut seen.before)),
                during: Figures::of(std::mem::take(&mut seen.during)),
            });
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        for (who, thread) in self.threads {
            // A client that waits for a reply ends with its server, which is killed after this.
            if thread.is_finished()
                && let Err(error) = thread.join().expect("a bystander does not panic")
            {
                stopped.push(format!("the {who} failed: {error}"));
            }
        }
        (latencies, stopped)
    }
}

fn open(address: SocketAddr) -> io::Result<Connection> {
    Ok(Connection::open(address, PATIENCE)?)
}

/// A client that sends records at their due times.
trait Sender {
    fn send(&mut self, due: Instant, value: Bytes) -> io::Result<()>;

    fn unanswered(&self) -> usize;

    /// Waits for a reply up to this time. Returns the due times of the acknowledged records.
    fn await_replies(&mut self, wait: Duration) -> io::Result<Vec<Instant>>;
}

fn send_each(shared: &Shared, who: usize, sender: &mut impl Sender) -> io::Result<()> {
    let mut due = Instant::now();
    while !shared.stops() {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            // A socket's timeout is some milliseconds late; a sleep is not.
            match sender.unanswered() {
                0 => std::thread::sleep(left),
                _ => sender
                    .await_replies(left)?
                    .into_iter()
                    .for_each(|due| shared.record_latency(who, due)),
            }
            continue;
        }
        let mut value = vec![b'x'; RECORD_BYTES];
        let nanos = due.saturating_duration_since(shared.begun).as_nanos() as u64;
        value[..8].copy_from_slice(&nanos.to_be_bytes());
        sender.send(due, value.into())?;
        due += EVERY;
    }
    Ok(())
}

struct Producer {
    connection: Connection,
    /// Unacknowledged batches, with the due time of each.
    sent: VecDeque<(SentBatches, Instant)>,
}

impl Sender for Producer {
    fn send(&mut self, due: Instant, value: Bytes) -> io::Result<()> {
        let sent = self.connection.produce(TOPIC, 0, batch(std::iter::once(value)))?;
        self.sent.push_back((sent, due));
        Ok(())
    }

    fn unanswered(&self) -> usize {
        self.sent.len()
    }

    fn await_replies(&mut self, wait: Duration) -> io::Result<Vec<Instant>> {
        let Some(&(sent, due)) = self.sent.front() else { return Ok(Vec::new()) };
        match self.connection.answer_within(sent, wait)? {
            None => Ok(Vec::new()),
            Some(ProduceOutcome::Acknowledged { .. }) => {
                self.sent.pop_front();
                Ok(vec![due])
            }
            Some(ProduceOutcome::Refused { code }) => {
                Err(io::Error::other(format!("refused with error code {code}")))
            }
        }
    }
}

fn consume(shared: &Shared, mut connection: Connection) -> io::Result<()> {
    let mut offset = 0;
    while !shared.stops() {
        let fetched = connection.fetch(TOPIC, &[(0, offset)], Duration::from_millis(500))?;
        for partition in fetched {
            if partition.error_code != 0 {
                let code = partition.error_code;
                return Err(io::Error::other(format!("fetch gave error code {code}")));
            }
            for record in records_of(partition.records)? {
                if record.offset < offset {
                    continue;
                }
                offset = record.offset + 1;
                let value = record.value.unwrap_or_default();
                let nanos = value.first_chunk().map_or(0, |nanos| u64::from_be_bytes(*nanos));
                shared.record_latency(1, shared.begun + Duration::from_nanos(nanos));
            }
        }
    }
    Ok(())
}

struct Publisher {
    connection: amqp::Connection,
    /// Due times of unconfirmed messages, by delivery tag.
    sent: HashMap<u64, Instant>,
}

impl Sender for Publisher {
    fn send(&mut self, due: Instant, value: Bytes) -> io::Result<()> {
        let tag = self.connection.publish(QUEUE, &value);
        self.sent.insert(tag, due);
        Ok(self.connection.flush()?)
    }

    fn unanswered(&self) -> usize {
        self.sent.len()
    }

    fn await_replies(&mut self, wait: Duration) -> io::Result<Vec<Instant>> {
        let confirms = self.connection.confirms_within(wait)?.unwrap_or_default();
        if confirms.iter().any(|confirm| !confirm.taken) {
            return Err(io::Error::other("a message was refused"));
        }
        Ok(confirms.iter().filter_map(|confirm| self.sent.remove(&confirm.tag)).collect())
    }
}

/// Whether the server has closed the connection, which is an expected rejection of an abuse.
pub(super) fn cut_off(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

pub(super) fn failed<E: fmt::Display>(what: &str) -> impl FnOnce(E) -> Failure + '_ {
    move |error| Failure::new(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(before_ms: u64, during_ms: u64) -> Latency {
        let of = |ms| Figures::of(vec![Duration::from_millis(ms); 100]);
        Latency { who: "producer", before: of(before_ms), during: of(during_ms) }
    }

    #[test]
    fn only_the_p99_during_an_abuse_counts_against_the_limit() {
        assert_eq!(latency(900, 250).above(250.0), None);
        let failure = latency(1, 251).above(250.0).expect("it is above");
        assert_eq!(failure, "the producer's p99 was 251.0 ms, and 250 ms is the limit");
    }

    #[test]
    fn one_slow_record_in_a_hundred_is_within_the_limit() {
        let mut taken = vec![Duration::from_millis(1); 99];
        taken.push(Duration::from_secs(20));
        let during = Figures::of(taken);
        let latency = Latency { during, ..latency(1, 1) };
        assert_eq!(latency.above(250.0), None);
    }
}
