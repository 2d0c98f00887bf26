//! Appends that go to the node that leads their shard, in the order in which they were made.
//!
//! Requests between nodes may overtake one another ([`crate::remote`]). So one request of a shard at most is on its
//! way to another node. What is appended meanwhile waits in line, and all of it is the next request: the longer the
//! way, the larger the requests. Where this node leads and nobody waits, an append goes into the log directly, unless
//! leadership is being handed over: then it waits for the next leader.
//!
//! The node that leads knows the answers to the last [`FORWARDED_ROWS`] rows of this one: an append with more goes
//! there in parts, one after the other.
//!
//! An append that the other node certainly did not carry out, since it does not lead, goes to the next leader. So does one
//! whose answer is lost, from [`Level::NUMBERED`] on: rows are numbered, and what was taken is not taken again. Below
//! that it is answered as [`Unavailable::Unanswered`].
//!
//! Appends wait [`LEADERLESS_HOLD`] for a leader. Where this node is cut off from a majority they are refused after
//! [`MAJORITY_AWAITED_FOR`], so that clients go to another node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::Level;
use base::limits::{
    FORWARDED_BYTES, FORWARDED_ROWS, LEADERLESS_HOLD, MAJORITY_AWAITED_FOR, REMOTE_ANSWERED_WITHIN,
};
use bytes::{Bytes, BytesMut};
use cluster::Node;
use consensus::Role;
use links::NodeId;
use machine::Numbered;
use parking_lot::Mutex;
use tasks::Task;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use world::Instant;

use crate::append::{self, AppendBatch, Appends};
use crate::error::{AppendError, Unavailable};
use crate::local_shard::LocalShard;
use crate::remote::unanswered;
use crate::remote::wire::{self, Awaiting};
use crate::request::Request;

/// The pause before the same node is asked again, or the shard has a leader again, if nothing is heard of that.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The way of appends to the leader of one shard.
#[derive(Debug)]
pub(crate) struct Line {
    shard: Arc<LocalShard>,
    node: Arc<Node>,
    role: watch::Receiver<Role>,
    /// Of this line's numbers: no other line, nor one of another run of the node, has it.
    incarnation: u64,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Append>,
    /// Of the next row that goes to another node.
    number: u64,
    /// A task takes from it. Whoever comes meanwhile waits, wherever the leader is.
    moving: bool,
}

/// One producer's request.
#[derive(Debug)]
struct Append {
    batches: Vec<AppendBatch>,
    reply: oneshot::Sender<Appends>,
}

/// Appends that go to another node in one request. Their bytes are kept apart, so that they can be sent again.
#[derive(Debug)]
struct Forwarded {
    batches: Vec<AppendBatch>,
    bytes: Vec<Bytes>,
    waiting: Vec<Waiting>,
    /// The answer to each row so far. `None` until an answer came, or one was lost: no leader has taken anything.
    answers: Option<Appends>,
}

/// Who waits for the answers to the next of the forwarded batches.
#[derive(Debug)]
struct Waiting {
    batches: usize,
    rows: usize,
    reply: oneshot::Sender<Appends>,
}

impl Append {
    /// Requests of at most so many rows, in order. The answers come together.
    fn parts(self, rows_max: usize) -> Vec<Self> {
        let rows: usize = self.batches.iter().map(AppendBatch::rows).sum();
        if rows <= rows_max {
            return vec![self];
        }
        let (mut parts, mut answers) = (Vec::new(), Vec::new());
        for batches in append::in_groups(self.batches, rows_max) {
            let (reply, answer) = oneshot::channel();
            parts.push(Self { batches, reply });
            answers.push(answer);
        }
        tasks::spawn(Task::Forwarding, join_answers(answers, self.reply));
        parts
    }
}

async fn join_answers(parts: Vec<oneshot::Receiver<Appends>>, reply: oneshot::Sender<Appends>) {
    let mut answers = Appends::new();
    for part in parts {
        // Without an answer to one part there is none to the request.
        let Ok(part) = part.await else { return };
        answers.extend(part);
    }
    // The client may be gone.
    let _ = reply.send(answers);
}

enum Leader {
    Here,
    At(u64),
    /// There is none that this node knows.
    Unknown,
}

impl Line {
    /// `None`: the node is alone.
    pub(crate) fn new(shard: &Arc<LocalShard>, node: &Arc<Node>) -> Option<Arc<Self>> {
        let (shard, node, role) = (Arc::clone(shard), Arc::clone(node), shard.role()?);
        let incarnation = node.next_incarnation();
        Some(Arc::new(Self { shard, node, role, incarnation, queue: Mutex::default() }))
    }

    /// The append has its place in line when this returns.
    pub(crate) fn append(
        self: &Arc<Self>,
        batches: Vec<AppendBatch>,
    ) -> oneshot::Receiver<Appends> {
        let (reply, answer) = oneshot::channel();
        let mut append = Append { batches, reply };
        let mut queue = self.queue.lock();
        if !queue.moving && self.shard.is_led_here() {
            append = match self.append_here(append) {
                Ok(()) => return answer,
                Err(append) => append,
            };
        }
        queue.waiting.extend(append.parts(FORWARDED_ROWS));
        if !std::mem::replace(&mut queue.moving, true) {
            tasks::spawn(Task::Forwarding, Arc::clone(self).run());
        }
        answer
    }

    /// Gives it back while this node hands leadership over.
    fn append_here(&self, Append { batches, reply }: Append) -> Result<(), Append> {
        let taken = self.shard.append_unless_handing_over(batches, reply);
        taken.map_err(|(batches, reply)| Append { batches, reply })
    }

    /// `None`: this node took all of it. Otherwise the rest, from the first append that was given back on: order is kept.
    fn append_all_here(&self, forwarded: Forwarded) -> Option<Forwarded> {
        let mut appends = forwarded.split().into_iter();
        let refused = appends.by_ref().find_map(|append| self.append_here(append).err())?;
        Some(Forwarded::new(std::iter::once(refused).chain(appends).collect()))
    }

    /// Until nothing is left in line.
    async fn run(self: Arc<Self>) {
        let mut leaderless_since = None;
        while let Some(appends) = self.next() {
            self.bring(Forwarded::new(appends), &mut leaderless_since).await;
        }
    }

    /// What goes together.
    fn next(&self) -> Option<Vec<Append>> {
        let mut queue = self.queue.lock();
        let (mut appends, mut bytes, mut rows) = (Vec::new(), 0, 0);
        while let Some(append) = queue.waiting.front() {
            bytes += append.batches.iter().map(|batch| batch.bytes.len()).sum::<usize>();
            rows += append.batches.iter().map(AppendBatch::rows).sum::<usize>();
            if (bytes > FORWARDED_BYTES || rows > FORWARDED_ROWS) && !appends.is_empty() {
                break;
            }
            appends.extend(queue.waiting.pop_front());
        }
        queue.moving = !appends.is_empty();
        queue.moving.then_some(appends)
    }

    /// The numbers of a request's rows, if the cluster may write them.
    fn number(&self, forwarded: &Forwarded) -> Option<Numbered> {
        if self.node.level().now() < Level::NUMBERED {
            return None;
        }
        let node = u32::try_from(self.node.identity().at.node.0).ok()?;
        let mut queue = self.queue.lock();
        let number = queue.number;
        queue.number += forwarded.rows() as u64;
        Some(Numbered { node, incarnation: self.incarnation, number })
    }

    /// Brings appends to the leader, whichever that is by then. `leaderless_since` is kept from one call to the next: what
    /// stands in line has waited as well.
    async fn bring(&self, mut forwarded: Forwarded, leaderless_since: &mut Option<Instant>) {
        let mut role = self.role.clone();
        let begun = Instant::now();
        let mut from = None;
        loop {
            let was_in_doubt = forwarded.is_in_doubt();
            let leader = match *role.borrow_and_update() {
                Role::Leader { .. } => Leader::Here,
                role => role.other_leader().map_or(Leader::Unknown, Leader::At),
            };
            let asked = match leader {
                Leader::Here if !forwarded.is_in_doubt() => {
                    let Some(rest) = self.append_all_here(forwarded) else {
                        *leaderless_since = None;
                        return;
                    };
                    // The numbers counted from the first row, and no leader has taken any: the rest gets new ones.
                    (forwarded, from) = (rest, None);
                    None
                }
                Leader::Here => Some(self.ask_here(&forwarded, from).await),
                Leader::At(leader) => {
                    from = from.or_else(|| self.number(&forwarded));
                    Some(self.ask(leader, &forwarded, from, &mut role).await)
                }
                Leader::Unknown => None,
            };
            match asked {
                Some(Ok(answers)) if from.is_some() => {
                    forwarded.hear(answers);
                    if forwarded.is_answered() {
                        *leaderless_since = None;
                        return forwarded.answer();
                    }
                }
                Some(Ok(answers)) if !answers.iter().all(is_not_led) => {
                    *leaderless_since = None;
                    forwarded.hear(answers);
                    return forwarded.answer();
                }
                Some(Err(Unavailable::Unanswered)) if from.is_some() => forwarded.doubt(),
                Some(Ok(_) | Err(Unavailable::NotLeader)) | None => {}
                Some(Err(why)) => return forwarded.refuse(&why),
            }
            if forwarded.is_in_doubt() && !was_in_doubt {
                // The leader was lost just now: the next one has all of that time.
                *leaderless_since = None;
            }
            let since = *leaderless_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LEADERLESS_HOLD
                || since.min(begun).elapsed() >= MAJORITY_AWAITED_FOR
                    && !self.shard.majority_is_connected()
            {
                return forwarded.give_up();
            }
            tokio::select! {
                biased;
                changed = role.changed() => if changed.is_err() {
                    return forwarded.refuse(&Unavailable::Stopping);
                },
                () = sleep(ASK_AGAIN_AFTER) => {}
            }
        }
    }

    /// Asks the node that leads. Once another one does, the answer of this one is not waited for.
    async fn ask(
        &self,
        leader: u64,
        forwarded: &Forwarded,
        from: Option<Numbered>,
        role: &mut watch::Receiver<Role>,
    ) -> Result<Appends, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let awaiting = Awaiting::Append { rows: forwarded.rows(), reply };
        let message = wire::ask_append(&forwarded.batches, &forwarded.bytes, from);
        let deadline = Instant::now() + REMOTE_ANSWERED_WITHIN;
        let asking = self.node.ask(NodeId(leader), self.shard.id(), message, deadline);
        let replaced = role.wait_for(|role| match role {
            Role::Leader { .. } => true,
            role => role.other_leader().is_some_and(|other| other != leader),
        });
        let reply = tokio::select! {
            biased;
            reply = asking => reply.map_err(|error| unanswered(&error))?,
            _ = replaced => return Err(Unavailable::Unanswered),
        };
        awaiting.answered(&reply.head);
        answer.await.map_err(|_| Unavailable::Unanswered)
    }

    /// Asks this node, which leads since another one was asked that did not answer.
    async fn ask_here(
        &self,
        forwarded: &Forwarded,
        from: Option<Numbered>,
    ) -> Result<Appends, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let batches = forwarded.copied();
        self.shard.request(Request::Append { batches, from, reply })?;
        answer.await.map_err(|_| Unavailable::Stopping)
    }
}

fn is_not_led<T>(answer: &Result<T, AppendError>) -> bool {
    matches!(answer, Err(AppendError::Unavailable(Unavailable::NotLeader)))
}

/// Whether it says nothing of what became of a row.
fn is_open<T>(answer: &Result<T, AppendError>) -> bool {
    matches!(answer, Err(AppendError::Unavailable(_)))
}

impl Forwarded {
    fn new(appends: Vec<Append>) -> Self {
        let (batches, bytes, waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut forwarded = Self { batches, bytes, waiting, answers: None };
        for Append { batches, reply } in appends {
            let rows = batches.iter().map(AppendBatch::rows).sum();
            forwarded.waiting.push(Waiting { batches: batches.len(), rows, reply });
            for mut batch in batches {
                forwarded.bytes.push(std::mem::take(&mut batch.bytes).freeze());
                forwarded.batches.push(batch);
            }
        }
        forwarded
    }

    fn rows(&self) -> usize {
        self.waiting.iter().map(|it| it.rows).sum()
    }

    /// Whether some of it may be in the log.
    fn is_in_doubt(&self) -> bool {
        self.answers.is_some()
    }

    /// The answer was lost: all rows may be in the log.
    fn doubt(&mut self) {
        let rows = self.rows();
        self.answers.get_or_insert_with(|| vec![Err(Unavailable::Unanswered.into()); rows]);
    }

    /// Merges an answer. A row that was taken, or refused for a reason of its own, stays so.
    fn hear(&mut self, answers: Appends) {
        let Some(heard) = &mut self.answers else {
            self.answers = Some(answers).filter(|answers| !answers.iter().all(is_not_led));
            return;
        };
        for (heard, answer) in heard.iter_mut().zip(answers) {
            // "Does not lead" of this node leaves open what the node asked before has done.
            if is_open(heard) && !is_open(&answer) {
                *heard = answer;
            }
        }
    }

    /// Whether it is known of each row what became of it.
    fn is_answered(&self) -> bool {
        self.answers.as_ref().is_some_and(|answers| !answers.iter().any(is_open))
    }

    /// The batches once more, with bytes of their own.
    fn copied(&self) -> Vec<AppendBatch> {
        let copied = |(batch, bytes): (&AppendBatch, &Bytes)| AppendBatch {
            partition: batch.partition,
            also: batch.also.clone(),
            header: batch.header,
            bytes: BytesMut::from(&bytes[..]),
            expect: batch.expect,
            ids: batch.ids.clone(),
        };
        self.batches.iter().zip(&self.bytes).map(copied).collect()
    }

    /// The appends as they came. Bytes that a message to another node still holds are copied.
    fn split(self) -> Vec<Append> {
        let (mut batches, mut bytes) = (self.batches.into_iter(), self.bytes.into_iter());
        let append = |Waiting { batches: count, reply, .. }| {
            let joined = batches.by_ref().take(count).zip(bytes.by_ref()).map(|(batch, bytes)| {
                let own = |bytes: Bytes| BytesMut::from(&bytes[..]);
                AppendBatch { bytes: bytes.try_into_mut().unwrap_or_else(own), ..batch }
            });
            Append { batches: joined.collect(), reply }
        };
        self.waiting.into_iter().map(append).collect()
    }

    /// Says what was heard of each row.
    fn answer(self) {
        let mut answers = self.answers.into_iter().flatten();
        for Waiting { rows, reply, .. } in self.waiting {
            // Whoever asked may be gone.
            let _ = reply.send(answers.by_ref().take(rows).collect());
        }
    }

    /// Nobody leads for too long.
    fn give_up(self) {
        match self.is_in_doubt() {
            true => self.answer(),
            false => self.refuse(&Unavailable::NotLeader),
        }
    }

    fn refuse(self, why: &Unavailable) {
        for Waiting { rows, reply, .. } in self.waiting {
            let _ = reply.send(vec![Err(why.clone().into()); rows]);
        }
    }
}
