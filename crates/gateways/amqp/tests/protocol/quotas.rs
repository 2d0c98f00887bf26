//! Quotas and limits as seen by AMQP clients.

use access::quotas::Alteration;
use access::user_limits::{Limit, LimitTarget};
use access_rules::quota::{Entity, EntityType, Quota};
use gateway_amqp::codec::methods::*;

use crate::harness::*;

impl Node {
    /// Sets a quota of `guest` per second; `None`: no limit.
    async fn limit(&self, quota: Quota, rate: Option<f64>) {
        let entity = Entity::of([(EntityType::User, Some("guest".to_owned()))]);
        let values = vec![(quota.word().to_owned(), rate)];
        let altered = self.quotas.alter(&[Alteration { entity, values }], false).await;
        assert_eq!(altered, [Ok(())]);
    }
}

#[tokio::test]
async fn publisher_over_its_quota_is_blocked_and_not_read() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    client.select_confirms(1).await;
    node.limit(Quota::ProducerByteRate, Some(10.0)).await;
    client.publish(1, "", "q", &[b'x'; 10_000]).await;
    let (mut blocked, mut confirmed) = (false, false);
    while !(blocked && confirmed) {
        // The message that exceeded the quota is accepted.
        match client.frame().await.expect("the connection is open").method() {
            Method::ConnectionBlocked(why) => {
                assert_eq!(why.reason, "quota exceeded");
                blocked = true;
            }
            Method::BasicAck(_) => confirmed = true,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(node.quotas.throttled()[1].by_quota[0].1, 1);
    client.publish(1, "", "q", b"later").await;
    client.is_silent().await;
    node.limit(Quota::ProducerByteRate, None).await;
    let came = client.method(0).await;
    assert!(matches!(came.method(), Method::ConnectionUnblocked(_)), "{:?}", came.method());
    client.confirmed_up_to(1, 2).await;
    assert_eq!(node.quotas.throttled()[1].waiting, 0);
}

#[tokio::test]
async fn consumer_over_its_quota_gets_no_deliveries_until_it_is_under_it() {
    let node = Node::start().await;
    let (mut client, mut publisher) = (node.client().await, node.client().await);
    client.declare("q").await;
    client.consume(1, "q", "c").await;
    node.limit(Quota::ConsumerByteRate, Some(10.0)).await;
    publisher.publish(1, "", "q", &[b'x'; 10_000]).await;
    assert_eq!(client.next(1).await.text().len(), 10_000);
    publisher.fill("q", &["later"]).await;
    client.is_silent().await;
    // The client is still read, and may open channels.
    client.open_channel(2).await;
    node.limit(Quota::ConsumerByteRate, None).await;
    assert_eq!(client.next(1).await.text(), "later");
    // A client that gets single messages is blocked at its next request.
    node.limit(Quota::ConsumerByteRate, Some(10.0)).await;
    publisher.declare("g").await;
    publisher.fill("g", &[&"x".repeat(10_000)]).await;
    let (message, _) = client.get(2, "g").await.expect("a message");
    assert_eq!(message.text().len(), 10_000);
    let came = client.method(0).await;
    assert!(matches!(came.method(), Method::ConnectionBlocked(_)), "{:?}", came.method());
    client.close_channel_later(2).await;
    client.is_silent().await;
    node.limit(Quota::ConsumerByteRate, None).await;
    let came = client.method(0).await;
    assert!(matches!(came.method(), Method::ConnectionUnblocked(_)), "{:?}", came.method());
    let came = client.method(2).await;
    assert!(matches!(came.method(), Method::ChannelCloseOk(_)), "{:?}", came.method());
}

#[tokio::test]
async fn client_over_its_mutation_quota_is_blocked() {
    let node = Node::start().await;
    let mut client = node.client().await;
    node.limit(Quota::ControllerMutationRate, Some(0.01)).await;
    client.declare("a").await;
    // Declaring an existing queue is no mutation.
    let mut other = node.client().await;
    let waits = |seen: Vec<access::quotas::ThrottledSeen>| seen[1].by_quota[2].1;
    assert_eq!(waits(node.quotas.throttled()), 1);
    other.declare("a").await;
    assert_eq!(waits(node.quotas.throttled()), 1);
    let came = client.method(0).await;
    assert!(matches!(came.method(), Method::ConnectionBlocked(_)), "{:?}", came.method());
    node.limit(Quota::ControllerMutationRate, None).await;
    let came = client.method(0).await;
    assert!(matches!(came.method(), Method::ConnectionUnblocked(_)), "{:?}", came.method());
    client.declare("b").await;
}

#[tokio::test]
async fn limits_of_connections_channels_and_queues_are_enforced() {
    let node = Node::start().await;
    let set = async |of: LimitTarget<'_>, limit, value| {
        assert!(node.users.set_limit(of, limit, Some(value)).await.expect("is set"));
    };
    let mut client = node.client().await;
    set(LimitTarget::User("guest"), Limit::MaxChannels, 2).await;
    client.open_channel(2).await;
    let mut second = node.connection().await;
    second.send(1, ChannelOpen::default()).await;
    let text = "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit \
                of (2)";
    second.connection_closes(530, text).await;
    client.close_channel(2).await;
    let mut second = node.connection().await;
    second.open_channel(1).await;

    let open = ConnectionOpen { virtual_host: "/", ..ConnectionOpen::default() };
    for (of, text) in [
        (
            LimitTarget::User("guest"),
            "NOT_ALLOWED - Connection refused for user 'guest': user connection limit (2) is reached",
        ),
        (
            LimitTarget::VirtualHost("/"),
            "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached",
        ),
    ] {
        set(of, Limit::MaxConnections, 2).await;
        let mut third = node.socket().await;
        third.log_in("guest", "guest").await;
        third.tune(0).await;
        third.send(0, open).await;
        third.connection_closes(530, text).await;
        assert!(node.users.set_limit(of, Limit::MaxConnections, Some(-1)).await.expect("is set"));
        node.connection().await.close().await;
    }

    client.declare("a").await;
    set(LimitTarget::VirtualHost("/"), Limit::MaxQueues, 1).await;
    client.declare("a").await;
    let declare = QueueDeclare { queue: "b", ..QueueDeclare::default() };
    let text =
        "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '/' (1) is reached";
    client.refuses(1, declare, text).await;
    let none = node.users.set_limit(LimitTarget::VirtualHost("/"), Limit::MaxQueues, None).await;
    assert!(none.expect("is set"));
    client.declare("b").await;
}
