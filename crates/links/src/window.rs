//! The limit of a peer's unanswered messages: both ends count by the same rule.
//!
//! The sender waits for room, as a future. The receiver does not trust that: it counts as well, and rejects
//! messages beyond the limit before memory is allocated for them. The receiver's count is never above that of an
//! honest sender: it ends when the reply is sent, the sender's when the reply arrives.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of number and of bytes; a larger message is sent alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// The sender's window. Clones share it. First come, first served.
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

    /// Waits for a slot for one more message, whatever its size.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, WindowClosed> {
        Arc::clone(&self.count).acquire_owned().await.map_err(|_| WindowClosed)
    }

    /// Waits for the bytes of a message that has its slot.
    pub(crate) async fn fill(
        &self,
        place: OwnedSemaphorePermit,
        bytes: usize,
    ) -> Result<Slot, WindowClosed> {
        let wanted = bytes.min(self.bytes_max) as u32;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(wanted).await;
        Ok(Slot { _count: place, _bytes: bytes.map_err(|_| WindowClosed)? })
    }

    /// Fails all waiting callers.
    pub(crate) fn close(&self) {
        self.count.close();
        self.bytes.close();
    }
}

/// The receiver's window. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow(Arc<State>);

#[derive(Debug)]
struct State {
    bounds: Bounds,
    used: Mutex<Bounds>,
}

/// Counts a message until it is dropped.
#[derive(Debug)]
pub(crate) struct WindowGuard {
    window: ReceiveWindow,
    bytes: usize,
}

impl ReceiveWindow {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(State { bounds, used: Mutex::new(Bounds { count: 0, bytes: 0 }) }))
    }

    /// Whether the window allows a message of this size.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        let State { bounds, used } = &*self.0;
        let used = *used.lock();
        let is_first = used.count == 0;
        used.count < bounds.count && (is_first || used.bytes + bytes <= bounds.bytes)
    }

    pub(crate) fn count(&self, bytes: usize) -> WindowGuard {
        let mut used = self.0.used.lock();
        used.count += 1;
        used.bytes += bytes;
        WindowGuard { window: self.clone(), bytes }
    }
}

impl Drop for WindowGuard {
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
    fn window_limits_number_and_bytes_and_admits_one_larger_message_alone() {
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
    fn receiver_window_allows_as_much_as_the_sender_window() {
        let window = ReceiveWindow::new(BOUNDS);
        assert!(window.allows(1_000));
        let first = window.count(10);
        assert!(window.allows(90) && !window.allows(91));
        let second = window.count(5);
        assert!(!window.allows(0));
        drop((first, second));
        assert!(window.allows(1_000));
    }

    #[tokio::test]
    async fn waiter_fails_when_the_window_closes() {
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
