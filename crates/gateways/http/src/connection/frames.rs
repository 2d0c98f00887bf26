//! Rate limit of HTTP/2 frames that are cheap for a client and costly for the node: cancelled requests
//! (CVE-2023-44487) and frames without a request. A client that sends too many of them is disconnected.
//!
//! The HTTP/2 implementation bounds them as far as memory is concerned: it replies to `PING` and `SETTINGS` before it
//! reads on, and limits requests that are cancelled before it hands them over, parts of a header block, and empty or
//! tiny DATA frames. It does not count requests that are cancelled after their handlers have begun, nor frames over
//! time. Those are counted here as they leave the socket: the first bytes of a frame have its length and type.

use std::io::{Error, ErrorKind};

use tokio::time::Instant;

use crate::connection::opening::PREFACE;
use crate::limits::{HTTP2_CONTROL_FRAMES_MAX, HTTP2_COUNTED_FOR, HTTP2_RESETS_MAX};

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Counters of a connection's received frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Bytes before the next frame.
    skipped: usize,
    head: [u8; HEAD_BYTES],
    of_head: usize,
    since: Instant,
    resets: u32,
    controls: u32,
}

impl Frames {
    /// Counters of a new connection.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            skipped: PREFACE.len(),
            head: [0; HEAD_BYTES],
            of_head: 0,
            since: now,
            resets: 0,
            controls: 0,
        }
    }

    /// Counts the frames in received bytes. `Err`: close the connection.
    pub(crate) fn came(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Error> {
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            let of_head = (HEAD_BYTES - self.of_head).min(bytes.len());
            self.head[self.of_head..self.of_head + of_head].copy_from_slice(&bytes[..of_head]);
            self.of_head += of_head;
            bytes = &bytes[of_head..];
            if self.of_head == HEAD_BYTES {
                let [high, middle, low, kind, ..] = self.head;
                self.of_head = 0;
                self.skipped = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.count(kind, now)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: u8, now: Instant) -> Result<(), Error> {
        let (counted, most) = match kind {
            // These belong to requests, and are bounded with them.
            DATA | HEADERS | WINDOW_UPDATE | CONTINUATION => return Ok(()),
            RST_STREAM => (&mut self.resets, HTTP2_RESETS_MAX),
            _ => (&mut self.controls, HTTP2_CONTROL_FRAMES_MAX),
        };
        *counted += 1;
        if *counted <= most {
            return Ok(());
        }
        if now.duration_since(self.since) < HTTP2_COUNTED_FOR {
            let what =
                if kind == RST_STREAM { "requests taken back" } else { "frames for nothing" };
            let why = format!("more than {most} {what} within {HTTP2_COUNTED_FOR:?}");
            return Err(Error::new(ErrorKind::InvalidData, why));
        }
        (self.resets, self.controls, self.since) = (0, 0, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, length: u32) -> Vec<u8> {
        let [_, high, middle, low] = length.to_be_bytes();
        let mut bytes = vec![high, middle, low, kind, 0, 0, 0, 0, 1];
        // The content must not be parsed as frames.
        bytes.resize(HEAD_BYTES + length as usize, RST_STREAM);
        bytes
    }

    #[test]
    fn control_frames_are_counted_however_the_bytes_are_split() {
        for piece in [1, 2, 7, 9, 10, 1_000_000] {
            let mut bytes = PREFACE.to_vec();
            for _ in 0..HTTP2_CONTROL_FRAMES_MAX + 1 {
                for kind in [DATA, HEADERS, WINDOW_UPDATE, CONTINUATION] {
                    bytes.extend(frame(kind, 13));
                }
            }
            for _ in 0..HTTP2_RESETS_MAX {
                bytes.extend(frame(RST_STREAM, 4));
            }
            for _ in 0..HTTP2_CONTROL_FRAMES_MAX {
                bytes.extend(frame(PING, 8));
            }
            let now = Instant::now();
            let mut frames = Frames::new(now);
            for part in bytes.chunks(piece) {
                frames.came(part, now).expect("is in order");
            }
            frames.came(&frame(0x42, 0), now).expect_err("one too many");
            frames.came(&frame(RST_STREAM, 0), now).expect_err("one too many");
        }
    }

    #[test]
    fn occasional_resets_stay_within_the_limit() {
        let mut now = Instant::now();
        let mut frames = Frames::new(now);
        frames.came(PREFACE, now).expect("is in order");
        for _ in 0..10 {
            for _ in 0..HTTP2_RESETS_MAX {
                frames.came(&frame(RST_STREAM, 4), now).expect("is in order");
            }
            now += HTTP2_COUNTED_FOR;
        }
    }
}
