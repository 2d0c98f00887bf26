//! How many requests there may be at a time on a port, where a connection has more than one.
//!
//! By HTTP/1 a connection has one request at a time, so that the bound of connections bounds requests that wait, too. By
//! HTTP/2 each further request of a connection counts as a connection: as many wait as there could be connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    most: usize,
    taken: AtomicUsize,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Counted { most, taken: AtomicUsize::new(0) }))
    }

    /// Of a connection, which whoever accepts connections has let in. Clones are the same.
    pub(crate) fn connected(&self) -> ConnectionPlaces {
        self.0.taken.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(Own { _counted: Place(self.clone()), is_taken: AtomicBool::new(false) });
        ConnectionPlaces { own, all: self.clone() }
    }

    fn try_take(&self) -> Option<Place> {
        let more = |taken| (taken < self.0.most).then_some(taken + 1);
        let taken = self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Place(self.clone()))
    }
}

/// Held for as long as what was counted is there.
#[derive(Debug)]
pub(crate) struct Place(Places);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection's place is that of one of its requests.
#[derive(Debug)]
pub(crate) struct Own {
    _counted: Place,
    is_taken: AtomicBool,
}

/// The places of the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPlaces {
    own: Arc<Own>,
    all: Places,
}

impl ConnectionPlaces {
    /// For one more request. `None`: there is no place for it.
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
    Own(Arc<Own>),
    Further { _counted: Place },
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
    fn the_first_request_of_a_connection_always_has_a_place_and_others_share_what_is_left() {
        let places = Places::new(3);
        let (one, other) = (places.connected(), places.connected());
        let first = one.take().expect("its own");
        let second = one.take().expect("the last one");
        assert!(one.take().is_none());
        let of_other = other.take().expect("its own");
        assert!(other.take().is_none());
        drop(second);
        let _third = other.take().expect("what the other gave back");
        // Its own is free again, though there are no others.
        drop(first);
        let _again = one.take().expect("its own");
        assert!(one.take().is_none());
        // A connection that has ended leaves its place to others, once its requests have ended.
        drop(other);
        assert!(one.take().is_none());
        drop(of_other);
        assert!(one.take().is_some());
    }
}
