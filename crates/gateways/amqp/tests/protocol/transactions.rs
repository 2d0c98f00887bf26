//! tx: all of it or nothing.

use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;

use crate::harness::{Client, Node};

async fn transactional(node: &Node) -> Client {
    let mut client = node.client().await;
    client.declare("q").await;
    client.open_channel(2).await;
    let came = client.ask(2, TxSelect::default()).await;
    assert!(matches!(came.method(), Method::TxSelectOk(_)));
    client
}

async fn commit(client: &mut Client) {
    let came = client.ask(2, TxCommit::default()).await;
    assert!(matches!(came.method(), Method::TxCommitOk(_)), "{:?}", came.method());
}

#[tokio::test]
async fn messages_are_there_once_they_are_committed() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    client.publish(2, "", "q", b"a").await;
    client.publish(2, "", "q", b"b").await;
    assert_eq!(client.look_at("q").await.messages, 0);
    commit(&mut client).await;
    assert_eq!(client.look_at("q").await.messages, 2);
    client.publish(2, "", "q", b"c").await;
    let came = client.ask(2, TxRollback::default()).await;
    assert!(matches!(came.method(), Method::TxRollbackOk(_)));
    commit(&mut client).await;
    assert_eq!(client.look_at("q").await.messages, 2);
}

#[tokio::test]
async fn answers_count_once_they_are_committed() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    client.fill("q", &["a", "b"]).await;
    client.consume(2, "q", "tag").await;
    client.texts(2, 2).await;
    client.ack(2, 2, true).await;
    let came = client.ask(2, TxRollback::default()).await;
    assert!(matches!(came.method(), Method::TxRollbackOk(_)));
    // They are unanswered again, so they can be answered.
    client.ack(2, 1, false).await;
    client.publish(2, "", "q", b"c").await;
    commit(&mut client).await;
    assert_eq!(client.texts(2, 1).await, ["c"]);
    client.close_channel(2).await;
    assert_eq!(client.look_at("q").await.messages, 2);
}

#[tokio::test]
async fn what_leads_nowhere_is_returned_when_it_is_committed() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    let publish =
        BasicPublish { routing_key: "nowhere", mandatory: true, ..BasicPublish::default() };
    client.publish_with(2, publish, &Properties::default(), b"x").await;
    client.is_silent().await;
    client.send(2, TxCommit::default()).await;
    let returned = client.next(2).await;
    assert!(matches!(returned.method.method(), Method::BasicReturn(_)));
    let came = client.method(2).await;
    assert!(matches!(came.method(), Method::TxCommitOk(_)));
}

#[tokio::test]
async fn a_channel_is_either_transactional_or_confirms() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    client.send(2, ConfirmSelect::default()).await;
    client.channel_closes(2, "PRECONDITION_FAILED - cannot switch from tx to confirm mode").await;
    client.select_confirms(1).await;
    let text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode";
    client.refuses(1, TxSelect::default(), text).await;
    let text = "PRECONDITION_FAILED - channel is not transactional";
    client.refuses(1, TxCommit::default(), text).await;
    client.refuses(1, TxRollback::default(), text).await;
}
