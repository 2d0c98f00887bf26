//! A server that says nothing, or nothing that makes sense, under a paused clock.

use std::io::ErrorKind;
use std::time::Duration;

use client_amqp::{AmqpError, Channel, Mode};
use tokio::io::{AsyncWriteExt, duplex};
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_after_the_time_that_is_promised() {
    let (near, _far) = duplex(1 << 10);
    let begun = Instant::now();
    let opened = Channel::over(near, PATIENCE, Mode::Confirms, ["guest", "guest"]).await;
    let Err(AmqpError::Io(error)) = opened else { panic!("{opened:?}") };
    assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::TimedOut, PATIENCE));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_up_is_told_apart_from_one_that_babbles() {
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
