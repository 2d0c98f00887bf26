//! Servers that send nothing or garbage, under a paused clock.

use std::io::ErrorKind;
use std::time::Duration;

use client_amqp::{AmqpError, Channel, Mode};
use tokio::io::{AsyncWriteExt, duplex};
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn silent_server_times_out_after_the_patience() {
    let (near, _far) = duplex(1 << 10);
    let begun = Instant::now();
    let opened = Channel::over(near, PATIENCE, Mode::Confirms, ["guest", "guest"]).await;
    let Err(AmqpError::Io(error)) = opened else { panic!("{opened:?}") };
    assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::TimedOut, PATIENCE));
}

#[tokio::test(start_paused = true)]
async fn closed_connection_and_garbage_are_different_errors() {
    let (near, far) = duplex(1 << 10);
    drop(far);
    let opened = Channel::over(near, PATIENCE, Mode::Confirms, ["guest", "guest"]).await;
    let Err(AmqpError::Io(error)) = opened else { panic!("{opened:?}") };
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe));
    let (near, mut far) = duplex(1 << 10);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("writes");
    let opened = Channel::over(near, PATIENCE, Mode::Confirms, ["guest", "guest"]).await;
    assert!(matches!(opened, Err(AmqpError::Malformed(_))), "{opened:?}");
}
