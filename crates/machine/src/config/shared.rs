//! Configurations, each stored once for all its users.
//!
//! Ten thousand queues of one user usually have the same configuration. A configuration is looked
//! up by the values it is derived from, and dropped with its last user.

use std::sync::Arc;

use base::HashMap;

use super::Overrides;

/// Smaller maps are not swept.
const LOOKED_THROUGH_FROM: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct SharedConfigs<T> {
    known: HashMap<Arc<Overrides>, Arc<T>>,
    /// Size at which unused configurations are swept.
    look_through_at: usize,
}

impl<T> Default for SharedConfigs<T> {
    fn default() -> Self {
        Self { known: HashMap::default(), look_through_at: LOOKED_THROUGH_FROM }
    }
}

/// The content follows from the users of configurations, besides some unused ones.
impl<T> PartialEq for SharedConfigs<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> SharedConfigs<T> {
    /// The configuration `config` derived from these values, or the existing one for equal values.
    pub(crate) fn share(&mut self, overrides: &Overrides, config: T) -> (Arc<Overrides>, Arc<T>) {
        if let Some(known) = self.get(overrides) {
            return known;
        }
        if self.known.len() >= self.look_through_at {
            self.known.retain(|overrides, _| Arc::strong_count(overrides) > 1);
            self.look_through_at = (2 * self.known.len()).max(LOOKED_THROUGH_FROM);
            self.known.shrink_to(self.look_through_at);
        }
        let (overrides, config) = (Arc::new(overrides.clone()), Arc::new(config));
        self.known.insert(Arc::clone(&overrides), Arc::clone(&config));
        (overrides, config)
    }

    pub(crate) fn get(&self, overrides: &Overrides) -> Option<(Arc<Overrides>, Arc<T>)> {
        let (overrides, config) = self.known.get_key_value(overrides)?;
        Some((Arc::clone(overrides), Arc::clone(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(retention_ms: usize) -> Overrides {
        [("retention.ms".to_owned(), retention_ms.to_string())].into()
    }

    #[test]
    fn equal_values_are_one_configuration() {
        let mut shared = SharedConfigs::default();
        let first = shared.share(&values(1), 'a');
        let second = shared.share(&values(1), 'b');
        assert!(Arc::ptr_eq(&first.0, &second.0) && Arc::ptr_eq(&first.1, &second.1));
        assert_eq!(*shared.share(&values(2), 'c').1, 'c');
    }

    #[test]
    fn unused_configurations_are_dropped() {
        let mut shared = SharedConfigs::default();
        let kept = shared.share(&values(0), 0);
        for value in 1..10 * LOOKED_THROUGH_FROM {
            shared.share(&values(value), value);
        }
        assert!(shared.known.len() <= LOOKED_THROUGH_FROM, "{}", shared.known.len());
        assert!(Arc::ptr_eq(&kept.1, &shared.share(&values(0), 1).1));
    }
}
