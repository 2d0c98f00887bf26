//! Tests the gateway with the client of loads, checkers and simulations, which shares no code with the gateway. The
//! guarantees of that client are checked here, too.

use bytes::Bytes;
use client_amqp::{AmqpError, Argument, Channel, Confirm, Mode, TimedStream};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional, duplex};
use tokio::net::TcpStream;

use crate::harness::*;

const GUEST: [&str; 2] = ["guest", "guest"];

async fn open(node: &Node, mode: Mode) -> Channel<TimedStream<TcpStream>> {
    let stream = TcpStream::connect(node.address).await.expect("connects");
    Channel::over(stream, SOON, mode, GUEST).await.expect("opens")
}

async fn publish_each<S: AsyncRead + AsyncWrite + Send + Unpin>(
    channel: &mut Channel<TimedStream<S>>,
    queue: &str,
    bodies: &[&[u8]],
) {
    for body in bodies {
        channel.publish("", queue, body);
    }
    while channel.unconfirmed() > 0 {
        let confirms = channel.confirms().await.expect("is confirmed");
        assert!(confirms.iter().all(|confirm| confirm.taken));
    }
}

#[tokio::test]
async fn confirmed_messages_are_delivered_and_committed_ones_not_again() {
    let node = Node::start().await;
    let large = vec![b'x'; 300_000];
    let bodies: [&[u8]; 3] = [b"", b"small", &large];
    let mut publisher = open(&node, Mode::Confirms).await;
    publisher.declare(&["work".to_owned()], &[]).await.expect("declares");
    publish_each(&mut publisher, "work", &bodies).await;
    assert_eq!(publisher.ready("work").await.expect("is there"), 3);

    let mut consumer = open(&node, Mode::Transactions).await;
    consumer.consume("work", 0).await.expect("consumes");
    for body in bodies {
        let delivery = consumer.delivery(SOON).await.expect("sound").expect("comes");
        assert_eq!(delivery.body, Bytes::copy_from_slice(body));
        match body.len() {
            0 => consumer.nack(delivery.tag, true),
            _ => consumer.ack(delivery.tag),
        }
    }
    consumer.commit().await.expect("commits");
    let again = consumer.delivery(SOON).await.expect("sound").expect("was given back");
    assert_eq!(again.body, Bytes::new());
    assert_eq!(consumer.delivery(A_WHILE).await.expect("sound"), None);
    consumer.ack(again.tag);
    consumer.commit().await.expect("commits");
    consumer.close().await.expect("says good-bye");
    assert_eq!(publisher.ready("work").await.expect("is there"), 0);
    node.shutdown().await;
}

#[tokio::test]
async fn rejected_message_is_nacked() {
    let node = Node::start().await;
    let mut publisher = open(&node, Mode::Confirms).await;
    let full =
        [("x-max-length", Argument::Number(1)), ("x-overflow", Argument::Text("reject-publish"))];
    publisher.declare(&["full".to_owned()], &full).await.expect("declares");
    publish_each(&mut publisher, "full", &[b"fits"]).await;
    let tag = publisher.publish("", "full", b"does not");
    let confirms = publisher.confirms().await.expect("an answer");
    assert_eq!(confirms, [Confirm { tag, taken: false }]);
}

#[tokio::test]
async fn fanout_exchange_delivers_to_all_bound_queues() {
    let node = Node::start().await;
    let mut publisher = open(&node, Mode::Confirms).await;
    let queues = ["a", "b", "c"].map(str::to_owned);
    publisher.declare(&queues, &[]).await.expect("declares");
    publisher.fan_out("all", &queues).await.expect("binds");
    publisher.publish("all", "", b"news");
    publisher.confirms().await.expect("is confirmed");
    for queue in &queues {
        assert_eq!(publisher.ready(queue).await.expect("is there"), 1);
    }
}

#[tokio::test]
async fn client_works_over_a_stream_that_is_not_a_socket() {
    let node = Node::start().await;
    let mut socket = TcpStream::connect(node.address).await.expect("connects");
    // So small that frames arrive in pieces.
    let (near, mut far) = duplex(100);
    let relay = tokio::spawn(async move { copy_bidirectional(&mut far, &mut socket).await });
    let mut channel = Channel::over(near, SOON, Mode::Confirms, GUEST).await.expect("opens");
    channel.declare(&["work".to_owned()], &[]).await.expect("declares");
    publish_each(&mut channel, "work", &[b"one", &[b'x'; 5_000]]).await;
    assert_eq!(channel.ready("work").await.expect("is there"), 2);
    channel.close().await.expect("says good-bye");
    relay.abort();
}

#[tokio::test]
async fn close_reason_of_the_server_is_reported() {
    let node = Node::start().await;
    let mut channel = open(&node, Mode::Confirms).await;
    let error = channel.consume("nowhere", 1).await.expect_err("there is no such queue");
    let AmqpError::Closed { code, text } = error else { panic!("{error}") };
    assert_eq!(code, 404);
    assert!(text.contains("nowhere"), "{text}");
    node.serves_other_clients().await;
}

#[tokio::test]
async fn blocking_client_works_in_a_thread() {
    use client_amqp::blocking::Connection;
    let node = Node::start().await;
    let address = node.address;
    let blocking = std::thread::spawn(move || {
        let mut connection = Connection::open(address, SOON, Mode::Confirms)?;
        connection.declare(&["work".to_owned()], "classic")?;
        connection.publish_to_each(&["work".to_owned()], b"one")?;
        connection.consume("work", 10)?;
        let first = connection.delivery(SOON)?;
        let second = connection.delivery(A_WHILE)?;
        assert!(second.is_none());
        connection.close()?;
        Ok::<_, AmqpError>(first.expect("comes").body)
    });
    let done = tokio::task::spawn_blocking(move || blocking.join().expect("does not panic"));
    assert_eq!(done.await.expect("joins").expect("speaks"), Bytes::from_static(b"one"));
}
