//! Reading into a buffer that grows.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads what is there into the room that the buffer has, without setting that to zero first. Returns how
/// many bytes came; 0 is the end.
pub fn poll_read<R, B>(
    socket: &mut R,
    context: &mut Context<'_>,
    buffer: &mut B,
) -> Poll<io::Result<usize>>
where
    R: AsyncRead + Unpin,
    B: BufMut,
{
    // The future holds nothing between polls, so one that is made for a single poll loses nothing.
    pin!(socket.read_buf(buffer)).poll(context)
}
