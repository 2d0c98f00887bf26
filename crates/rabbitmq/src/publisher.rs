//! Batches messages: all messages of one read of the socket become one append, in which a message for many queues is
//! stored once.
//!
//! Neighbouring messages for the same queues share a batch, and its queues share its bytes: the broker writes the
//! batch once, with a row for each queue. A batch takes more messages only while it is the last one of each of its
//! queues, so that every queue keeps the order of its messages.

use std::ops::Range;
use std::sync::Arc;

use base::headers::{DELIVER_AT, EXPIRES_AT, PRIORITY};
use base::limits::{BATCH_BYTES_DEFAULT, ENTRY_ROW_BYTES};
use base::{HashMap, PartitionId};
use broker::config::{CompressionType, TimestampType, TopicConfig};
use broker::{AppendBatch, Broker, RecordIds, batch_options, refuses_when_full};
use message::write_record_headers;
use record::{BatchBuilder, EncodedHeaders};
use topology::{Queue, RoutedQueue};

use crate::body::Body;
use crate::errors::{Exception, NamedEntity};
use crate::publishing::malformed_headers;
use message::Properties;

/// Builds batches of messages. A channel's transaction has a publisher of its own.
#[derive(Debug, Default)]
pub struct Publisher {
    batches: Vec<PublishBatch>,
    /// The last batch of each partition, if it may take more.
    open: HashMap<PartitionId, usize>,
    /// Targets of the last message with several targets.
    fan: Fan,
    pub confirms: Confirms,
    /// Bytes of bodies, and of the rows of batches.
    bytes: usize,
    headers: EncodedHeaders,
    /// The headers of a delayed message.
    headers_deferred: EncodedHeaders,
    pub targets: Vec<RoutedQueue>,
    /// Number of the current message among those that its session keeps.
    pub kept: Option<u32>,
    /// Targets of the current message.
    rows: Vec<Row>,
    /// Round-robin counter for records without a key in topics of several partitions.
    turn: u32,
    /// Its messages are committed together or not at all.
    pub is_transaction: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    partition: PartitionId,
    /// The message is delayed.
    deferred: bool,
}

/// The batches of one message's targets, all of which may take more.
#[derive(Debug, Default)]
struct Fan {
    rows: Vec<Row>,
    batches: Vec<usize>,
    /// Number of batches when this was last verified.
    checked_at: usize,
}

/// A batch being built, for one partition or several.
#[derive(Debug)]
struct PublishBatch {
    partitions: Vec<PartitionId>,
    deferred: bool,
    shape: BatchFormat,
    /// The least `max.message.bytes` of its topics. Messages are added up to [`BATCH_BYTES_DEFAULT`] at most, because
    /// a consumer reads whole batches.
    bytes_max: u32,
    /// Whether one of its topics has `dedup.window.ms`.
    has_window: bool,
    builder: BatchBuilder,
}

/// The settings of a topic that affect the bytes of a batch: topics of one shape share them. There are few shapes, so
/// a message is copied only a few times, however many queues it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BatchFormat {
    compression: CompressionType,
    log_append_time: bool,
    /// The queue rejects when full. A batch is rejected whole, and messages are rejected one by one.
    refuses: bool,
}

/// Pending publisher confirms, and the batches that they depend on.
#[derive(Debug, Default)]
pub struct Confirms {
    /// Channel and number of each message, once for each of its batches; sorted by batch.
    pub parts: Vec<MessagePart>,
    /// Kept messages, once for each of their batches.
    pub kept: Vec<RetainedPart>,
    /// Channel and number of each message that was rejected before it was in a batch.
    pub rejected: Vec<(u16, u64)>,
    /// The last number of each channel.
    pub channels: Vec<ConfirmedUpTo>,
    /// End of the replies to each batch, which has one for each of its partitions.
    ends: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct MessagePart {
    pub batch: u32,
    pub channel: u16,
    pub number: u64,
}

/// A batch of a kept message.
#[derive(Clone, Copy, Debug)]
pub struct RetainedPart {
    pub batch: u32,
    /// [`Publisher::kept`] at that time.
    pub message: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct ConfirmedUpTo {
    pub channel: u16,
    pub generation: u32,
    pub last: u64,
}

impl Confirms {
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Range of a batch's replies.
    pub fn rows_of(&self, batch: u32) -> Range<usize> {
        let batch = batch as usize;
        let end = |batch: usize| self.ends.get(batch).map_or(0, |end| *end as usize);
        let start = batch.checked_sub(1).map_or(0, end);
        start..end(batch).max(start)
    }

    fn note_part(&mut self, batch: usize, confirm: Option<(u16, u64)>, kept: Option<u32>) {
        if let Some(message) = kept {
            self.kept.push(RetainedPart { batch: batch as u32, message });
        }
        if let Some((channel, number)) = confirm {
            self.parts.push(MessagePart { batch: batch as u32, channel, number });
        }
    }

    pub fn note(&mut self, channel: u16, generation: u32, number: u64) {
        let known = self.channels.iter_mut().rev().find(|known| known.channel == channel);
        match known.filter(|known| known.generation == generation) {
            Some(known) => known.last = number,
            None => self.channels.push(ConfirmedUpTo { channel, generation, last: number }),
        }
    }
}

/// A message ready to be added, with its routing data and times.
#[derive(Clone, Copy, Debug)]
pub struct Parcel<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    pub properties: &'a Properties<'a>,
    pub body: &'a Body,
    pub delay_ms: Option<i64>,
    pub expires_ms: Option<i64>,
    pub now_ms: i64,
}

/// A message being added to batches.
#[derive(Clone, Copy)]
struct OutgoingMessage<'a> {
    parcel: &'a Parcel<'a>,
    key: Option<&'a [u8]>,
    /// Its channel and number, if its publisher waits for a confirm.
    confirm: Option<(u16, u64)>,
}

impl OutgoingMessage<'_> {
    fn write(&self, builder: &mut BatchBuilder, headers: &EncodedHeaders) -> Result<(), Exception> {
        let Parcel { now_ms, body, .. } = *self.parcel;
        builder
            .push_sliced(now_ms, self.key, body.slices(), headers)
            .map_err(|error| Exception::precondition_failed(format!("invalid message: {error}")))
    }
}

impl Publisher {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.confirms.is_empty()
    }

    /// Approximate memory: each body once for each of its batches, and each batch's rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the finished batches and their confirms.
    pub fn take(&mut self) -> (Vec<AppendBatch>, Confirms) {
        self.open.clear();
        self.fan = Fan::default();
        self.bytes = 0;
        let mut end = 0;
        for building in &self.batches {
            end += building.partitions.len() as u32;
            self.confirms.ends.push(end);
        }
        let batches = self.batches.drain(..).map(PublishBatch::finish).collect();
        (batches, std::mem::take(&mut self.confirms))
    }

    /// Adds a message to the batches of all its queues.
    pub fn add(
        &mut self,
        broker: &Broker,
        parcel: &Parcel<'_>,
        confirm: Option<(u16, u64)>,
    ) -> Result<(), Exception> {
        let key = self.write_headers(parcel)?;
        let targets = std::mem::take(&mut self.targets);
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        for RoutedQueue { queue, deferred } in &targets {
            let partition = queue.partition(self.partition_of(queue, key));
            rows.push(Row { partition, deferred: *deferred });
        }
        let message = OutgoingMessage { parcel, key, confirm };
        let added = match &rows[..] {
            [] => Ok(()),
            [row] => self.add_to_one(broker, &message, *row, &targets),
            rows => self.add_to_many(broker, &message, rows, &targets),
        };
        (self.targets, self.rows) = (targets, rows);
        added
    }

    fn write_headers<'a>(&mut self, parcel: &Parcel<'a>) -> Result<Option<&'a [u8]>, Exception> {
        let Parcel { exchange, routing_key, properties, now_ms, .. } = *parcel;
        let write = |out: &mut EncodedHeaders, deliver_at: Option<i64>| {
            out.clear();
            let deferred = deliver_at.is_some();
            let key = write_record_headers(exchange, routing_key, properties, deferred, out)?;
            if let Some(priority) = properties.priority.filter(|priority| *priority > 0) {
                out.push(PRIORITY.as_bytes(), Some(priority.to_string().as_bytes()));
            }
            if let Some(at) = deliver_at {
                out.push(DELIVER_AT.as_bytes(), Some(at.to_string().as_bytes()));
            }
            if let Some(expires_ms) = parcel.expires_ms {
                let at = deliver_at.unwrap_or(now_ms).saturating_add(expires_ms);
                out.push(EXPIRES_AT.as_bytes(), Some(at.to_string().as_bytes()));
            }
            Ok(key)
        };
        let mut key = None;
        if self.targets.iter().any(|target| !target.deferred) {
            key = write(&mut self.headers, None).map_err(malformed_headers)?;
        }
        if self.targets.iter().any(|target| target.deferred) {
            // Part of the current millisecond has passed: without the extra one the delay would be too short.
            let at = parcel.delay_ms.map(|delay| now_ms.saturating_add(delay).saturating_add(1));
            key = write(&mut self.headers_deferred, at).map_err(malformed_headers)?;
        }
        Ok(key)
    }

    fn add_to_one(
        &mut self,
        broker: &Broker,
        message: &OutgoingMessage<'_>,
        row: Row,
        targets: &[RoutedQueue],
    ) -> Result<(), Exception> {
        let open = self.open.get(&row.partition).copied().filter(|&at| {
            let building = &self.batches[at];
            let alike = building.partitions.len() == 1 && building.deferred == row.deferred;
            alike && self.fits(at, message)
        });
        match open {
            Some(at) => self.push(at, message),
            None => self.open_for(broker, message, &[row], targets).map(|_| ()),
        }
    }

    fn add_to_many(
        &mut self,
        broker: &Broker,
        message: &OutgoingMessage<'_>,
        rows: &[Row],
        targets: &[RoutedQueue],
    ) -> Result<(), Exception> {
        if self.is_fan_open(rows) && self.fan.batches.iter().all(|&at| self.fits(at, message)) {
            for place in 0..self.fan.batches.len() {
                self.push(self.fan.batches[place], message)?;
            }
            return Ok(());
        }
        let batches = self.open_for(broker, message, rows, targets)?;
        self.fan = Fan { rows: rows.to_vec(), batches, checked_at: self.batches.len() };
        Ok(())
    }

    /// Returns whether the last message with several targets had these rows, and none of them got another message
    /// since.
    fn is_fan_open(&mut self, rows: &[Row]) -> bool {
        if self.fan.batches.is_empty() || self.fan.rows != rows {
            return false;
        }
        let fan = &self.fan;
        let last =
            |row: &Row| self.open.get(&row.partition).is_some_and(|at| fan.batches.contains(at));
        let is_open = fan.checked_at == self.batches.len() || rows.iter().all(last);
        if is_open {
            self.fan.checked_at = self.batches.len();
        }
        is_open
    }

    fn fits(&self, at: usize, message: &OutgoingMessage<'_>) -> bool {
        let building = &self.batches[at];
        self.bytes_with(building, message) <= building.bytes_max.min(BATCH_BYTES_DEFAULT) as usize
    }

    fn bytes_with(&self, building: &PublishBatch, message: &OutgoingMessage<'_>) -> usize {
        let OutgoingMessage { parcel, key, .. } = *message;
        let headers = if building.deferred { &self.headers_deferred } else { &self.headers };
        building.builder.len_with_encoded(key, parcel.body.bytes(), headers)
    }

    /// Adds the message to a batch.
    fn push(&mut self, at: usize, message: &OutgoingMessage<'_>) -> Result<(), Exception> {
        let PublishBatch { deferred, builder, .. } = &mut self.batches[at];
        let headers = if *deferred { &self.headers_deferred } else { &self.headers };
        message.write(builder, headers)?;
        self.confirms.note_part(at, message.confirm, self.kept);
        self.bytes += message.parcel.body.bytes();
        Ok(())
    }

    /// Opens batches for the message, one for all rows whose topics share its bytes. Returns their indexes, or none
    /// if one of the topics rejects messages one by one.
    fn open_for(
        &mut self,
        broker: &Broker,
        message: &OutgoingMessage<'_>,
        rows: &[Row],
        targets: &[RoutedQueue],
    ) -> Result<Vec<usize>, Exception> {
        let mut begun: Vec<PublishBatch> = Vec::new();
        let configs: Vec<Option<Arc<TopicConfig>>> = {
            let catalog = broker.catalog();
            let config = |row: &Row| Some(Arc::clone(catalog.topic(row.partition.topic)?.config()));
            rows.iter().map(config).collect()
        };
        for ((row, config), target) in rows.iter().zip(configs).zip(targets) {
            // The queue was deleted after routing, and the message with it.
            let config = config.unwrap_or_default();
            if config.cleanup_policy.compact && message.key.is_none() {
                let text = format!(
                    "{} is compacted: a message needs the header 'postroad.key'",
                    target.queue.resource()
                );
                return Err(Exception::precondition_failed(text));
            }
            let shape = BatchFormat::of(&config);
            let same = |it: &&mut PublishBatch| (it.deferred, it.shape) == (row.deferred, shape);
            match begun.iter_mut().find(same) {
                Some(building) => building.add_partition(row.partition, &config),
                None => begun.push(PublishBatch::new(*row, &config)),
            }
        }
        for building in &mut begun {
            let (bytes_max, body_bytes) = (building.bytes_max, message.parcel.body.bytes());
            if self.bytes_with(building, message) > bytes_max as usize {
                let text = format!(
                    "message size {body_bytes} is larger than configured max size {bytes_max}"
                );
                return Err(Exception::precondition_failed(text));
            }
            let headers = if building.deferred { &self.headers_deferred } else { &self.headers };
            message.write(&mut building.builder, headers)?;
        }
        let first = self.batches.len();
        let places = first..first + begun.len();
        let mut stay_open = true;
        for (at, building) in places.clone().zip(begun) {
            let stays = self.is_transaction || !building.shape.refuses;
            stay_open &= stays;
            for partition in &building.partitions {
                match stays {
                    true => self.open.insert(*partition, at),
                    false => self.open.remove(partition),
                };
            }
            let rows = building.partitions.len();
            self.bytes += message.parcel.body.bytes() + rows * ENTRY_ROW_BYTES;
            self.batches.push(building);
            self.confirms.note_part(at, message.confirm, self.kept);
        }
        Ok(if stay_open { places.collect() } else { Vec::new() })
    }

    /// Selects the partition as Kafka's producers do: by the key, or round-robin.
    fn partition_of(&mut self, queue: &Queue, key: Option<&[u8]>) -> u32 {
        match (queue.partition_count(), key) {
            (0 | 1, _) => 0,
            (partitions, Some(key)) => record::partition_of_key(key, partitions),
            (partitions, None) => {
                self.turn = self.turn.wrapping_add(1);
                self.turn % partitions
            }
        }
    }
}

impl BatchFormat {
    fn of(config: &TopicConfig) -> Self {
        Self {
            compression: config.compression_type,
            log_append_time: config.timestamp_type == TimestampType::LogAppendTime,
            refuses: refuses_when_full(config),
        }
    }
}

impl PublishBatch {
    fn new(row: Row, config: &TopicConfig) -> Self {
        let shape = BatchFormat::of(config);
        let builder = BatchBuilder::new(batch_options(config));
        let (partitions, deferred) = (vec![row.partition], row.deferred);
        let (bytes_max, has_window) = (config.max_message_bytes, config.dedup_window_ms > 0);
        Self { partitions, deferred, shape, bytes_max, has_window, builder }
    }

    fn add_partition(&mut self, partition: PartitionId, config: &TopicConfig) {
        self.partitions.push(partition);
        self.bytes_max = self.bytes_max.min(config.max_message_bytes);
        self.has_window |= config.dedup_window_ms > 0;
    }

    fn finish(self) -> AppendBatch {
        let mut partitions = self.partitions.into_iter();
        let first = partitions.next().expect("a batch is made for a partition");
        let batch = AppendBatch::made(first, self.builder, self.shape.log_append_time);
        // Read here, so that the shard's leader does not have to.
        let ids = self.has_window.then(|| RecordIds::read(&batch.bytes));
        AppendBatch { also: partitions.collect(), ids, ..batch }
    }
}
