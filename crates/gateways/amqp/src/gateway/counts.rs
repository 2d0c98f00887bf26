//! Numbers of connections and channels on this node, which the limits of users and virtual hosts apply to.

use std::sync::Arc;

use base::HashMap;
use parking_lot::Mutex;

/// A counted resource.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CountedResource {
    /// Connections of a user.
    Connections(Box<str>),
    Channels(Box<str>),
    /// Connections to a virtual host.
    VhostConnections(Box<str>),
}

/// Counts on this node. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<HashMap<CountedResource, u64>>>);

/// Counts one resource until it is dropped.
#[derive(Debug)]
pub(crate) struct CountGuard {
    counts: Counts,
    what: CountedResource,
}

impl Counts {
    /// Adds one. `Err`: the limit is reached.
    pub(crate) fn enter(
        &self,
        what: CountedResource,
        most: Option<u64>,
    ) -> Result<CountGuard, u64> {
        let mut counts = self.0.lock();
        let present = counts.get(&what).copied().unwrap_or(0);
        if let Some(most) = most.filter(|most| present >= *most) {
            return Err(most);
        }
        counts.insert(what.clone(), present + 1);
        Ok(CountGuard { counts: self.clone(), what })
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock();
        if let Some(count) = counts.get_mut(&self.what) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_equal_the_entries_held() {
        let counts = Counts::default();
        let of = |user: &str| CountedResource::Channels(user.into());
        let first = counts.enter(of("ada"), Some(2)).expect("there is room");
        let _second = counts.enter(of("ada"), Some(2)).expect("there is room");
        assert_eq!(counts.enter(of("ada"), Some(2)).err(), Some(2));
        assert!(counts.enter(of("bob"), Some(1)).is_ok() && counts.enter(of("ada"), None).is_ok());
        drop(first);
        assert!(counts.enter(of("ada"), Some(2)).is_ok());
        assert_eq!(counts.enter(of("eve"), Some(0)).err(), Some(0));
        drop(_second);
        assert!(counts.0.lock().is_empty());
    }
}
