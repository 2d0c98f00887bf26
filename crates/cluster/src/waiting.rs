//! The reason why a node does not serve yet, for its log and its probes.

use crate::node::Node;

impl Node {
    /// Sets the reason that probes report.
    pub fn note_waiting(&self, words: Option<String>) {
        *self.waiting.lock() = words;
    }

    pub fn waits_for(&self) -> Option<String> {
        self.waiting.lock().clone()
    }
}
