//! Values shared by queues, stored once: ten thousand queues of one client are usually declared alike.

use std::sync::Arc;

use base::{HashMap, HashSet};
use bytes::Bytes;
use parking_lot::Mutex;
use values::Table;

use super::QueueSettings;

/// Fewer values are not worth a sweep.
const LOOKED_THROUGH_FROM: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct SharedValues(Mutex<InternTable>);

#[derive(Debug, Default)]
struct InternTable {
    /// By their wire encoding.
    arguments: HashMap<Bytes, Arc<Table>>,
    settings: HashSet<Arc<QueueSettings>>,
    /// Number of values at which unused ones are removed.
    look_through_at: usize,
}

impl SharedValues {
    pub(crate) fn arguments(&self, arguments: Table) -> Arc<Table> {
        let encoded = arguments.to_bytes();
        let mut known = self.0.lock();
        if let Some(present) = known.arguments.get(&encoded) {
            return Arc::clone(present);
        }
        known.remove_unused();
        let arguments = Arc::new(arguments);
        known.arguments.insert(encoded, Arc::clone(&arguments));
        arguments
    }

    pub(crate) fn settings(&self, settings: QueueSettings) -> Arc<QueueSettings> {
        let mut known = self.0.lock();
        if let Some(present) = known.settings.get(&settings) {
            return Arc::clone(present);
        }
        known.remove_unused();
        let settings = Arc::new(settings);
        known.settings.insert(Arc::clone(&settings));
        settings
    }
}

impl InternTable {
    fn remove_unused(&mut self) {
        if self.arguments.len() + self.settings.len() < self.look_through_at {
            return;
        }
        self.arguments.retain(|_, arguments| Arc::strong_count(arguments) > 1);
        self.settings.retain(|settings| Arc::strong_count(settings) > 1);
        let left = self.arguments.len() + self.settings.len();
        self.look_through_at = (2 * left).max(LOOKED_THROUGH_FROM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_arguments_and_settings_are_kept_once() {
        let shared = SharedValues::default();
        let with = |expires: i64| {
            let mut arguments = Table::new();
            arguments.push("x-expires", expires);
            arguments
        };
        let settings = |expires_ms| QueueSettings { expires_ms, ..QueueSettings::default() };
        let (one, same) = (shared.arguments(with(1)), shared.arguments(with(1)));
        assert!(Arc::ptr_eq(&one, &same));
        assert_ne!(one, shared.arguments(with(2)));
        let (one, same) = (shared.settings(settings(Some(1))), shared.settings(settings(Some(1))));
        assert!(Arc::ptr_eq(&one, &same));
        assert_ne!(one, shared.settings(settings(None)));
    }

    #[test]
    fn values_without_a_queue_are_removed() {
        let shared = SharedValues::default();
        for expires in 0..10_000 {
            shared
                .settings(QueueSettings { expires_ms: Some(expires), ..QueueSettings::default() });
        }
        assert!(shared.0.lock().settings.len() <= LOOKED_THROUGH_FROM);
    }
}
