//! Limit of concurrent requests of a port whose connections may have more than one.
//!
//! With HTTP/1 a connection has one request at a time, so that the limit of connections also limits waiting requests.
//! With HTTP/2 each further request of a connection counts as a connection, so that the same limit applies to their
//! sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Clones share their counter.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionLimit(Arc<AdmissionCount>);

#[derive(Debug)]
struct AdmissionCount {
    most: usize,
    taken: AtomicUsize,
}

impl AdmissionLimit {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(AdmissionCount { most, taken: AtomicUsize::new(0) }))
    }

    /// Takes the place of an accepted connection. Clones of the result share it.
    pub(crate) fn connected(&self) -> ConnectionPlaces {
        self.0.taken.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(ConnectionSlot {
            _counted: AdmissionSlot(self.clone()),
            is_taken: AtomicBool::new(false),
        });
        ConnectionPlaces { own, all: self.clone() }
    }

    fn try_take(&self) -> Option<AdmissionSlot> {
        let more = |taken| (taken < self.0.most).then_some(taken + 1);
        let taken = self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| AdmissionSlot(self.clone()))
    }
}

/// One counted connection or request, until it is dropped.
#[derive(Debug)]
pub(crate) struct AdmissionSlot(AdmissionLimit);

impl Drop for AdmissionSlot {
    fn drop(&mut self) {
        self.0.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The place of a connection, which one of its requests may use.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    _counted: AdmissionSlot,
    is_taken: AtomicBool,
}

/// Places for the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPlaces {
    own: Arc<ConnectionSlot>,
    all: AdmissionLimit,
}

impl ConnectionPlaces {
    /// Takes a place for one more request; `None`: there is none left.
    pub(crate) fn take(&self) -> Option<RequestPlace> {
        if !self.own.is_taken.swap(true, Ordering::Relaxed) {
            return Some(RequestPlace::Own(Arc::clone(&self.own)));
        }
        self.all.try_take().map(|place| RequestPlace::Further { _counted: place })
    }

    pub(crate) fn most(&self) -> usize {
        self.all.0.most
    }
}

/// Held until a request is answered.
#[derive(Debug)]
pub(crate) enum RequestPlace {
    Own(Arc<ConnectionSlot>),
    Further { _counted: AdmissionSlot },
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        if let Self::Own(own) = self {
            own.is_taken.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_keep_one_place_and_share_the_rest() {
        let places = AdmissionLimit::new(3);
        let (one, other) = (places.connected(), places.connected());
        let first = one.take().expect("its own");
        let second = one.take().expect("the last one");
        assert!(one.take().is_none());
        let of_other = other.take().expect("its own");
        assert!(other.take().is_none());
        drop(second);
        let _third = other.take().expect("what the other gave back");
        // Its own is free again, though no others are.
        drop(first);
        let _again = one.take().expect("its own");
        assert!(one.take().is_none());
        // A connection that has ended frees its place once its requests have ended.
        drop(other);
        assert!(one.take().is_none());
        drop(of_other);
        assert!(one.take().is_some());
    }
}
