//! Turns lines into batches.

use std::io;
use std::sync::mpsc as blocking;
use std::time::Duration;

use base::HashMap;
use bytes::Bytes;
use client::producer::{Identity, ReadyBatch};
use operations::time::now_ms;
use record::{BatchBuilder, BatchOptions, Compression, Header, partition_of_key};
use tokio::sync::mpsc;
use world::Instant;

use super::input::{InputError, LINE_BYTES_MAX};
use super::{InputFormat, ProduceArguments};
use crate::records::record_line::{LineFormat, ParsedRecord};

/// Half of a topic's default limit, so that a batch with a record close to the limit fits.
const BATCH_BYTES: usize = 512 << 10;
/// How long a record waits for others to share its batch.
const LINGER: Duration = Duration::from_millis(5);

/// Turns lines into batches.
pub(super) struct Batcher {
    format: LineFormat,
    key: Option<Vec<u8>>,
    headers: Vec<(String, String)>,
    partition: Option<i32>,
    keep_partitions: bool,
    compression: Compression,
    partitions: i32,
    identity: Identity,
    batches: mpsc::Sender<ReadyBatch>,
    open: HashMap<i32, OpenBatch>,
    /// Sequence number of the next record of each partition.
    sequences: HashMap<i32, i32>,
    /// Partition of records without a key, until its batch is closed.
    sticky: i32,
    line: u64,
    now_ms: i64,
}

struct OpenBatch {
    builder: BatchBuilder,
    since: Instant,
}

/// Reason why parsing ends before the input does.
enum ParseEnd {
    Input(InputError),
    /// The sender has ended, and reports the reason.
    SenderEnded,
}

impl From<InputError> for ParseEnd {
    fn from(error: InputError) -> Self {
        ParseEnd::Input(error)
    }
}

impl Batcher {
    pub(super) fn new(
        arguments: ProduceArguments,
        partitions: i32,
        identity: Identity,
        batches: mpsc::Sender<ReadyBatch>,
    ) -> Self {
        let format = match arguments.format {
            InputFormat::Lines => {
                LineFormat::Plain { key_separator: arguments.key_separator, headers: false }
            }
            InputFormat::Json => LineFormat::Json,
        };
        Self {
            format,
            key: arguments.key.map(String::into_bytes),
            headers: arguments.header,
            partition: arguments.partition,
            keep_partitions: arguments.keep_partitions,
            compression: arguments.compression,
            partitions,
            identity,
            batches,
            open: HashMap::default(),
            sequences: HashMap::default(),
            // Not always the first: many short pipes should not all use one partition.
            sticky: (now_ms() % i64::from(partitions.max(1))) as i32,
            line: 0,
            now_ms: now_ms(),
        }
    }

    /// Sends everything before a wrong line, and then reports that line.
    pub(super) fn run(
        mut self,
        blocks: &blocking::Receiver<io::Result<Vec<u8>>>,
    ) -> Result<(), InputError> {
        let outcome = match self.take_all(blocks) {
            Err(ParseEnd::SenderEnded) => return Ok(()),
            Err(ParseEnd::Input(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        match self.close_all() {
            Ok(()) | Err(ParseEnd::SenderEnded) => outcome,
            Err(ParseEnd::Input(error)) => Err(error),
        }
    }

    fn take_all(
        &mut self,
        blocks: &blocking::Receiver<io::Result<Vec<u8>>>,
    ) -> Result<(), ParseEnd> {
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let block = match self.next_block(blocks)? {
                Some(block) => block,
                None if rest.is_empty() => return Ok(()),
                // The last line may lack its end.
                None => return self.take(&rest),
            };
            self.now_ms = now_ms();
            let mut lines = block.as_slice();
            if !rest.is_empty() {
                let Some(end) = lines.iter().position(|byte| *byte == b'\n') else {
                    rest.extend_from_slice(lines);
                    if rest.len() > LINE_BYTES_MAX {
                        return Err(InputError::LineTooLong { line: self.line + 1 }.into());
                    }
                    continue;
                };
                rest.extend_from_slice(&lines[..end]);
                self.take(&rest)?;
                rest.clear();
                lines = &lines[end + 1..];
            }
            while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
                self.take(&lines[..end])?;
                lines = &lines[end + 1..];
            }
            rest.extend_from_slice(lines);
            self.close_overdue()?;
        }
    }

    /// Returns the next block, or `None` at the end. While input is missing, waiting batches are sent.
    fn next_block(
        &mut self,
        blocks: &blocking::Receiver<io::Result<Vec<u8>>>,
    ) -> Result<Option<Vec<u8>>, ParseEnd> {
        if !self.open.is_empty() {
            match blocks.recv_timeout(LINGER) {
                Ok(block) => return Ok(Some(block.map_err(InputError::Unreadable)?)),
                Err(blocking::RecvTimeoutError::Disconnected) => return Ok(None),
                Err(blocking::RecvTimeoutError::Timeout) => self.close_all()?,
            }
        }
        match blocks.recv() {
            Ok(block) => Ok(Some(block.map_err(InputError::Unreadable)?)),
            Err(blocking::RecvError) => Ok(None),
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), ParseEnd> {
        self.line += 1;
        if self.format == LineFormat::Json && line.trim_ascii().is_empty() {
            return Ok(());
        }
        // Taken out while a record borrows it; put back at once.
        let format = std::mem::replace(&mut self.format, LineFormat::Json);
        let parsed = format.parse(line);
        let outcome = match parsed {
            Ok(record) => self.add(&record),
            Err(source) => Err(InputError::Line { line: self.line, source }.into()),
        };
        self.format = format;
        outcome
    }

    fn add(&mut self, record: &ParsedRecord<'_>) -> Result<(), ParseEnd> {
        let common_key = self.key.take();
        let common_headers = std::mem::take(&mut self.headers);
        let key = record.key.as_deref().or(common_key.as_deref());
        let outcome = if record.headers.is_empty() && common_headers.is_empty() {
            self.push(record, key, &[])
        } else {
            self.push(record, key, &record.headers(&common_headers))
        };
        (self.key, self.headers) = (common_key, common_headers);
        outcome
    }

    fn push(
        &mut self,
        record: &ParsedRecord<'_>,
        key: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), ParseEnd> {
        let mut partition = self.choose(record, key)?;
        let value = record.value.as_deref();
        let full = |open: &OpenBatch| open.builder.len_with(key, value, headers) > BATCH_BYTES;
        if self.open.get(&partition).is_some_and(full) {
            self.close(partition)?;
            partition = self.choose(record, key)?;
        }
        let timestamp = record.timestamp_ms.unwrap_or(self.now_ms);
        let line = self.line;
        let open = self.open_batch(partition);
        open.builder
            .push(timestamp, key, value, headers)
            .map_err(|source| InputError::Record { line, source }.into())
    }

    fn choose(&self, record: &ParsedRecord<'_>, key: Option<&[u8]>) -> Result<i32, InputError> {
        let named = if self.keep_partitions { record.partition } else { self.partition };
        match (named, key) {
            (Some(partition), _) if (0..self.partitions).contains(&partition) => Ok(partition),
            (Some(partition), _) => Err(InputError::NoSuchPartition { line: self.line, partition }),
            (None, Some(key)) => Ok(partition_of_key(key, self.partitions.unsigned_abs()) as i32),
            (None, None) => Ok(self.sticky),
        }
    }

    fn open_batch(&mut self, partition: i32) -> &mut OpenBatch {
        self.open.entry(partition).or_insert_with(|| {
            let base_sequence = match self.identity {
                Identity::NONE => -1,
                _ => self.sequences.get(&partition).copied().unwrap_or(0),
            };
            let options = BatchOptions {
                compression: self.compression,
                producer_id: self.identity.id,
                producer_epoch: self.identity.epoch,
                base_sequence,
                ..BatchOptions::default()
            };
            OpenBatch { builder: BatchBuilder::new(options), since: Instant::now() }
        })
    }

    fn close(&mut self, partition: i32) -> Result<(), ParseEnd> {
        let Some(open) = self.open.remove(&partition) else { return Ok(()) };
        // A batch may be empty: the record that opened it did not fit.
        if open.builder.is_empty() {
            return Ok(());
        }
        if partition == self.sticky {
            self.sticky = (self.sticky + 1) % self.partitions;
        }
        let records = open.builder.record_count();
        let next = self.sequences.entry(partition).or_insert(0);
        // Sequence numbers wrap from i32::MAX to 0.
        *next = ((i64::from(*next) + i64::from(records)) & i64::from(i32::MAX)) as i32;
        let bytes = Bytes::from(open.builder.finish());
        let batch = ReadyBatch { partition, records, bytes };
        self.batches.blocking_send(batch).map_err(|_| ParseEnd::SenderEnded)
    }

    fn close_all(&mut self) -> Result<(), ParseEnd> {
        let partitions: Vec<i32> = self.open.keys().copied().collect();
        partitions.into_iter().try_for_each(|partition| self.close(partition))
    }

    fn close_overdue(&mut self) -> Result<(), ParseEnd> {
        let now = Instant::now();
        let overdue = |open: &OpenBatch| now.duration_since(open.since) >= LINGER;
        let partitions: Vec<i32> =
            self.open.iter().filter(|(_, open)| overdue(open)).map(|(place, _)| *place).collect();
        // While the sender is behind, batches may grow.
        if self.batches.capacity() == 0 {
            return Ok(());
        }
        partitions.into_iter().try_for_each(|partition| self.close(partition))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use record::Batch;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: ProduceArguments,
    }

    /// Batches sent for `blocks` of input: partition and values of each, and the error.
    fn batches(flags: &[&str], blocks: &[&[u8]]) -> (Vec<(i32, Vec<String>)>, Option<String>) {
        let command = Command::parse_from(["produce", "t"].iter().chain(flags));
        let (sender, mut receiver) = mpsc::channel(1000);
        let mut batcher = Batcher::new(command.arguments, 4, Identity { id: 9, epoch: 0 }, sender);
        batcher.sticky = 2;
        let (input, to_parse) = blocking::sync_channel(blocks.len());
        for block in blocks {
            input.send(Ok(block.to_vec())).expect("room");
        }
        drop(input);
        let error = batcher.run(&to_parse).err().map(|error| error.to_string());
        let mut out = Vec::new();
        while let Ok(batch) = receiver.try_recv() {
            let decoded = Batch::decode(&batch.bytes).expect("a batch");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            let values = decoded
                .records()
                .map(|record| text(record.expect("a record").value.unwrap_or(b"null")))
                .collect();
            out.push((batch.partition, values));
        }
        (out, error)
    }

    #[test]
    fn lines_are_joined_over_blocks_and_the_last_needs_no_end() {
        let (batches, error) = batches(&[], &[b"on", b"e\ntwo\n\nth", b"r", b"ee"]);
        assert_eq!(error, None);
        assert_eq!(batches, [(2, vec!["one".into(), "two".into(), "".into(), "three".into()])]);
    }

    #[test]
    fn a_key_decides_the_partition() {
        let (batches, _) = batches(&["-s", ":"], &[b"a:1\nb:2\na:3\n"]);
        let of = |value: &str| {
            batches.iter().find(|(_, values)| values.iter().any(|v| v == value)).map(|(p, _)| *p)
        };
        assert_eq!(of("1"), of("3"));
        assert_eq!(of("1"), Some(partition_of_key(b"a", 4) as i32));
        assert_eq!(of("2"), Some(partition_of_key(b"b", 4) as i32));
    }

    #[test]
    fn lines_before_a_wrong_line_are_sent() {
        let input = b"{\"value\":\"ok\"}\n\n{\"value\":7}\n{\"value\":\"never\"}\n";
        let (batches, error) = batches(&["--format", "json"], &[input]);
        assert_eq!(batches, [(2, vec!["ok".into()])]);
        let error = error.expect("refused");
        assert!(
            error.starts_with("line 3: ") && error.ends_with("the 2 lines before it were sent")
        );
    }

    #[test]
    fn full_batch_is_closed_and_the_next_one_uses_another_partition() {
        let line = vec![b'x'; 200 << 10];
        let input = [&line[..], b"\n", &line, b"\n", &line, b"\n"].concat();
        let (batches, _) = batches(&[], &[&input]);
        let shape: Vec<_> = batches.iter().map(|(place, values)| (*place, values.len())).collect();
        assert_eq!(shape, [(2, 2), (3, 1)]);
    }

    #[test]
    fn sequence_numbers_continue_from_batch_to_batch() {
        let command = Command::parse_from(["produce", "t", "-p", "0"]);
        let (sender, mut receiver) = mpsc::channel(10);
        let identity = Identity { id: 9, epoch: 3 };
        let mut batcher = Batcher::new(command.arguments, 1, identity, sender);
        batcher.sequences.insert(0, i32::MAX - 1);
        for _ in 0..2 {
            batcher.take(b"a").unwrap_or_else(|_| panic!("taken"));
            batcher.take(b"b").unwrap_or_else(|_| panic!("taken"));
            batcher.close_all().unwrap_or_else(|_| panic!("sent"));
        }
        let mut sequences = Vec::new();
        while let Ok(batch) = receiver.try_recv() {
            let header = record::verify_checksum(&batch.bytes).expect("sound");
            assert_eq!((header.producer_id, header.producer_epoch), (9, 3));
            sequences.push(header.base_sequence);
        }
        assert_eq!(sequences, [i32::MAX - 1, 0]);
    }
}
