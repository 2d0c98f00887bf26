//! Reading into a buffer that grows.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads available bytes into the buffer's spare capacity, without zeroing it first. Returns their number; 0 is the
/// end of the stream.
pub fn poll_read<R, B>(
    socket: &mut R,
    context: &mut Context<'_>,
    buffer: &mut B,
) -> Poll<io::Result<usize>>
where
    R: AsyncRead + Unpin,
    B: BufMut,
{
    // The future holds no state between polls, so one built for a single poll loses nothing.
    pin!(socket.read_buf(buffer)).poll(context)
}
