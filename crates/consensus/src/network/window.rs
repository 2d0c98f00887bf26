//! Unanswered appends, limited in number and bytes. Both ends enforce the limit.

use std::collections::VecDeque;

use base::limits::{APPEND_BYTES_IN_FLIGHT_MAX, APPENDS_IN_FLIGHT_MAX};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::engine::LogId;

#[derive(Debug, Default)]
pub(crate) struct Window {
    unanswered: Mutex<VecDeque<UnansweredAppend>>,
    answered: Notify,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UnansweredAppend {
    pub(crate) bytes: usize,
    /// The last of its entries, or the entry before them.
    pub(crate) last: Option<LogId>,
    /// Term of the leader that sent it.
    pub(crate) term: u64,
    /// Index acknowledged in the same term before it was sent.
    pub(crate) confirmed: Option<u64>,
}

impl Window {
    /// Waits until one more may be in flight. One always may, whatever its size.
    pub(crate) async fn room(&self) {
        loop {
            let answered = self.answered.notified();
            if self.has_room() {
                return;
            }
            answered.await;
        }
    }

    fn has_room(&self) -> bool {
        let unanswered = self.unanswered.lock();
        let bytes: usize = unanswered.iter().map(|it| it.bytes).sum();
        unanswered.len() < APPENDS_IN_FLIGHT_MAX && bytes < APPEND_BYTES_IN_FLIGHT_MAX
    }

    pub(crate) fn push(&self, unanswered: UnansweredAppend) {
        self.unanswered.lock().push_back(unanswered);
    }

    /// Removes the oldest, which was answered. `None`: there was none.
    pub(crate) fn pop(&self) -> Option<UnansweredAppend> {
        let popped = self.unanswered.lock().pop_front();
        self.answered.notify_one();
        popped
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn window_limits_number_and_bytes_and_always_admits_one() {
        let window = Window::default();
        let large = UnansweredAppend {
            bytes: 2 * APPEND_BYTES_IN_FLIGHT_MAX,
            last: None,
            term: 1,
            confirmed: None,
        };
        assert!(window.room().now_or_never().is_some());
        window.push(large);
        assert!(window.room().now_or_never().is_none());
        assert_eq!(window.pop().map(|it| it.bytes), Some(large.bytes));
        for _ in 0..APPENDS_IN_FLIGHT_MAX {
            assert!(window.room().now_or_never().is_some());
            window.push(UnansweredAppend { bytes: 0, last: None, term: 1, confirmed: None });
        }
        assert!(window.room().now_or_never().is_none());
        window.pop();
        assert!(window.room().now_or_never().is_some());
    }
}
