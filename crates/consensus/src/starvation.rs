//! Delay of due tasks in this process. On a starved machine a heartbeat and its reply wait several times to be
//! scheduled, and are late although both nodes and the network are well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep_until;
use world::Instant;

use crate::engine::settings::STARVED_MAX;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Measurements that count: those of the last second.
const LOOKS: usize = 20;
/// Timer delay of a healthy process, which is ignored.
const IGNORED: Duration = Duration::from_millis(10);
/// Scheduling delays of a heartbeat and its reply: tasks of the engine and of the link, on both nodes.
const TURNS: u32 = 8;

/// The longest delay of the last second. Clones share it; it is zero where no task measures it.
#[derive(Clone, Default, Debug)]
pub struct Starvation(Arc<AtomicU64>);

impl Starvation {
    /// Measures until no other owner of this is left.
    pub fn measure(&self) -> impl Future<Output = ()> + Send + use<> {
        let measured = Arc::downgrade(&self.0);
        async move {
            let mut delays: VecDeque<Duration> = VecDeque::with_capacity(LOOKS);
            loop {
                let due = Instant::now() + LOOK_EVERY;
                sleep_until(due).await;
                if delays.len() == LOOKS {
                    delays.pop_front();
                }
                delays.push_back(due.elapsed());
                let Some(measured) = measured.upgrade() else { return };
                let longest = delays.iter().max().copied().unwrap_or_default();
                measured.store(longest.as_micros() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Extension of [`crate::engine::settings::LEASE`] for a leader that waits for replies of a majority.
    pub(crate) fn allowance(&self) -> Duration {
        allowance(Duration::from_micros(self.0.load(Ordering::Relaxed)))
    }
}

fn allowance(delay: Duration) -> Duration {
    match delay > IGNORED {
        true => (delay * TURNS).min(STARVED_MAX),
        false => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_grows_with_the_delay_and_is_bounded() {
        let of = |ms| allowance(Duration::from_millis(ms));
        assert_eq!(of(0), Duration::ZERO);
        assert_eq!(of(10), Duration::ZERO);
        assert_eq!(of(20), Duration::from_millis(160));
        assert_eq!(of(10_000), STARVED_MAX);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn delay_of_a_blocked_thread_is_measured_and_forgotten() {
        let starvation = Starvation::default();
        let measuring = tokio::spawn(starvation.measure());
        tokio::time::sleep(Duration::from_millis(120)).await;
        std::thread::sleep(Duration::from_millis(200));
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(starvation.allowance(), STARVED_MAX, "it was late by more than 100 ms");
        drop(starvation);
        tokio::time::timeout(Duration::from_secs(5), measuring).await.expect("it ends").unwrap();
    }
}
