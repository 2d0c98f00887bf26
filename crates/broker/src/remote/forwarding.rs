//! Appends forwarded to the leader of their shard, in the order in which they were made.
//!
//! Requests between nodes may overtake one another ([`shard_peers::remote`]). So at most one request of a shard is in
//! flight to another node. Later appends queue up and form the next request: the longer the latency, the larger the
//! requests. Where this node leads and the queue is empty, an append goes into the log directly. During a transfer of
//! leadership it waits for the next leader instead.
//!
//! The leader remembers the results of the last [`FORWARDED_ROWS`] rows of this node: an append with more rows is
//! sent in parts, one after the other.
//!
//! An append that the other node certainly did not execute, since it does not lead, goes to the next leader. So does
//! one whose reply is lost, from [`Level::NUMBERED`] on: rows are numbered, and accepted rows are not accepted again.
//! Below that level its result is [`Unavailable::Unanswered`].
//!
//! Appends wait [`LEADERLESS_HOLD`] for a leader. Where this node is cut off from a majority they are rejected after
//! [`MAJORITY_AWAITED_FOR`], so that clients turn to another node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::Level;
use bytes::{Bytes, BytesMut};
use cluster::Node;
use consensus::Role;
use links::NodeId;
use machine::RowSequence;
use parking_lot::Mutex;
use shard::LocalShard;
use shard::append::{self, AppendBatch, Appends};
use shard::error::{AppendError, Unavailable};
use shard::limits::{LEADERLESS_HOLD, MAJORITY_AWAITED_FOR};
use shard::request::Request;
use shard_peers::limits::REMOTE_ANSWERED_WITHIN;
use shard_peers::remote::unanswered;
use shard_peers::wire::{self, PendingRemoteRequest};
use tasks::Task;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use world::Instant;

use crate::limits::{FORWARDED_BYTES, FORWARDED_ROWS};

/// Delay before a retry, unless a change of the leader ends it earlier.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Queue of appends to the leader of one shard.
#[derive(Debug)]
pub(crate) struct ForwardQueue {
    shard: Arc<LocalShard>,
    node: Arc<Node>,
    role: watch::Receiver<Role>,
    /// Identifies this queue's row numbers: unique over queues and restarts of the node.
    incarnation: u64,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Append>,
    /// Number of the next row sent to another node.
    number: u64,
    /// Whether a task is emptying the queue. Meanwhile appends are queued, even if this node leads.
    moving: bool,
}

/// One producer's request.
#[derive(Debug)]
struct Append {
    batches: Vec<AppendBatch>,
    reply: oneshot::Sender<Appends>,
}

/// Appends sent to another node in one request. Their bytes are kept apart, so that they can be sent again.
#[derive(Debug)]
struct ForwardedBatches {
    batches: Vec<AppendBatch>,
    bytes: Vec<Bytes>,
    waiting: Vec<ForwardedRequest>,
    /// The result of each row so far. `None` until a reply came or was lost: no leader has accepted any row.
    answers: Option<Appends>,
}

/// A request waiting for the results of the next forwarded batches.
#[derive(Debug)]
struct ForwardedRequest {
    batches: usize,
    rows: usize,
    reply: oneshot::Sender<Appends>,
}

impl Append {
    /// Splits the append into parts of at most this many rows, in order, with one joined reply.
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
        // Without a reply to one part there is none to the request.
        let Ok(part) = part.await else { return };
        answers.extend(part);
    }
    // The client may be gone.
    let _ = reply.send(answers);
}

enum Leader {
    Here,
    At(u64),
    /// This node knows no leader.
    Unknown,
}

impl ForwardQueue {
    /// `None`: the node is alone.
    pub(crate) fn new(shard: &Arc<LocalShard>, node: &Arc<Node>) -> Option<Arc<Self>> {
        let (shard, node, role) = (Arc::clone(shard), Arc::clone(node), shard.role()?);
        let incarnation = node.next_incarnation();
        Some(Arc::new(Self { shard, node, role, incarnation, queue: Mutex::default() }))
    }

    /// Queues an append; its place in the order is fixed on return.
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

    /// Appends on this node; returns the append while leadership is being transferred.
    fn append_here(&self, Append { batches, reply }: Append) -> Result<(), Append> {
        let taken = self.shard.append_unless_handing_over(batches, reply);
        taken.map_err(|(batches, reply)| Append { batches, reply })
    }

    /// Appends everything on this node. Returns the appends from the first unaccepted one on, so that order is kept.
    fn append_all_here(&self, forwarded: ForwardedBatches) -> Option<ForwardedBatches> {
        let mut appends = forwarded.split().into_iter();
        let refused = appends.by_ref().find_map(|append| self.append_here(append).err())?;
        Some(ForwardedBatches::new(std::iter::once(refused).chain(appends).collect()))
    }

    /// Runs until the queue is empty.
    async fn run(self: Arc<Self>) {
        let mut leaderless_since = None;
        while let Some(appends) = self.next() {
            self.deliver(ForwardedBatches::new(appends), &mut leaderless_since).await;
        }
    }

    /// Takes the appends of the next request.
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

    /// Numbers a request's rows, if the cluster's level permits it.
    fn number(&self, forwarded: &ForwardedBatches) -> Option<RowSequence> {
        if self.node.level().now() < Level::NUMBERED {
            return None;
        }
        let node = u32::try_from(self.node.identity().at.node.0).ok()?;
        let mut queue = self.queue.lock();
        let number = queue.number;
        queue.number += forwarded.rows() as u64;
        Some(RowSequence { node, incarnation: self.incarnation, number })
    }

    /// Sends appends to the leader, through changes of the leader. `leaderless_since` persists between calls: the
    /// queued appends have waited as well.
    async fn deliver(
        &self,
        mut forwarded: ForwardedBatches,
        leaderless_since: &mut Option<Instant>,
    ) {
        let mut role = self.role.clone();
        let begun = Instant::now();
        let mut from = None;
        loop {
            let was_in_doubt = forwarded.is_in_doubt();
            let leader = match *role.borrow_and_update() {
                Role::Leader { .. } => Leader::Here,
                role => role.other_leader().map_or(Leader::Unknown, Leader::At),
            };
            let result = match leader {
                Leader::Here if !forwarded.is_in_doubt() => {
                    let Some(rest) = self.append_all_here(forwarded) else {
                        *leaderless_since = None;
                        return;
                    };
                    // The numbers start at the first row, and no leader has accepted any: the rest gets new ones.
                    (forwarded, from) = (rest, None);
                    None
                }
                Leader::Here => Some(self.append_forwarded_here(&forwarded, from).await),
                Leader::At(leader) => {
                    from = from.or_else(|| self.number(&forwarded));
                    Some(self.send_append(leader, &forwarded, from, &mut role).await)
                }
                Leader::Unknown => None,
            };
            match result {
                Some(Ok(answers)) if from.is_some() => {
                    forwarded.merge(answers);
                    if forwarded.is_answered() {
                        *leaderless_since = None;
                        return forwarded.answer();
                    }
                }
                Some(Ok(answers)) if !answers.iter().all(is_not_led) => {
                    *leaderless_since = None;
                    forwarded.merge(answers);
                    return forwarded.answer();
                }
                Some(Err(Unavailable::Unanswered)) if from.is_some() => forwarded.mark_in_doubt(),
                Some(Ok(_) | Err(Unavailable::NotLeader)) | None => {}
                Some(Err(why)) => return forwarded.refuse(&why),
            }
            if forwarded.is_in_doubt() && !was_in_doubt {
                // The leader was lost just now: the next one gets the full time.
                *leaderless_since = None;
            }
            let since = *leaderless_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LEADERLESS_HOLD
                || since.min(begun).elapsed() >= MAJORITY_AWAITED_FOR
                    && !self.shard.majority_is_connected()
            {
                return forwarded.end_without_leader();
            }
            tokio::select! {
                biased;
                changed = role.changed() => if changed.is_err() {
                    return forwarded.refuse(&Unavailable::Stopping);
                },
                () = sleep(RETRY_DELAY) => {}
            }
        }
    }

    /// Sends the append to the leader. Stops waiting for its reply once another node leads.
    async fn send_append(
        &self,
        leader: u64,
        forwarded: &ForwardedBatches,
        from: Option<RowSequence>,
        role: &mut watch::Receiver<Role>,
    ) -> Result<Appends, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let awaiting = PendingRemoteRequest::Append { rows: forwarded.rows(), reply };
        let message = wire::encode_append_request(&forwarded.batches, &forwarded.bytes, from);
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

    /// Appends on this node, which became the leader after another one did not reply.
    async fn append_forwarded_here(
        &self,
        forwarded: &ForwardedBatches,
        from: Option<RowSequence>,
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

/// Whether the result leaves the row's outcome open.
fn is_open<T>(answer: &Result<T, AppendError>) -> bool {
    matches!(answer, Err(AppendError::Unavailable(_)))
}

impl ForwardedBatches {
    fn new(appends: Vec<Append>) -> Self {
        let (batches, bytes, waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut forwarded = Self { batches, bytes, waiting, answers: None };
        for Append { batches, reply } in appends {
            let rows = batches.iter().map(AppendBatch::rows).sum();
            forwarded.waiting.push(ForwardedRequest { batches: batches.len(), rows, reply });
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

    /// Whether some rows may be in the log.
    fn is_in_doubt(&self) -> bool {
        self.answers.is_some()
    }

    /// Marks all rows as possibly in the log: the reply was lost.
    fn mark_in_doubt(&mut self) {
        let rows = self.rows();
        self.answers.get_or_insert_with(|| vec![Err(Unavailable::Unanswered.into()); rows]);
    }

    /// Merges a reply. A row that was accepted, or rejected for a reason of its own, keeps its result.
    fn merge(&mut self, answers: Appends) {
        let Some(known) = &mut self.answers else {
            self.answers = Some(answers).filter(|answers| !answers.iter().all(is_not_led));
            return;
        };
        for (known, answer) in known.iter_mut().zip(answers) {
            // `NotLeader` from this node leaves open whether the previous node appended the row.
            if is_open(known) && !is_open(&answer) {
                *known = answer;
            }
        }
    }

    /// Whether the outcome of each row is known.
    fn is_answered(&self) -> bool {
        self.answers.as_ref().is_some_and(|answers| !answers.iter().any(is_open))
    }

    /// Copies the batches, each with its own bytes.
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

    /// Splits the request into the original appends. Bytes still shared with a message in flight are copied.
    fn split(self) -> Vec<Append> {
        let (mut batches, mut bytes) = (self.batches.into_iter(), self.bytes.into_iter());
        let append = |ForwardedRequest { batches: count, reply, .. }| {
            let joined = batches.by_ref().take(count).zip(bytes.by_ref()).map(|(batch, bytes)| {
                let own = |bytes: Bytes| BytesMut::from(&bytes[..]);
                AppendBatch { bytes: bytes.try_into_mut().unwrap_or_else(own), ..batch }
            });
            Append { batches: joined.collect(), reply }
        };
        self.waiting.into_iter().map(append).collect()
    }

    /// Sends the results of the rows to their clients.
    fn answer(self) {
        let mut answers = self.answers.into_iter().flatten();
        for ForwardedRequest { rows, reply, .. } in self.waiting {
            // The client may be gone.
            let _ = reply.send(answers.by_ref().take(rows).collect());
        }
    }

    /// Ends the appends after too long without a leader.
    fn end_without_leader(self) {
        match self.is_in_doubt() {
            true => self.answer(),
            false => self.refuse(&Unavailable::NotLeader),
        }
    }

    fn refuse(self, why: &Unavailable) {
        for ForwardedRequest { rows, reply, .. } in self.waiting {
            let _ = reply.send(vec![Err(why.clone().into()); rows]);
        }
    }
}
