//! When a client is too slow to take what it is sent.
//!
//! A client may be slow, but while its socket is full it must take a least number of bytes in each period:
//! one that takes a byte a minute would hold its answers' memory for ever. The rule is kept apart from the
//! timer, because some sessions have one timer for everything.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, timeout_at};

use crate::unsent::Unsent;

/// Watches one client.
#[derive(Debug)]
pub struct SlowReader {
    within: Duration,
    bytes_min: usize,
    /// When the present period began; `None` while nothing is left to be taken.
    since: Option<Instant>,
    /// Taken in the present period.
    taken: usize,
}

/// Why a client was not sent everything.
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

    /// After each write: the client took `taken` bytes, and `left` are left. Returns whether that was enough
    /// for the present period; then the next one begins, if something is left.
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

    /// When the client is too slow, unless it takes enough before.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|at| at + self.within)
    }

    /// Writes to a socket that is full until it has taken enough for one period.
    pub async fn wait<W>(mut self, unsent: &mut Unsent, socket: &mut W) -> Result<(), WriteError>
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

    /// What is to be sent to a client whose socket takes 100 bytes that it does not read.
    fn sending(bytes: usize) -> (Unsent, DuplexStream, DuplexStream) {
        let mut unsent = Unsent::default();
        unsent.push(Bytes::from(vec![7; bytes]));
        let (ours, theirs) = duplex(100);
        (unsent, ours, theirs)
    }

    /// Reads 100 bytes each time.
    async fn read_every(period: Duration, mut client: DuplexStream) {
        while client.read_exact(&mut [0; 100]).await.is_ok() {
            sleep(period).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_too_slow_after_one_period() {
        let (mut unsent, mut ours, _theirs) = sending(10_000);
        let began = Instant::now();
        let ended = SlowReader::new(WITHIN, BYTES_MIN).wait(&mut unsent, &mut ours).await;
        assert!(matches!(ended, Err(WriteError::SlowReader(WITHIN))), "{ended:?}");
        assert_eq!(began.elapsed(), WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_little_now_and_then_is_too_slow() {
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
    async fn a_client_that_takes_enough_in_each_period_is_sent_everything() {
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
    async fn the_rest_is_enough_however_little_it_is() {
        let (mut unsent, mut ours, theirs) = sending(150);
        let waiting = SlowReader::new(WITHIN, BYTES_MIN);
        tokio::select! {
            ended = waiting.wait(&mut unsent, &mut ours) => ended.expect("it took all"),
            () = read_every(Duration::from_secs(10), theirs) => panic!("nothing more was sent"),
        }
        assert!(unsent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_period_begins_with_what_is_left_and_ends_with_what_is_taken() {
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
