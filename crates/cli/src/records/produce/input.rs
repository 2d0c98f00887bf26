//! Standard input, and its errors.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;

use crate::records::record_line::LineError;

const BLOCK_BYTES: usize = 256 << 10;
/// Input with a longer line is rejected: it probably does not consist of lines.
pub(super) const LINE_BYTES_MAX: usize = base::limits::BATCH_BYTES_MAX as usize;

#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("line {line}: {source}; the {} before it were sent", lines(*line))]
    Line { line: u64, source: LineError },
    #[error("line {line} is over {LINE_BYTES_MAX} bytes long; are these lines?")]
    LineTooLong { line: u64 },
    #[error("line {line}: the topic has no partition {partition}")]
    NoSuchPartition { line: u64, partition: i32 },
    #[error("line {line}: {source}")]
    Record { line: u64, source: record::BatchError },
    #[error("cannot read standard input: {0}")]
    Unreadable(io::Error),
}

fn lines(line: u64) -> String {
    crate::output::counted(line - 1, "line")
}

/// Size of standard input, if it is a file.
pub(super) fn input_bytes() -> Option<u64> {
    let file = std::fs::File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
}

/// Reads standard input in blocks as they arrive.
pub(super) fn read_blocks(blocks: &blocking::SyncSender<io::Result<Vec<u8>>>, read: &AtomicU64) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut block = vec![0; BLOCK_BYTES];
        let received = match stdin.read(&mut block) {
            Ok(0) => return,
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // Without a receiver the command is ending anyway.
                let _ = blocks.send(Err(error));
                return;
            }
        };
        block.truncate(received);
        read.fetch_add(received as u64, Ordering::Relaxed);
        if blocks.send(Ok(block)).is_err() {
            return;
        }
    }
}
