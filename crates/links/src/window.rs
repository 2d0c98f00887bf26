//! How much a peer may have unanswered: both ends count by the same rule.
//!
//! The sender waits for room, as a future. The receiver does not trust that: it counts as well, and what
//! goes beyond is refused before memory is taken for it. The receiver's count is never above an honest
//! sender's, since it ends with the answer's sending and the sender's with its arrival.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many at a time and so many bytes; what is larger goes alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// The sender's. Clones are the same. First come, first served.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    count: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: usize,
}

/// Room that is in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _count: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// The window is closed: its connection or its stream has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowClosed;

impl Window {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            count: Arc::new(Semaphore::new(bounds.count)),
            bytes: Arc::new(Semaphore::new(bounds.bytes)),
            bytes_max: bounds.bytes,
        }
    }

    /// Waits until one more has room, whatever its size.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, WindowClosed> {
        Arc::clone(&self.count).acquire_owned().await.map_err(|_| WindowClosed)
    }

    /// Waits for the bytes of one that has its place.
    pub(crate) async fn fill(
        &self,
        place: OwnedSemaphorePermit,
        bytes: usize,
    ) -> Result<Slot, WindowClosed> {
        let wanted = bytes.min(self.bytes_max) as u32;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(wanted).await;
        Ok(Slot { _count: place, _bytes: bytes.map_err(|_| WindowClosed)? })
    }

    /// Those who wait hear that they wait in vain.
    pub(crate) fn close(&self) {
        self.count.close();
        self.bytes.close();
    }
}

/// The receiver's. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Counted(Arc<State>);

#[derive(Debug)]
struct State {
    bounds: Bounds,
    used: Mutex<Bounds>,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting {
    window: Counted,
    bytes: usize,
}

impl Counted {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(State { bounds, used: Mutex::new(Bounds { count: 0, bytes: 0 }) }))
    }

    /// Whether the window allows one of so many bytes.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        let State { bounds, used } = &*self.0;
        let used = *used.lock();
        let is_first = used.count == 0;
        used.count < bounds.count && (is_first || used.bytes + bytes <= bounds.bytes)
    }

    pub(crate) fn count(&self, bytes: usize) -> Counting {
        let mut used = self.0.used.lock();
        used.count += 1;
        used.bytes += bytes;
        Counting { window: self.clone(), bytes }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut used = self.window.0.used.lock();
        used.count -= 1;
        used.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const BOUNDS: Bounds = Bounds { count: 2, bytes: 100 };

    fn take(window: &Window, bytes: usize) -> Option<Slot> {
        let taking = async { window.fill(window.place().await?, bytes).await };
        taking.now_or_never().and_then(Result::ok)
    }

    #[test]
    fn room_is_by_number_and_by_bytes_and_what_is_larger_goes_alone() {
        let window = Window::new(BOUNDS);
        let first = take(&window, 10);
        assert!(first.is_some());
        assert!(take(&window, 91).is_none());
        assert!(take(&window, 1_000).is_none());
        let second = take(&window, 90);
        assert!(second.is_some());
        assert!(take(&window, 0).is_none());
        drop((first, second));
        let large = take(&window, 1_000);
        assert!(large.is_some());
        assert!(take(&window, 1).is_none());
    }

    #[test]
    fn the_receiver_allows_what_a_sender_may_send_and_no_more() {
        let window = Counted::new(BOUNDS);
        assert!(window.allows(1_000));
        let first = window.count(10);
        assert!(window.allows(90) && !window.allows(91));
        let second = window.count(5);
        assert!(!window.allows(0));
        drop((first, second));
        assert!(window.allows(1_000));
    }

    #[tokio::test]
    async fn who_waits_for_a_window_hears_that_it_is_closed() {
        let window = Window::new(Bounds { count: 1, bytes: 1 });
        let place = window.place().await.expect("room");
        let waits = tokio::spawn({
            let window = window.clone();
            async move { window.place().await.map(drop) }
        });
        tokio::task::yield_now().await;
        window.close();
        assert_eq!(waits.await.expect("no panic"), Err(WindowClosed));
        assert!(window.fill(place, 1).await.is_err());
    }
}
