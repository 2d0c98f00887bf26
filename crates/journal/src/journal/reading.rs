//! Reading batches, for the broker.

use super::Journal;
use crate::address::{Address, StoredBatches};
use crate::error::ReadError;
use crate::stats::Age;

impl Journal {
    /// Consecutive batches, beginning with the one that holds `offset` or else the next: at least
    /// one, even if larger than `bytes_max`; empty at the end. Adjacent batches may share one
    /// [`StoredBatches`].
    pub async fn read(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<StoredBatches>, ReadError> {
        self.inner.reader.read(stream, offset, bytes_max).await
    }

    /// As [`Journal::read`], on the caller's thread. Blocking.
    pub fn read_blocking(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<StoredBatches>, ReadError> {
        self.inner.reader.read_blocking(stream, offset, bytes_max)
    }

    /// The first batch with a record at or after `timestamp`.
    pub async fn find_time(
        &self,
        stream: u64,
        timestamp: i64,
    ) -> Result<Option<(Address, StoredBatches)>, ReadError> {
        self.inner.reader.find_time(stream, timestamp).await
    }

    /// The batch with the largest timestamp.
    pub async fn find_max_time(
        &self,
        stream: u64,
    ) -> Result<Option<(Address, StoredBatches)>, ReadError> {
        self.inner.reader.find_max_time(stream).await
    }

    /// Live bytes.
    pub fn stream_bytes(&self, stream: u64) -> u64 {
        self.inner.shared.index.stream_bytes(stream)
    }

    /// The start offset that keeps at least `keep_bytes`; `None` if the stream has no more.
    /// Blocking.
    pub fn retention_by_bytes(
        &self,
        stream: u64,
        keep_bytes: u64,
    ) -> Result<Option<u64>, ReadError> {
        self.inner.shared.index.retention_by_bytes(stream, keep_bytes)
    }

    /// The end of the stream's batches older than `before`, and the time at which the next one ages
    /// out. Blocking.
    pub fn age(&self, stream: u64, before: i64) -> Result<Age, ReadError> {
        let index = &self.inner.shared.index;
        let old_to = index.retention_by_time(stream, before)?;
        let young_ms = index.find_time(stream, before)?.map(|(batch, _)| batch.max_timestamp);
        Ok(Age { old_to, young_ms })
    }

    /// Addresses, beginning with the batch that holds `from`. Blocking.
    pub fn batches(&self, stream: u64, from: u64) -> Result<Vec<Address>, ReadError> {
        self.inner.shared.index.batches(stream, from)
    }
}
