//! Writes records to standard output, and tracks the written positions.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::TopicPartition;
use client::fetcher::{BatchRange, DeletedRange, Delivery};
use record::Batch;
use tokio::sync::mpsc;

use crate::command_error::CommandError;
use crate::printable;
use crate::records::record_line::LineFormat;
const OUTPUT_BYTES: usize = 256 << 10;

/// Progress of printing.
#[derive(Debug, Default)]
pub(super) struct PrintProgress {
    pub(super) records: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Offset after the last written record, by partition.
    positions: Mutex<BTreeMap<TopicPartition, u64>>,
}

impl PrintProgress {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, u64>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn positions(&self) -> BTreeMap<TopicPartition, u64> {
        self.lock().clone()
    }

    pub(super) fn begin(&self, from: &[(TopicPartition, u64)]) {
        self.lock().extend(from.iter().cloned());
    }

    pub(super) fn forget(&self) {
        self.lock().clear();
    }
}

/// Writes records to standard output.
pub(super) struct Printer {
    format: LineFormat,
    /// Producers choose the contents of records, which may hold control sequences of a terminal.
    to_terminal: bool,
    left: Option<u64>,
    printed: Arc<PrintProgress>,
    out: Vec<u8>,
    /// Positions of the records in `out`, which are not yet written.
    pending: BTreeMap<TopicPartition, u64>,
}

impl Printer {
    pub(super) fn new(
        format: LineFormat,
        to_terminal: bool,
        left: Option<u64>,
        printed: Arc<PrintProgress>,
    ) -> Self {
        let out = Vec::with_capacity(OUTPUT_BYTES + (64 << 10));
        Self { format, to_terminal, left, printed, out, pending: BTreeMap::new() }
    }

    /// Ends when the deliveries end, or when enough is printed.
    pub(super) fn run(
        mut self,
        mut deliveries: mpsc::Receiver<Delivery>,
    ) -> Result<(), CommandError> {
        loop {
            let delivery = match deliveries.try_recv() {
                Ok(delivery) => delivery,
                Err(_) => {
                    // Nothing waits: write out the buffer before waiting for more.
                    self.flush()?;
                    match deliveries.blocking_recv() {
                        Some(delivery) => delivery,
                        None => return Ok(()),
                    }
                }
            };
            match delivery {
                Delivery::Stretch(stretch) => self.print(&stretch)?,
                Delivery::Deleted(DeletedRange { partition, from, until }) => eprintln!(
                    "postroad: records {from} to {} of {partition} are gone (retention); going on \
                     at {until}",
                    until - 1
                ),
                Delivery::Barrier(passed) => {
                    self.flush()?;
                    // The waiting task may have been interrupted.
                    let _ = passed.send(());
                }
            }
            if self.left == Some(0) {
                return self.flush();
            }
        }
    }

    fn print(&mut self, stretch: &BatchRange) -> Result<(), CommandError> {
        let place = &stretch.partition;
        let corrupt = |offset: u64, error: record::BatchError| {
            CommandError::server(format!("the batch of {place} at offset {offset}: {error}"))
        };
        let mut next = stretch.offset;
        for (header, range) in record::split(&stretch.records).map_while(Result::ok) {
            let batch = &stretch.records[range];
            record::verify_checksum(batch).map_err(|e| corrupt(header.base_offset, e))?;
            // Control batches mark transactions and hold no records.
            if !header.attributes.is_control() {
                let batch = Batch::decode(batch).map_err(|e| corrupt(header.base_offset, e))?;
                for record in batch.records() {
                    let record = record.map_err(|e| corrupt(header.base_offset, e))?;
                    if record.offset < stretch.offset {
                        continue;
                    }
                    if stretch.until.is_some_and(|until| record.offset >= until)
                        || self.left == Some(0)
                    {
                        self.pending.insert(place.clone(), next);
                        return Ok(());
                    }
                    let begin = self.out.len();
                    self.format.write(&mut self.out, &place.topic, place.partition, &record);
                    if self.to_terminal {
                        self.show_from(begin);
                    }
                    next = record.offset + 1;
                    self.left = self.left.map(|left| left - 1);
                    self.printed.records.fetch_add(1, Ordering::Relaxed);
                    if self.out.len() >= OUTPUT_BYTES {
                        self.write_out()?;
                    }
                }
            }
            if self.left != Some(0) {
                next = next.max(header.base_offset + header.last_offset_delta as u64 + 1);
            }
        }
        self.pending.insert(place.clone(), next);
        Ok(())
    }

    /// Escapes the output from `begin` on for a terminal.
    fn show_from(&mut self, begin: usize) {
        let written = String::from_utf8_lossy(&self.out[begin..]);
        let shown = match self.format {
            LineFormat::Plain { .. } => printable::lines(&written),
            LineFormat::Json => printable::json_lines(&written),
        };
        self.out.truncate(begin);
        self.out.extend_from_slice(shown.as_bytes());
    }

    fn write_out(&mut self) -> io::Result<()> {
        io::stdout().lock().write_all(&self.out)?;
        self.printed.bytes.fetch_add(self.out.len() as u64, Ordering::Relaxed);
        self.out.clear();
        Ok(())
    }

    /// Afterwards everything printed has left the process, and may be committed.
    fn flush(&mut self) -> Result<(), CommandError> {
        self.write_out()?;
        io::stdout().lock().flush()?;
        self.printed.lock().append(&mut self.pending);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_shown_on_a_terminal_has_no_escape_sequences() {
        let plain = LineFormat::Plain { key_separator: None, headers: false };
        for (format, expected) in [
            (plain, "a\\u{1b}[2J\\u{9b}0m\u{fffd}\tb\n"),
            (LineFormat::Json, "a\\u001b[2J\\u009b0m\u{fffd}\\u0009b\n"),
        ] {
            let mut printer = Printer::new(format, true, None, Arc::default());
            printer.out.extend_from_slice(b"before\x1b");
            let begin = printer.out.len();
            printer.out.extend_from_slice(b"a\x1b[2J\xc2\x9b0m\xff\tb\n");
            printer.show_from(begin);
            assert_eq!(String::from_utf8_lossy(&printer.out[begin..]), expected);
        }
    }
}
