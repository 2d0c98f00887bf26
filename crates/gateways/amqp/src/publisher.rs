//! From messages to batches: what one read of the socket brought becomes one append, in which a
//! message that is routed to many queues stands once.
//!
//! Neighbouring messages that go to the same queues share a batch, and its queues share its bytes: the
//! broker writes the batch once, with a row for each of them. A batch takes more messages only while
//! it is the last one of each of its queues, so that every queue has its messages in their order.

use std::ops::Range;
use std::sync::Arc;

use base::PartitionId;
use base::headers::{DELIVER_AT, EXPIRES_AT, PRIORITY};
use base::limits::BATCH_BYTES_DEFAULT;
use broker::{AppendBatch, Broker};
use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use machine::TopicConfig;
use machine::config::{CompressionType, LimitOverflow, TimestampType};
use record::{BatchBuilder, BatchHeader, BatchOptions, Compression, EncodedHeaders};

use crate::catalog::{Queue, Routed};
use crate::codec::properties::Properties;
use crate::errors::Exception;
use crate::properties::write_record_headers;
use crate::publish::{Body, malformed_headers};

/// What a row of a batch costs in memory while it is under way, about.
pub(crate) const ROW_BYTES: usize = 128;

/// Messages on their way into batches. A channel's transaction has one of its own.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    batches: Vec<Building>,
    /// The last batch of each partition, if it may take more.
    open: HashMap<PartitionId, usize>,
    /// Where the last message with several targets went.
    fan: Fan,
    pub(crate) confirms: Confirms,
    /// Of bodies, and of the rows of batches.
    bytes: usize,
    headers: EncodedHeaders,
    /// The same of a message that is held back.
    headers_deferred: EncodedHeaders,
    pub(crate) targets: Vec<Routed>,
    /// Where the message at hand goes.
    rows: Vec<Row>,
    /// For records without a key, where a topic has several partitions.
    turn: u32,
    /// Its messages are taken together or not at all.
    pub(crate) is_transaction: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    partition: PartitionId,
    /// It is held back until its time has come.
    deferred: bool,
}

/// The batches that the targets of one message are in, all of which may take more.
#[derive(Debug, Default)]
struct Fan {
    rows: Vec<Row>,
    batches: Vec<usize>,
    /// How many batches there were when it was known to be right.
    checked_at: usize,
}

/// A batch in the making, for one partition or several.
#[derive(Debug)]
struct Building {
    partitions: Vec<PartitionId>,
    deferred: bool,
    shape: Shape,
    builder: BatchBuilder,
}

/// What of a topic's policy decides about the bytes of a batch: topics of one shape share them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    compression: CompressionType,
    log_append_time: bool,
    bytes_max: u32,
    /// A full queue refuses. A batch is refused whole, and messages are refused one by one.
    refuses: bool,
}

/// Who is to be told what became of the batches.
#[derive(Debug, Default)]
pub(crate) struct Confirms {
    /// Each message's channel and number, once for each batch that it is in; by batch.
    pub(crate) parts: Vec<Part>,
    /// The last number of each channel.
    pub(crate) channels: Vec<Confirmed>,
    /// Where the answers to each batch end: one for each of its partitions.
    ends: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) batch: u32,
    pub(crate) channel: u16,
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    pub(crate) channel: u16,
    pub(crate) generation: u32,
    pub(crate) last: u64,
}

impl Confirms {
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Which of the answers are a batch's.
    pub(crate) fn rows_of(&self, batch: u32) -> Range<usize> {
        let batch = batch as usize;
        let end = |batch: usize| self.ends.get(batch).map_or(0, |end| *end as usize);
        let start = batch.checked_sub(1).map_or(0, end);
        start..end(batch).max(start)
    }

    fn note_part(&mut self, batch: usize, confirm: Option<(u16, u64)>) {
        if let Some((channel, number)) = confirm {
            self.parts.push(Part { batch: batch as u32, channel, number });
        }
    }

    pub(crate) fn note(&mut self, channel: u16, generation: u32, number: u64) {
        let known = self.channels.iter_mut().rev().find(|known| known.channel == channel);
        match known.filter(|known| known.generation == generation) {
            Some(known) => known.last = number,
            None => self.channels.push(Confirmed { channel, generation, last: number }),
        }
    }
}

/// A message that is ready to go: what is known of it besides its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    pub(crate) properties: &'a Properties<'a>,
    pub(crate) body: &'a Body,
    pub(crate) delay_ms: Option<i64>,
    pub(crate) expires_ms: Option<i64>,
    pub(crate) now_ms: i64,
}

impl Publisher {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.confirms.is_empty()
    }

    /// What it holds, about: each body once, and something for each queue that it goes to.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The batches, ready to be appended, and who waits for them.
    pub(crate) fn take(&mut self) -> (Vec<AppendBatch>, Confirms) {
        self.open.clear();
        self.fan = Fan::default();
        self.bytes = 0;
        let mut end = 0;
        for building in &self.batches {
            end += building.partitions.len() as u32;
            self.confirms.ends.push(end);
        }
        let batches = self.batches.drain(..).map(Building::finish).collect();
        (batches, std::mem::take(&mut self.confirms))
    }

    /// Adds a message to the batches of all its queues.
    pub(crate) fn add(
        &mut self,
        broker: &Broker,
        parcel: &Parcel<'_>,
        confirm: Option<(u16, u64)>,
    ) -> Result<(), Exception> {
        let key = self.write_headers(parcel)?;
        let targets = std::mem::take(&mut self.targets);
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        for Routed { queue, deferred } in &targets {
            let partition = queue.partition(self.partition_of(queue, key));
            rows.push(Row { partition, deferred: *deferred });
        }
        let added = match &rows[..] {
            [] => Ok(()),
            [row] => self.add_to_one(broker, parcel, *row, key, &targets, confirm),
            rows => self.add_to_many(broker, parcel, rows, key, &targets, confirm),
        };
        (self.targets, self.rows) = (targets, rows);
        added?;
        self.bytes += parcel.body.bytes();
        Ok(())
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
            let at = parcel.delay_ms.map(|delay| now_ms.saturating_add(delay));
            key = write(&mut self.headers_deferred, at).map_err(malformed_headers)?;
        }
        Ok(key)
    }

    fn add_to_one(
        &mut self,
        broker: &Broker,
        parcel: &Parcel<'_>,
        row: Row,
        key: Option<&[u8]>,
        targets: &[Routed],
        confirm: Option<(u16, u64)>,
    ) -> Result<(), Exception> {
        let open = self.open.get(&row.partition).copied();
        let open = open.filter(|&at| {
            let building = &self.batches[at];
            building.partitions.len() == 1 && self.fits(at, parcel, key)
        });
        match open {
            Some(at) => self.push(at, parcel, key, row.deferred, confirm),
            None => self.open_for(broker, parcel, &[row], key, targets, confirm).map(|_| ()),
        }
    }

    fn add_to_many(
        &mut self,
        broker: &Broker,
        parcel: &Parcel<'_>,
        rows: &[Row],
        key: Option<&[u8]>,
        targets: &[Routed],
        confirm: Option<(u16, u64)>,
    ) -> Result<(), Exception> {
        if self.is_fan_open(rows) && self.fan.batches.iter().all(|&at| self.fits(at, parcel, key)) {
            for place in 0..self.fan.batches.len() {
                let at = self.fan.batches[place];
                self.push(at, parcel, key, self.batches[at].deferred, confirm)?;
            }
            return Ok(());
        }
        let batches = self.open_for(broker, parcel, rows, key, targets, confirm)?;
        self.fan = Fan { rows: rows.to_vec(), batches, checked_at: self.batches.len() };
        Ok(())
    }

    /// Whether the last message with several targets had these, and nothing else went to any of them
    /// since.
    fn is_fan_open(&mut self, rows: &[Row]) -> bool {
        if self.fan.batches.is_empty() || self.fan.rows != rows {
            return false;
        }
        let fan = &self.fan;
        let last =
            |row: &Row| self.open.get(&row.partition).is_some_and(|at| fan.batches.contains(at));
        let is_open = fan.checked_at == self.batches.len() || rows.iter().all(last);
        self.fan.checked_at = self.batches.len();
        is_open
    }

    fn fits(&self, at: usize, parcel: &Parcel<'_>, key: Option<&[u8]>) -> bool {
        let building = &self.batches[at];
        let bytes = self.bytes_with(building, parcel, key);
        bytes <= building.bytes_max()
    }

    fn bytes_with(&self, building: &Building, parcel: &Parcel<'_>, key: Option<&[u8]>) -> usize {
        let headers = if building.deferred { &self.headers_deferred } else { &self.headers };
        building.builder.len_with_encoded(key, parcel.body.bytes(), headers)
    }

    fn push(
        &mut self,
        at: usize,
        parcel: &Parcel<'_>,
        key: Option<&[u8]>,
        deferred: bool,
        confirm: Option<(u16, u64)>,
    ) -> Result<(), Exception> {
        let headers = if deferred { &self.headers_deferred } else { &self.headers };
        let builder = &mut self.batches[at].builder;
        builder
            .push_sliced(parcel.now_ms, key, parcel.body.slices(), headers)
            .map_err(|error| too_large(&error))?;
        self.confirms.note_part(at, confirm);
        Ok(())
    }

    /// Begins batches for the message, one for all rows of a kind; which those are. None are left open
    /// where messages are refused one by one.
    fn open_for(
        &mut self,
        broker: &Broker,
        parcel: &Parcel<'_>,
        rows: &[Row],
        key: Option<&[u8]>,
        targets: &[Routed],
        confirm: Option<(u16, u64)>,
    ) -> Result<Vec<usize>, Exception> {
        let mut kinds: Vec<Building> = Vec::new();
        let configs: Vec<Option<Arc<TopicConfig>>> = broker.read(|state| {
            let config = |row: &Row| Some(Arc::clone(&state.topic(row.partition.topic)?.config));
            rows.iter().map(config).collect()
        });
        for ((row, config), target) in rows.iter().zip(configs).zip(targets) {
            // The queue went between its being found and now, and the message with it.
            let config = config.unwrap_or_default();
            if config.cleanup_policy.compact && key.is_none() {
                let text = format!(
                    "{} is compacted: a message needs the header 'postroad.key'",
                    target.queue.resource()
                );
                return Err(Exception::precondition_failed(text));
            }
            let shape = Shape::of(&config);
            let kind =
                |known: &&mut Building| (known.deferred, known.shape) == (row.deferred, shape);
            match kinds.iter_mut().find(kind) {
                Some(known) => known.partitions.push(row.partition),
                None => kinds.push(Building::new(row.partition, row.deferred, shape)),
            }
        }
        for building in &kinds {
            let (bytes_max, body_bytes) = (building.shape.bytes_max as usize, parcel.body.bytes());
            if self.bytes_with(building, parcel, key) > bytes_max {
                let text = format!(
                    "message size {body_bytes} is larger than configured max size {bytes_max}"
                );
                return Err(Exception::precondition_failed(text));
            }
        }
        let mut stay_open = Vec::with_capacity(kinds.len());
        let mut all_stay_open = true;
        for mut building in kinds {
            let at = self.batches.len();
            let headers = if building.deferred { &self.headers_deferred } else { &self.headers };
            building
                .builder
                .push_sliced(parcel.now_ms, key, parcel.body.slices(), headers)
                .map_err(|error| too_large(&error))?;
            let stays = self.is_transaction || !building.shape.refuses;
            for partition in &building.partitions {
                match stays {
                    true => self.open.insert(*partition, at),
                    false => self.open.remove(partition),
                };
            }
            self.bytes += building.partitions.len() * ROW_BYTES;
            self.batches.push(building);
            self.confirms.note_part(at, confirm);
            stay_open.push(at);
            all_stay_open &= stays;
        }
        if !all_stay_open {
            stay_open.clear();
        }
        Ok(stay_open)
    }

    /// As Kafka's producers choose: by the key, or in turn.
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

impl Shape {
    fn of(config: &TopicConfig) -> Self {
        Self {
            compression: config.compression_type,
            log_append_time: config.timestamp_type == TimestampType::LogAppendTime,
            bytes_max: config.max_message_bytes,
            refuses: refuses(config),
        }
    }
}

impl Building {
    fn new(partition: PartitionId, deferred: bool, shape: Shape) -> Self {
        let compression = match shape.compression {
            CompressionType::Producer | CompressionType::Uncompressed => Compression::None,
            CompressionType::Gzip => Compression::Gzip,
            CompressionType::Snappy => Compression::Snappy,
            CompressionType::Lz4 => Compression::Lz4,
            CompressionType::Zstd => Compression::Zstd,
        };
        let builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
        Self { partitions: vec![partition], deferred, shape, builder }
    }

    /// A batch is not filled further than this, whatever the topic takes: a consumer reads whole
    /// batches.
    fn bytes_max(&self) -> usize {
        self.shape.bytes_max.min(BATCH_BYTES_DEFAULT) as usize
    }

    fn finish(self) -> AppendBatch {
        let mut bytes = BytesMut::from(Bytes::from(self.builder.finish()));
        let mut header =
            BatchHeader::parse(&bytes).expect("the header of a batch that was just made");
        if self.shape.log_append_time {
            record::set_log_append_time(&mut bytes, header.max_timestamp);
            header = BatchHeader::parse(&bytes).expect("only its time was set");
        }
        let mut partitions = self.partitions.into_iter();
        let first = partitions.next().expect("a batch is made for a partition");
        AppendBatch { also: partitions.collect(), ..AppendBatch::new(first, header, bytes) }
    }
}

/// Whether a full queue of this topic refuses messages.
fn refuses(config: &TopicConfig) -> bool {
    let limited = config.limit_records.is_some() || config.limit_bytes.is_some();
    limited && config.limit_overflow != LimitOverflow::DropOldest
}

fn too_large(error: &record::BatchError) -> Exception {
    Exception::precondition_failed(format!("invalid message: {error}"))
}
