//! Cache of loaded sidecars, bounded in bytes. The least recently used one is evicted first.
//!
//! The newest stays even if it alone is over the bound: a reader that walks through a segment of
//! tiny batches would otherwise load its large sidecar again for every read.

use std::sync::Arc;

use base::HashMap;
use parking_lot::Mutex;

use super::sidecar::Sidecar;

#[derive(Debug)]
pub(crate) struct SidecarCache {
    bytes_max: usize,
    loaded: Mutex<LoadedSidecars>,
}

#[derive(Debug, Default)]
struct LoadedSidecars {
    by_segment: HashMap<(u32, u32), (Arc<Sidecar>, u64)>,
    bytes: usize,
    uses: u64,
}

impl SidecarCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, loaded: Mutex::default() }
    }

    pub(crate) fn get(&self, segment: u32, generation: u32) -> Option<Arc<Sidecar>> {
        let mut loaded = self.loaded.lock();
        loaded.uses += 1;
        let now = loaded.uses;
        let (sidecar, last_use) = loaded.by_segment.get_mut(&(segment, generation))?;
        *last_use = now;
        Some(sidecar.clone())
    }

    pub(crate) fn insert(&self, segment: u32, generation: u32, sidecar: Arc<Sidecar>) {
        let mut loaded = self.loaded.lock();
        loaded.uses += 1;
        let now = loaded.uses;
        loaded.remove((segment, generation));
        loaded.bytes += sidecar.as_bytes().len();
        loaded.by_segment.insert((segment, generation), (sidecar, now));
        while loaded.bytes > self.bytes_max && loaded.by_segment.len() > 1 {
            // At most as many as there are segments: a walk is cheaper than keeping them in order.
            let oldest = loaded.by_segment.iter().min_by_key(|(_, (_, last_use))| *last_use);
            let Some((&oldest, _)) = oldest else { break };
            loaded.remove(oldest);
        }
    }

    pub(crate) fn remove(&self, segment: u32, generation: u32) {
        self.loaded.lock().remove((segment, generation));
    }
}

impl LoadedSidecars {
    fn remove(&mut self, name: (u32, u32)) {
        if let Some((sidecar, _)) = self.by_segment.remove(&name) {
            self.bytes -= sidecar.as_bytes().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(segment: u32) -> Arc<Sidecar> {
        Arc::new(Sidecar::build(segment, 1, None, std::iter::empty()))
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let size = sidecar(1).as_bytes().len();
        let cache = SidecarCache::new(2 * size);
        cache.insert(1, 1, sidecar(1));
        cache.insert(2, 1, sidecar(2));
        assert!(cache.get(1, 1).is_some());
        cache.insert(3, 1, sidecar(3));
        assert!(cache.get(2, 1).is_none());
        assert!(cache.get(1, 1).is_some() && cache.get(3, 1).is_some());
    }

    #[test]
    fn newest_sidecar_stays_even_beyond_the_bound() {
        let cache = SidecarCache::new(0);
        cache.insert(1, 1, sidecar(1));
        assert!(cache.get(1, 1).is_some());
        cache.insert(2, 1, sidecar(2));
        assert!(cache.get(1, 1).is_none() && cache.get(2, 1).is_some());
        cache.remove(2, 1);
        assert_eq!(cache.loaded.lock().bytes, 0);
    }
}
