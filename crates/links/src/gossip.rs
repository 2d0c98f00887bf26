//! Gossip of this node: the newest payload, sent on each control lane when it changes and each second.

use bytes::Bytes;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Gossip(Mutex<Option<Bytes>>);

impl Gossip {
    pub(crate) fn set(&self, payload: Bytes) {
        *self.0.lock() = Some(payload);
    }

    pub(crate) fn newest(&self) -> Option<Bytes> {
        self.0.lock().clone()
    }
}
