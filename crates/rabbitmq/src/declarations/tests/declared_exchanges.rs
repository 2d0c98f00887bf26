use super::*;

#[tokio::test]
async fn standard_exchanges_are_predeclared() {
    let node = open().await;
    let names: Vec<_> =
        node.vhost.exchanges().iter().map(|exchange| exchange.name.to_string()).collect();
    let expected = [
        "",
        "amq.direct",
        "amq.fanout",
        "amq.headers",
        "amq.match",
        "amq.rabbitmq.trace",
        "amq.topic",
    ];
    assert_eq!(names, expected);
    // An identical declaration succeeds, and a different one fails.
    node.exchange("amq.topic", "topic").await;
    assert_eq!(
        text(node.exchange_with("amq.topic", "direct", &[]).await),
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.topic' in vhost '/': \
         received 'direct' but current is 'topic'"
    );
}

#[tokio::test]
async fn second_declaration_must_equal_the_first() {
    let node = open().await;
    node.exchange_with("x", "direct", &[("alternate-exchange", "a".into())]).await.expect("new");
    node.exchange_with("x", "direct", &[("alternate-exchange", "a".into())]).await.expect("same");
    assert_eq!(
        text(node.exchange_with("x", "direct", &[]).await),
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'x' in vhost \
         '/': received none but current is the value 'a' of type 'longstr'"
    );
    let arguments = &table(&[("alternate-exchange", "a".into())]);
    let transient = ExchangeDeclaration {
        name: "x",
        kind: "direct",
        durable: false,
        auto_delete: false,
        internal: false,
        arguments,
    };
    assert_eq!(
        text(exchanges::declare(&node.vhost, transient).await),
        "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'x' in vhost '/': received \
         'false' but current is 'true'"
    );
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_texts_of_rabbitmq() {
    let node = open().await;
    let vhost = &node.vhost;
    for (refused, expected) in [
        (
            node.exchange_with("x", "fast", &[]).await,
            "PRECONDITION_FAILED - unknown exchange type 'fast'",
        ),
        (
            node.exchange_with("", "direct", &[]).await,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            node.exchange_with("amq.mine", "direct", &[]).await,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            node.exchange_with("x", "direct", &[("alternate-exchange", 1.into())]).await,
            "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in \
             exchange 'x' in vhost '/'",
        ),
        (
            node.exchange_with("x", "x-delayed-message", &[]).await,
            "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing \
             exchange type",
        ),
        (
            node.exchange_with("x", "x-consistent-hash", &[("hash-property", "app_id".into())])
                .await,
            "PRECONDITION_FAILED - Unsupported property: app_id",
        ),
        (
            node.exchange_with("x", "x-federation-upstream", &[]).await,
            "PRECONDITION_FAILED - Argument \"x-max-hops\" missing",
        ),
        (
            node.exchange_with("x", "x-federation-upstream", &[("x-max-hops", 1.into())]).await,
            "PRECONDITION_FAILED - Argument \"x-max-hops\" must be of type long",
        ),
        (exchanges::check(vhost, "x").await, "NOT_FOUND - no exchange 'x' in vhost '/'"),
        (
            exchanges::delete(vhost, "amq.topic", false).await,
            "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
        (
            node.reached_with("x", "k", &NoHeaders).map(drop),
            "NOT_FOUND - no exchange 'x' in vhost '/'",
        ),
        (
            node.reached_with("amq.rabbitmq.trace", "k", &NoHeaders).map(drop),
            "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost \
             '/'",
        ),
    ] {
        assert_eq!(text(refused), expected);
    }
}

#[tokio::test]
async fn exchange_with_bindings_is_not_deleted_if_unused_is_required() {
    let node = open().await;
    node.queue("q").await;
    node.exchange("x", "fanout").await;
    node.bind("x", &queue_named("q"), "").await;
    assert_eq!(
        text(exchanges::delete(&node.vhost, "x", true).await),
        "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    );
    exchanges::delete(&node.vhost, "x", false).await.expect("it is deleted");
    assert!(exchanges::check(&node.vhost, "x").await.is_err());
    assert!(node.documents("amqp.bindings").is_empty());
    exchanges::delete(&node.vhost, "x", false).await.expect("it is deleted already");
}

#[tokio::test]
async fn auto_delete_exchanges_are_deleted_in_cascade_with_their_last_bindings() {
    let node = open().await;
    let queue = node.queue("q").await;
    for name in ["first", "second"] {
        let arguments = &FieldTable::new();
        let declaration = ExchangeDeclaration {
            name,
            kind: "fanout",
            durable: true,
            auto_delete: true,
            internal: false,
            arguments,
        };
        exchanges::declare(&node.vhost, declaration).await.expect("it is declared");
    }
    node.bind("first", &exchange_named("second"), "").await;
    node.bind("second", &queue_named("q"), "a").await;
    node.bind("second", &queue_named("q"), "b").await;
    assert_eq!(node.reached("first", ""), ["q"]);
    node.unbind("second", &queue_named("q"), "a").await;
    assert_eq!(node.reached("first", ""), ["q"]);
    queues::delete(&node.vhost, node.client, "q", false, false).await.expect("it is deleted");
    assert!(queue.is_deleted());
    assert!(exchanges::check(&node.vhost, "first").await.is_err());
    assert!(exchanges::check(&node.vhost, "second").await.is_err());
    assert!(node.documents("amqp.exchanges").is_empty());
}

#[tokio::test]
async fn unmatched_message_goes_to_the_alternate_exchange() {
    let node = open().await;
    node.queue("found").await;
    node.queue("lost").await;
    node.exchange_with("x", "direct", &[("alternate-exchange", "rest".into())]).await.expect("x");
    node.bind("x", &queue_named("found"), "k").await;
    assert!(node.reached("x", "other").is_empty());
    // It need not exist when the exchange is declared.
    node.exchange("rest", "fanout").await;
    node.bind("rest", &queue_named("lost"), "").await;
    assert_eq!(node.reached("x", "other"), ["lost"]);
    assert_eq!(node.reached("x", "k"), ["found"]);
}

#[tokio::test]
async fn delayed_exchange_matches_by_its_inner_type_and_marks_delayed_messages() {
    let node = open().await;
    node.queue("q").await;
    let arguments = [("x-delayed-type", "topic".into())];
    node.exchange_with("x", "x-delayed-message", &arguments).await.expect("it is declared");
    node.bind("x", &queue_named("q"), "a.*").await;
    for deferred in [true, false] {
        let mut found = Vec::new();
        let message = Message { keys: &["a.b"], headers: &NoHeaders, deferred };
        node.vhost.routes().route("x", &message, &mut found).expect("it is there");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].deferred, deferred);
    }
}
