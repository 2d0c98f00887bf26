//! tx: messages and acknowledgements take effect together or not at all.

use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;

use crate::harness::{Client, Node};

async fn transactional(node: &Node) -> Client {
    let mut client = node.client().await;
    client.declare("q").await;
    client.open_channel(2).await;
    let came = client.call(2, TxSelect::default()).await;
    assert!(matches!(came.method(), Method::TxSelectOk(_)));
    client
}

async fn commit(client: &mut Client) {
    let came = client.call(2, TxCommit::default()).await;
    assert!(matches!(came.method(), Method::TxCommitOk(_)), "{:?}", came.method());
}

#[tokio::test]
async fn published_messages_become_visible_on_commit() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    client.publish(2, "", "q", b"a").await;
    client.publish(2, "", "q", b"b").await;
    assert_eq!(client.queue_counts("q").await.messages, 0);
    commit(&mut client).await;
    assert_eq!(client.queue_counts("q").await.messages, 2);
    client.publish(2, "", "q", b"c").await;
    let came = client.call(2, TxRollback::default()).await;
    assert!(matches!(came.method(), Method::TxRollbackOk(_)));
    commit(&mut client).await;
    assert_eq!(client.queue_counts("q").await.messages, 2);
}

#[tokio::test]
async fn acknowledgements_take_effect_on_commit() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    client.fill("q", &["a", "b"]).await;
    client.consume(2, "q", "tag").await;
    client.texts(2, 2).await;
    client.ack(2, 2, true).await;
    let came = client.call(2, TxRollback::default()).await;
    assert!(matches!(came.method(), Method::TxRollbackOk(_)));
    // The deliveries are unacknowledged again, so they can be acknowledged.
    client.ack(2, 1, false).await;
    client.publish(2, "", "q", b"c").await;
    commit(&mut client).await;
    assert_eq!(client.texts(2, 1).await, ["c"]);
    client.close_channel(2).await;
    assert_eq!(client.queue_counts("q").await.messages, 2);
}

#[tokio::test]
async fn unroutable_mandatory_message_is_returned_on_commit() {
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
async fn channel_cannot_use_both_transactions_and_confirms() {
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

#[tokio::test]
async fn rejected_commit_changes_nothing_and_dead_letters_nothing() {
    let node = Node::start().await;
    let mut client = transactional(&node).await;
    client.declare("dead").await;
    let full = [("x-max-length", 1.into()), ("x-overflow", "reject-publish".into())];
    client.declare_with("full", &full).await;
    client.fill("full", &["x"]).await;
    let dead =
        [("x-dead-letter-exchange", "".into()), ("x-dead-letter-routing-key", "dead".into())];
    client.declare_with("mortal", &dead).await;
    client.fill("mortal", &["a", "b"]).await;
    client.consume(2, "mortal", "tag").await;
    client.texts(2, 2).await;
    client.ack(2, 1, false).await;
    client.nack(2, 2, false).await;
    client.publish(2, "", "full", b"y").await;
    client.send(2, TxCommit::default()).await;
    let text = "PRECONDITION_FAILED - transaction not committed: batch 0 cannot be appended: the \
                topic is full: limit.records is reached";
    client.channel_closes(2, text).await;
    assert_eq!(client.queue_counts("mortal").await.messages, 2);
    assert_eq!(client.queue_counts("dead").await.messages, 0);

    // The same with room in the queue.
    client.get(1, "full").await.expect("it is there");
    client.open_channel(3).await;
    client.call(3, TxSelect::default()).await;
    client.consume(3, "mortal", "tag").await;
    assert_eq!(client.texts(3, 2).await, ["a", "b"]);
    client.ack(3, 1, false).await;
    client.nack(3, 2, false).await;
    client.publish(3, "", "full", b"y").await;
    let came = client.call(3, TxCommit::default()).await;
    assert!(matches!(came.method(), Method::TxCommitOk(_)), "{:?}", came.method());
    assert_eq!(client.queue_counts("mortal").await.messages, 0);
    assert_eq!(client.get(1, "dead").await.map(|(_, body)| body), Some(b"b".to_vec()));
    assert_eq!(client.get(1, "full").await.map(|(_, body)| body), Some(b"y".to_vec()));
}
