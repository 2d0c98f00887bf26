//! Detects a client that is too slow to take its output.
//!
//! A client may be slow, but while its socket is full it must take a minimum of bytes in each period. A client that
//! takes a byte a minute would hold the memory of its replies for ever. The rule is separate from the timer, because
//! some sessions have one timer for everything.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, timeout_at};

use crate::unsent::UnsentOutput;

/// Watches one client.
#[derive(Debug)]
pub struct SlowReader {
    within: Duration,
    bytes_min: usize,
    /// Start of the current period; `None` while there is no pending output.
    since: Option<Instant>,
    /// Bytes taken in the current period.
    taken: usize,
}

/// Reason why output was not sent completely.
#[derive(Debug, Error)]
pub enum WriteError {
    #[error("writing: {0}")]
    Io(#[from] io::Error),
    #[error("the client did not take what it was sent within {0:?}")]
    SlowReader(Duration),
}

impl SlowReader {
    /// The client must take `bytes_min` bytes `within` each period, or all that is left.
    pub fn new(within: Duration, bytes_min: usize) -> Self {
        Self { within, bytes_min: bytes_min.max(1), since: None, taken: 0 }
    }

    /// Notes the result of a write: the client took `taken` bytes, and `left` are left. Returns whether that
    /// completes the current period; the next one begins if bytes are left.
    pub fn note(&mut self, taken: usize, left: usize) -> bool {
        self.taken += taken;
        let is_enough = left == 0 || self.taken >= self.bytes_min;
        if is_enough {
            self.since = None;
        }
        if left > 0 && self.since.is_none() {
            self.since = Some(Instant::now());
            self.taken = 0;
        }
        is_enough
    }

    /// Deadline of the current period.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|at| at + self.within)
    }

    /// Writes to a full socket until it has taken enough for one period.
    pub async fn wait<W>(
        mut self,
        unsent: &mut UnsentOutput,
        socket: &mut W,
    ) -> Result<(), WriteError>
    where
        W: AsyncWrite + Unpin,
    {
        self.note(0, unsent.bytes());
        let Some(due) = self.due() else { return Ok(()) };
        let progress = poll_fn(|context| {
            loop {
                let taken = ready!(unsent.poll_write(context, socket))?;
                if self.note(taken, unsent.bytes()) {
                    return Poll::Ready(Ok(()));
                }
            }
        });
        timeout_at(due, progress).await.unwrap_or(Err(WriteError::SlowReader(self.within)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);
    const BYTES_MIN: usize = 1_000;

    /// Output for a client whose socket takes 100 bytes before it must read.
    fn sending(bytes: usize) -> (UnsentOutput, DuplexStream, DuplexStream) {
        let mut unsent = UnsentOutput::default();
        unsent.push(Bytes::from(vec![7; bytes]));
        let (ours, theirs) = duplex(100);
        (unsent, ours, theirs)
    }

    /// Reads 100 bytes per period.
    async fn read_every(period: Duration, mut client: DuplexStream) {
        while client.read_exact(&mut [0; 100]).await.is_ok() {
            sleep(period).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_is_too_slow_after_one_period() {
        let (mut unsent, mut ours, _theirs) = sending(10_000);
        let began = Instant::now();
        let ended = SlowReader::new(WITHIN, BYTES_MIN).wait(&mut unsent, &mut ours).await;
        assert!(matches!(ended, Err(WriteError::SlowReader(WITHIN))), "{ended:?}");
        assert_eq!(began.elapsed(), WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_too_little_per_period_is_too_slow() {
        let (mut unsent, mut ours, theirs) = sending(10_000);
        let waiting = SlowReader::new(WITHIN, BYTES_MIN);
        tokio::select! {
            ended = waiting.wait(&mut unsent, &mut ours) => {
                assert!(matches!(ended, Err(WriteError::SlowReader(_))), "{ended:?}");
            }
            () = read_every(Duration::from_secs(10), theirs) => panic!("it was not cut off"),
        }
        assert!(unsent.bytes() > 9_000, "{}", unsent.bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_enough_in_each_period_is_sent_everything() {
        let (mut unsent, mut ours, theirs) = sending(10_000);
        let sending = async {
            while !unsent.is_empty() {
                SlowReader::new(WITHIN, BYTES_MIN)
                    .wait(&mut unsent, &mut ours)
                    .await
                    .expect("taken");
            }
            drop(ours);
        };
        tokio::join!(sending, read_every(Duration::from_secs(5), theirs));
        assert!(unsent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn taking_all_that_is_left_completes_a_period() {
        let (mut unsent, mut ours, theirs) = sending(150);
        let waiting = SlowReader::new(WITHIN, BYTES_MIN);
        tokio::select! {
            ended = waiting.wait(&mut unsent, &mut ours) => ended.expect("it took all"),
            () = read_every(Duration::from_secs(10), theirs) => panic!("nothing more was sent"),
        }
        assert!(unsent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn period_starts_with_pending_output_and_ends_when_enough_is_taken() {
        let mut reader = SlowReader::new(WITHIN, BYTES_MIN);
        assert_eq!(reader.due(), None);
        reader.note(50, 5_000);
        let due = reader.due().expect("something is left");
        sleep(Duration::from_secs(1)).await;
        assert!(!reader.note(BYTES_MIN - 1, 4_000));
        assert_eq!(reader.due(), Some(due));
        assert!(reader.note(1, 3_999));
        assert_eq!(reader.due(), Some(Instant::now() + WITHIN));
        assert!(reader.note(3_999, 0));
        assert_eq!(reader.due(), None);
    }
}
