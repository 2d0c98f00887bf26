//! The messages between coordinator and agent, and their framing.
//!
//! A frame is its length (four bytes, big endian), the length of its text, the text (JSON), and
//! binary data. A frame over the size limit is not read.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use load::{Receivers, Report};
use results::{Host, Process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::assignment::Assignment;

/// Protocol version; both sides must have the same.
pub(crate) const PROTOCOL: u32 = 1;
/// Suite version; both sides must measure in the same way.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Frame limit before the token has been checked.
pub(crate) const STRANGER_BYTES_MAX: usize = 4 << 10;
/// A report has up to half a million events of at most 50 bytes.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

/// The coordinator's first message. It is the same in all versions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) version: String,
    pub(crate) token: Option<String>,
}

/// The agent's reply to [`Hello`]. It is the same in all versions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Come { protocol: u32, version: String, host: Box<Host> },
    Refused { why: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Reads the agent's clock.
    Clock,
    /// Makes all connections and starts the receivers.
    Prepare(Box<Assignment>),
    /// Starts the senders at this time of the coordinator's clock.
    Start {
        at_ns: u64,
    },
    /// Fetches the events since the last look.
    Look {
        latencies: bool,
    },
    Receivers(Receivers),
    StopSenders,
    /// Closes all connections. The last events can still be fetched.
    End {
        at_once: bool,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Clock {
        now_ns: u64,
    },
    Done,
    /// Followed by the journal.
    Report(Box<Report>),
    Ended(Farewell),
    Failed {
        why: String,
    },
}

/// Sent when the agent's work has ended; its last events are still reported.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Farewell {
    /// Errors at the agent and their counts.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Resource usage of the agent.
    pub(crate) processes: Vec<Process>,
}

#[derive(Debug, Error)]
pub(crate) enum WireError {
    #[error("the connection ended")]
    Closed,
    #[error("{0}")]
    Io(io::Error),
    #[error("it said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    #[error("what it said is no message of this protocol")]
    Malformed,
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error.kind() {
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// One side of the connection.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
}

impl Line {
    pub(crate) fn new(stream: TcpStream) -> Result<Self, WireError> {
        // Disables Nagle's algorithm: messages are small, and clocks are read from their round
        // trips.
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    pub(crate) async fn send<T: Serialize>(
        &mut self,
        message: &T,
        bytes: &[u8],
        within: Duration,
    ) -> Result<(), WireError> {
        let text = serde_json::to_vec(message).map_err(|_| WireError::Malformed)?;
        let length = 4 + text.len() + bytes.len();
        if length > FRAME_BYTES_MAX {
            return Err(WireError::TooLong(length));
        }
        let mut frame = Vec::with_capacity(4 + length);
        frame.extend_from_slice(&(length as u32).to_be_bytes());
        frame.extend_from_slice(&(text.len() as u32).to_be_bytes());
        frame.extend_from_slice(&text);
        frame.extend_from_slice(bytes);
        let written = timeout(within, self.stream.write_all(&frame)).await;
        Ok(written.map_err(|_| WireError::Silent(within))??)
    }

    /// Receives a message of at most `max` bytes, and the bytes that follow its text.
    pub(crate) async fn receive<T: DeserializeOwned>(
        &mut self,
        max: usize,
        within: Duration,
    ) -> Result<(T, Vec<u8>), WireError> {
        let frame = timeout(within, self.frame(max)).await;
        let mut frame = frame.map_err(|_| WireError::Silent(within))??;
        let (length, rest) = frame.split_first_chunk().ok_or(WireError::Malformed)?;
        let text_bytes = u32::from_be_bytes(*length) as usize;
        let text = rest.get(..text_bytes).ok_or(WireError::Malformed)?;
        let message = serde_json::from_slice(text).map_err(|_| WireError::Malformed)?;
        let bytes = frame.split_off(4 + text_bytes);
        Ok((message, bytes))
    }

    async fn frame(&mut self, max: usize) -> Result<Vec<u8>, WireError> {
        let length = self.stream.read_u32().await? as usize;
        if length > max {
            return Err(WireError::TooLong(length));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).await?;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    async fn pair() -> (Line, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("has one");
        let (made, taken) = tokio::join!(TcpStream::connect(address), listener.accept());
        (Line::new(made.expect("connects")).expect("is open"), taken.expect("accepts").0)
    }

    async fn receive(bytes: &[u8]) -> Result<(Hello, Vec<u8>), WireError> {
        let (mut line, mut other) = pair().await;
        other.write_all(bytes).await.expect("writes");
        drop(other);
        line.receive(STRANGER_BYTES_MAX, SOON).await
    }

    #[tokio::test]
    async fn message_and_its_bytes_round_trip() {
        let (mut line, other) = pair().await;
        let hello = Hello { protocol: 7, version: "1".to_owned(), token: Some("t".to_owned()) };
        line.send(&hello, b"behind", SOON).await.expect("is sent");
        let heard = Line::new(other).expect("is open").receive(STRANGER_BYTES_MAX, SOON).await;
        assert_eq!(heard.expect("comes"), (hello, b"behind".to_vec()));
    }

    #[tokio::test]
    async fn malformed_and_oversized_frames_are_errors() {
        assert!(matches!(receive(b"").await, Err(WireError::Closed)));
        assert!(matches!(receive(b"\0\0\0\x09\0\0\0\x02{}").await, Err(WireError::Closed)));
        assert!(matches!(receive(b"GET / HTTP/1.1\r\n\r\n").await, Err(WireError::TooLong(_))));
        for malformed in [&b"\0\0\0\x00"[..], b"\0\0\0\x06\0\0\0\x02{}", b"\0\0\0\x06\0\0\0\xFF{}"]
        {
            assert!(matches!(receive(malformed).await, Err(WireError::Malformed)), "{malformed:?}");
        }
    }

    #[tokio::test]
    async fn receive_from_a_silent_peer_times_out() {
        let (mut line, _other) = pair().await;
        let heard = line.receive::<Hello>(STRANGER_BYTES_MAX, Duration::from_millis(20)).await;
        assert!(matches!(heard, Err(WireError::Silent(_))));
    }
}
