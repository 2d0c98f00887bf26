//! Pushes messages from a shard to other shards: reads them from the shard's journal in order, sends them to those
//! shards' logs, and acknowledges received ones in its own log.
//!
//! All lasting state is in the two logs. The state here is of one term and is rebuilt in the next: then all
//! unacknowledged messages are sent again, and a shard skips those it has. So a message is accepted once, and those
//! of a channel in order.
//!
//! Channels do not wait for one another: each has at most one read of its next message in progress, which may be from
//! disk. Acknowledgements are batched for a moment; an empty channel costs nothing.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    ACKNOWLEDGED_WITHIN, MESSAGE_BYTES_IN_FLIGHT_MAX, MESSAGE_READS_IN_FLIGHT_MAX,
    MESSAGES_IN_FLIGHT_MAX,
};
use base::limits::{OUTBOX_BYTES_MAX, OUTBOX_MESSAGES_MAX};
use base::{Offset, PartitionId, ShardId};
use bytes::BytesMut;
use consensus::Consensus;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use journal::Journal;
use machine::{Command, Origin, SentBatch, SentMessage};
use shard::Shard;
use shard::append::AppendBatch;
use shard::error::{AppendError, ExecuteError, Unavailable};
use shard::journal_batches::batches_in;
use shard::receipts::Receipt;
use shard::request::{Message, ReceiveError, Request};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::peers::Peers;

/// Delay before a message that was not accepted is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The same where the cause will last.
const LATER: Duration = Duration::from_secs(1);

/// Runs until it is cancelled.
pub async fn run(shard: Arc<Shard>, consensus: Consensus, peers: Arc<Peers>) {
    while let Ok(leadership) = consensus.leadership().await {
        tracing::debug!(term = leadership.term(), "pushing begins");
        let pusher = Pusher {
            own: shard.role().shard(),
            shard: Arc::clone(&shard),
            peers: Arc::clone(&peers),
            channels: BTreeMap::new(),
            reads: 0,
            last_read: ShardId::FIRST,
            under_way: FuturesUnordered::new(),
        };
        pusher.run(pin!(leadership.lost())).await;
    }
    shard.outgoing.close();
    // The part that ended reports the reason.
    std::future::pending::<()>().await;
}

struct Pusher {
    own: ShardId,
    shard: Arc<Shard>,
    peers: Arc<Peers>,
    channels: BTreeMap<ShardId, Channel>,
    /// Number of reads in progress.
    reads: usize,
    /// The channel of the last read: where reads are many, the following channels come next.
    last_read: ShardId,
    under_way: FuturesUnordered<BoxFuture<'static, PushCompletion>>,
}

/// A channel with messages.
struct Channel {
    /// The number of the next message to send.
    next: Offset,
    /// The next message is being read.
    reading: bool,
    in_flight: usize,
    bytes_in_flight: u64,
    /// A message in flight was not accepted: none is sent until the others have completed.
    broken: bool,
    not_before: Option<Instant>,
    /// The other shard has all messages below.
    received: Offset,
    /// Number and bytes of received messages that are not acknowledged in the log.
    unacknowledged: (usize, u64),
    acknowledging: bool,
    /// Latest time of the acknowledgement.
    due_at: Option<Instant>,
}

/// A read, a message or an acknowledgement has completed.
enum PushCompletion {
    Read(Read),
    Message { to: ShardId, origin: Origin, bytes: u64, result: Result<Receipt, ReceiveError> },
    Acknowledged { to: ShardId, below: Offset, result: Result<(), ExecuteError> },
}

/// A message that was read, or the error of the read.
struct Read {
    to: ShardId,
    origin: Origin,
    bytes: u64,
    message: Result<Message, String>,
}

/// A message to be sent.
struct Outbound {
    origin: Origin,
    sent: Arc<SentMessage>,
}

impl Pusher {
    async fn run(mut self, mut lost: Pin<&mut impl Future<Output = ()>>) {
        self.deliver_former_receipts();
        loop {
            self.find_messages();
            let (before, after): (Vec<ShardId>, Vec<ShardId>) =
                self.channels.keys().partition(|to| **to <= self.last_read);
            for to in after.into_iter().chain(before) {
                self.push(to);
                self.acknowledge(to);
            }
            self.channels.retain(|_, channel| !channel.is_idle());
            let due = self.channels.values().filter_map(Channel::due_at).min();
            tokio::select! {
                biased;
                () = &mut lost => return,
                Some(ended) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.on_ended(ended);
                    while let Some(Some(ended)) = self.under_way.next().now_or_never() {
                        self.on_ended(ended);
                    }
                }
                () = self.shard.outgoing.sent() => {}
                () = until(due) => {}
            }
        }
    }

    /// Delivers receipts of an earlier term, which may have ended before it reported all acknowledged messages.
    fn deliver_former_receipts(&self) {
        for (to, outbox) in self.shard.rows().channels().outboxes() {
            self.shard.outgoing.received_below(to, outbox.acknowledged());
        }
    }

    /// Finds the channels with messages.
    fn find_messages(&mut self) {
        let rows = self.shard.rows();
        for (to, outbox) in rows.channels().outboxes().filter(|(_, outbox)| !outbox.is_empty()) {
            self.channels.entry(to).or_insert_with(|| Channel::at(outbox.acknowledged()));
        }
    }

    /// Sends as many of a channel's messages as may be in flight. A message that is not in memory is read in the
    /// background.
    fn push(&mut self, to: ShardId) {
        loop {
            let Some(channel) = self.channels.get_mut(&to) else { return };
            if !channel.may_send() || self.reads >= MESSAGE_READS_IN_FLIGHT_MAX {
                return;
            }
            let next = self.shard.rows().channels().outbox(to).and_then(|outbox| {
                let mut messages = outbox.messages_from(channel.next);
                let (number, sent) = messages.next()?;
                let next = messages.next().map_or(outbox.end(), |(number, _)| number);
                let origin = Origin { shard: self.own, number, next };
                Some(Outbound { origin, sent: Arc::clone(sent) })
            });
            let Some(message) = next else { return };
            // Missing messages were acknowledged, in this term or an earlier one.
            channel.skip_to(message.origin.number);
            let bytes = message.sent.bytes();
            if channel.in_flight > 0
                && channel.bytes_in_flight + bytes > MESSAGE_BYTES_IN_FLIGHT_MAX
            {
                return;
            }
            channel.reading = true;
            self.reads += 1;
            let shard = Arc::clone(&self.shard);
            let mut reading = async move {
                let Outbound { origin, sent } = message;
                let batches = read(&shard.journal, to, origin, &sent.batches).await;
                let (batches, commands) = (batches, sent.commands.clone());
                let message = batches.map(|batches| Message { origin, batches, commands });
                Read { to, origin, bytes, message }
            }
            .boxed();
            match (&mut reading).now_or_never() {
                Some(read) => self.on_read(read),
                None => {
                    self.last_read = to;
                    self.under_way.push(reading.map(PushCompletion::Read).boxed());
                    return;
                }
            }
        }
    }

    /// Sends the message, unless it is out of order by now.
    fn on_read(&mut self, read: Read) {
        let Read { to, origin, bytes, message } = read;
        self.reads -= 1;
        let Some(channel) = self.channels.get_mut(&to) else { return };
        channel.reading = false;
        match message {
            // An earlier message was not accepted meanwhile: this one is read again after it.
            Ok(_) if channel.broken || channel.next != origin.number => {}
            Ok(message) => {
                channel.next = origin.next;
                channel.in_flight += 1;
                channel.bytes_in_flight += bytes;
                let delivered = self.deliver(to, message, bytes);
                self.under_way.push(delivered);
            }
            Err(error) => {
                tracing::error!(%to, number = origin.number, %error,
                    "a message to another shard cannot be read; trying again");
                channel.not_before = Some(Instant::now() + LATER);
            }
        }
    }

    fn deliver(
        &self,
        to: ShardId,
        message: Message,
        bytes: u64,
    ) -> BoxFuture<'static, PushCompletion> {
        let (reply, answer) = oneshot::channel();
        let origin = message.origin;
        self.peers.request(to, Request::Receive { message, reply });
        let ended = async move {
            let stopping = AppendError::Unavailable(Unavailable::Stopping);
            let result = answer.await.unwrap_or(Err(ReceiveError::Refused(stopping)));
            PushCompletion::Message { to, origin, bytes, result }
        };
        ended.boxed()
    }

    fn on_ended(&mut self, ended: PushCompletion) {
        match ended {
            PushCompletion::Read(read) => self.on_read(read),
            PushCompletion::Message { to, origin, bytes, result } => {
                let Some(channel) = self.channels.get_mut(&to) else { return };
                channel.in_flight -= 1;
                channel.bytes_in_flight -= bytes;
                match result {
                    Ok(receipt) => {
                        channel.on_received(origin, bytes);
                        self.shard.outgoing.received(to, origin.number, receipt);
                    }
                    Err(why) => {
                        if why.is_final() {
                            self.shard.outgoing.close();
                        }
                        channel.on_refused(to, origin, &why);
                    }
                }
                if channel.broken && channel.in_flight == 0 {
                    (channel.broken, channel.next) = (false, channel.received);
                }
            }
            PushCompletion::Acknowledged { to, below, result } => {
                let Some(channel) = self.channels.get_mut(&to) else { return };
                channel.acknowledging = false;
                if let Err(error) = result {
                    tracing::debug!(%to, below, %error, "messages could not be acknowledged");
                    // Together with the next ones, or again by itself.
                    channel.unacknowledged.0 += 1;
                    channel.due_at = Some(Instant::now() + ACKNOWLEDGED_WITHIN);
                }
            }
        }
    }

    /// Logs the other shard's progress, if that is due.
    fn acknowledge(&mut self, to: ShardId) {
        let Some(channel) = self.channels.get_mut(&to) else { return };
        if !channel.is_acknowledgement_due(Instant::now()) {
            return;
        }
        let below = channel.received;
        channel.unacknowledged = (0, 0);
        channel.due_at = None;
        channel.acknowledging = true;
        let (reply, answer) = oneshot::channel();
        let command = Command::Acknowledged { to, below };
        self.peers.request(self.own, Request::Execute { command, reply });
        let ended = async move {
            let stopping = Err(ExecuteError::Unavailable(Unavailable::Stopping));
            let result = answer.await.unwrap_or(stopping).map(|_| ());
            PushCompletion::Acknowledged { to, below, result }
        };
        self.under_way.push(ended.boxed());
    }
}

impl Channel {
    fn at(next: Offset) -> Self {
        Self {
            next,
            reading: false,
            in_flight: 0,
            bytes_in_flight: 0,
            broken: false,
            not_before: None,
            received: next,
            unacknowledged: (0, 0),
            acknowledging: false,
            due_at: None,
        }
    }

    fn may_send(&mut self) -> bool {
        self.not_before = self.not_before.filter(|at| *at > Instant::now());
        let waits = self.broken || self.reading || self.not_before.is_some();
        !waits && self.in_flight < MESSAGES_IN_FLIGHT_MAX
    }

    /// Skips to the first existing message from the next one to send on. All messages below a gap are acknowledged,
    /// also those in flight.
    fn skip_to(&mut self, number: Offset) {
        if number > self.next {
            (self.next, self.received) = (number, number);
        }
    }

    fn on_received(&mut self, origin: Origin, bytes: u64) {
        self.received = self.received.max(origin.next);
        self.unacknowledged.0 += 1;
        self.unacknowledged.1 += bytes;
        self.due_at.get_or_insert_with(|| Instant::now() + ACKNOWLEDGED_WITHIN);
        self.not_before = None;
    }

    fn on_refused(&mut self, to: ShardId, origin: Origin, why: &ReceiveError) {
        let wait = match why {
            // Earlier messages in flight were rejected, or this one was sent in an earlier term.
            ReceiveError::OutOfOrder { .. } if self.broken => Duration::ZERO,
            ReceiveError::OutOfOrder { expected } => {
                tracing::debug!(%to, number = origin.number, expected,
                    "a message came out of its turn; what was not taken is sent again");
                AGAIN_AFTER
            }
            // The shard has no leader, or is about to adopt a new topic.
            ReceiveError::Refused(
                AppendError::Unavailable(_) | AppendError::UnknownPartition(_),
            ) => AGAIN_AFTER,
            ReceiveError::Refused(error) => {
                tracing::warn!(%to, number = origin.number, %error,
                    "a message to another shard is not taken; trying again");
                LATER
            }
        };
        self.broken = true;
        let again = Instant::now() + wait;
        self.not_before = Some(self.not_before.map_or(again, |known| known.max(again)));
    }

    /// Not while an acknowledgement is in progress: each is one command for all messages received until then.
    fn is_acknowledgement_due(&self, now: Instant) -> bool {
        let (messages, bytes) = self.unacknowledged;
        let much = messages >= OUTBOX_MESSAGES_MAX / 4 || bytes >= OUTBOX_BYTES_MAX / 4;
        let due = self.due_at.is_some_and(|at| at <= now);
        !self.acknowledging && messages > 0 && (much || due)
    }

    /// Returns when the next action is due without an event.
    fn due_at(&self) -> Option<Instant> {
        let due = self.due_at.filter(|_| !self.acknowledging);
        let again = self.not_before.filter(|_| !self.broken);
        [due, again].into_iter().flatten().min()
    }

    /// Whether nothing is in flight. The next look finds messages still in the outbox.
    fn is_idle(&self) -> bool {
        self.in_flight == 0
            && !self.reading
            && self.unacknowledged.0 == 0
            && !self.acknowledging
            && !self.broken
            && self.not_before.is_none()
    }
}

/// Pending for ever without a due time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Reads the message's batches, each for its target partitions. The batch of commands is for none, and is left out.
async fn read(
    journal: &Journal,
    to: ShardId,
    origin: Origin,
    batches: &[SentBatch],
) -> Result<Vec<AppendBatch>, String> {
    let stream = PartitionId::channel_to(to).stream();
    let (mut found, mut offset) = (Vec::with_capacity(batches.len()), origin.number);
    let mut rest = batches.iter();
    while offset < origin.next {
        let bytes_max = rest.as_slice().iter().map(|batch| batch.bytes as usize).sum();
        let read = journal.read(stream, offset, bytes_max).await;
        let read = read.map_err(|error| error.to_string())?;
        let before = offset;
        for batch in batches_in(&read) {
            let (header, bytes) = batch.map_err(|error| error.to_string())?;
            if header.base_offset < offset {
                continue;
            }
            if offset >= origin.next {
                break;
            }
            let Some(sent) = rest.next() else { break };
            offset = header.base_offset + header.last_offset_delta.max(0) as u64 + 1;
            let Some((first, also)) = sent.targets.split_first() else { continue };
            // The bytes get another offset there, and are shared with readers here.
            let bytes = BytesMut::from(&bytes[..]);
            let batch = AppendBatch::new(*first, header, bytes);
            found.push(AppendBatch { also: also.to_vec(), ..batch });
        }
        if offset == before {
            return Err(format!("nothing is stored at {offset}"));
        }
    }
    match rest.len() {
        0 => Ok(found),
        missing => Err(format!("{missing} of {} batches are not stored", batches.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_to_the_next_message_does_not_acknowledge_those_in_flight() {
        let mut channel = Channel::at(5);
        // The message 5 to 7 is in flight.
        (channel.next, channel.in_flight) = (8, 1);
        channel.skip_to(8);
        assert_eq!((channel.received, channel.next), (5, 8));
        // The log has acknowledged all below 11.
        channel.skip_to(11);
        assert_eq!((channel.received, channel.next), (11, 11));
    }
}
