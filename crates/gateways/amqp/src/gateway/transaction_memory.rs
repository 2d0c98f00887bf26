//! Memory of the open transactions of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::AMQP_TRANSACTIONS_BYTES_MAX;

/// Bytes held by all open transactions of a node. They do not count against the budget of requests: requests end by
/// themselves, while a transaction is open for as long as its client likes.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransactionMemory(Arc<AtomicUsize>);

/// Memory of one transaction, returned when dropped.
#[derive(Debug)]
pub(crate) struct ReservedMemory {
    memory: TransactionMemory,
    pub(crate) bytes: usize,
}

impl TransactionMemory {
    pub(crate) fn reservation(&self) -> ReservedMemory {
        ReservedMemory { memory: self.clone(), bytes: 0 }
    }
}

impl ReservedMemory {
    /// Returns whether all transactions together are within their limit.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let held = self.memory.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        held <= AMQP_TRANSACTIONS_BYTES_MAX
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
