use super::*;
use crate::declarations::MessageHeaders;
use message::Properties;
use values::EncodedTable;

#[tokio::test]
async fn binding_requires_both_ends_to_exist() {
    let node = open().await;
    node.queue("q").await;
    node.exchange("x", "direct").await;
    let missing_queue = "NOT_FOUND - no queue 'nobody' in vhost '/'";
    let missing_exchange = "NOT_FOUND - no exchange 'nowhere' in vhost '/'";
    let to_nobody = queue_named("nobody");
    assert_eq!(text(node.bind_with("x", &to_nobody, "", &[]).await), missing_queue);
    assert_eq!(text(node.bind_with("nowhere", &to_nobody, "", &[]).await), missing_exchange);
    let to_nowhere = exchange_named("nowhere");
    assert_eq!(text(node.bind_with("x", &to_nowhere, "", &[]).await), missing_exchange);
    let default = "ACCESS_REFUSED - operation not permitted on the default exchange";
    assert_eq!(text(node.bind_with("", &queue_named("q"), "", &[]).await), default);
    assert_eq!(text(node.bind_with("x", &exchange_named(""), "", &[]).await), default);
    // A missing binding counts as removed.
    node.unbind("x", &to_nobody, "").await;
    node.unbind("nowhere", &queue_named("q"), "").await;
}

#[tokio::test]
async fn bindings_that_an_exchange_type_cannot_read_are_rejected() {
    let node = open().await;
    node.queue("q").await;
    node.exchange("hash", "x-consistent-hash").await;
    let to = queue_named("q");
    for (key, expected) in [
        ("0", "PRECONDITION_FAILED - The binding key must be greater than 0"),
        ("-7", "PRECONDITION_FAILED - The binding key must be greater than 0"),
        ("much", "PRECONDITION_FAILED - The binding key must be an integer: <<\"much\">>"),
    ] {
        assert_eq!(text(node.bind_with("hash", &to, key, &[]).await), expected);
    }
    for (value, expected) in [
        (
            "some".into(),
            "PRECONDITION_FAILED - Invalid x-match field value <<\"some\">>; expected all, any, \
             all-with-x, or any-with-x",
        ),
        (
            1.into(),
            "PRECONDITION_FAILED - Invalid x-match field type signedint (value 1); expected \
             longstr",
        ),
    ] {
        let arguments = [("x-match", value)];
        assert_eq!(text(node.bind_with("amq.headers", &to, "", &arguments).await), expected);
    }
}

#[tokio::test]
async fn bindings_with_reordered_arguments_are_the_same() {
    let node = open().await;
    node.queue("q").await;
    let to = queue_named("q");
    let one = [("a", 1.into()), ("b", "x".into())];
    let other = [("b", "x".into()), ("a", FieldValue::I32(1))];
    node.bind_with("amq.headers", &to, "", &one).await.expect("new");
    node.bind_with("amq.headers", &to, "", &other).await.expect("there");
    assert_eq!(node.vhost.bindings().len(), 1);
}

#[tokio::test]
async fn headers_exchange_matches_undecoded_headers() {
    let node = open().await;
    for name in ["all", "any", "x"] {
        node.queue(name).await;
    }
    let bind = |to: &'static str, arguments: Vec<(&'static str, FieldValue)>| {
        let node = &node;
        async move {
            let bound = node.bind_with("amq.headers", &queue_named(to), "", &arguments).await;
            bound.expect("it is bound");
        }
    };
    bind("all", vec![("kind", "order".into()), ("size", 7.into()), ("x-ignored", 1.into())]).await;
    bind("any", vec![("x-match", "any".into()), ("kind", "bill".into()), ("s", FieldValue::Void)])
        .await;
    bind("x", vec![("x-match", "any-with-x".into()), ("x-source", "web".into())]).await;
    for (headers, expected) in [
        (vec![("kind", "order".into()), ("size", FieldValue::I64(7))], vec!["all"]),
        (vec![("kind", "order".into())], vec![]),
        (vec![("kind", "bill".into())], vec!["any"]),
        (vec![("s", "whatever".into())], vec!["any"]),
        (vec![("x-source", "web".into())], vec!["x"]),
        (vec![], vec![]),
    ] {
        let encoded = table(&headers).to_bytes();
        let properties =
            Properties { headers: Some(EncodedTable(&encoded)), ..Properties::default() };
        let found = node.reached_with("amq.headers", "", &MessageHeaders(&properties));
        assert_eq!(found.expect("it is there"), expected, "{headers:?}");
    }
}

#[tokio::test]
async fn many_bindings_share_few_documents_and_are_deleted_with_their_queue() {
    let node = open().await;
    node.queue("q").await;
    node.exchange("x", "direct").await;
    let (to, keys) = (queue_named("q"), (0..200).map(|number| format!("key-{number}")));
    let keys: Vec<_> = keys.collect();
    let made = keys.iter().map(|key| node.bind("x", &to, key));
    futures_util::future::join_all(made).await;
    assert_eq!(node.documents("amqp.bindings").len(), 4);
    let node = node.restart().await;
    assert_eq!(node.vhost.bindings().len(), 200);
    assert!(keys.iter().all(|key| node.reached("x", key) == ["q"]));
    for key in &keys[..100] {
        node.unbind("x", &to, key).await;
    }
    let node = node.restart().await;
    assert_eq!(node.vhost.bindings().len(), 100);
    assert!(keys[..100].iter().all(|key| node.reached("x", key).is_empty()));
    assert!(keys[100..].iter().all(|key| node.reached("x", key) == ["q"]));
    queues::delete(&node.vhost, node.client, "q", false, false).await.expect("it is deleted");
    assert!(node.documents("amqp.bindings").is_empty());
    assert!(node.vhost.bindings().is_empty());
}

#[tokio::test]
async fn exclusive_queue_is_bound_by_its_owner_only() {
    let node = open().await;
    node.transient_queue("mine", true, false).await;
    node.bind("amq.fanout", &queue_named("mine"), "").await;
    let stranger = OwnerId(2);
    node.topology.open_owner(stranger);
    let (destination, arguments) = (&queue_named("mine"), &FieldTable::new());
    let request = BindingRequest { source: "amq.fanout", destination, key: "", arguments };
    assert!(
        text(bindings::unbind(&node.vhost, stranger, request).await)
            .starts_with("RESOURCE_LOCKED - ")
    );
    let request = BindingRequest { key: "other", ..request };
    assert!(
        text(bindings::bind(&node.vhost, stranger, request).await)
            .starts_with("RESOURCE_LOCKED - ")
    );
}

#[tokio::test]
async fn upstream_exchange_drops_messages_that_came_from_its_downstream() {
    let node = open().await;
    node.queue("q").await;
    let arguments: [(&str, FieldValue); 3] = [
        ("x-max-hops", FieldValue::I64(2)),
        ("x-downstream-name", "down".into()),
        ("x-downstream-vhost", "/".into()),
    ];
    node.exchange_with("up", "x-federation-upstream", &arguments).await.expect("declared");
    node.bind("up", &queue_named("q"), "").await;
    let hop = |cluster: &str| {
        FieldValue::Table(table(&[("cluster-name", cluster.into()), ("vhost", "/".into())]))
    };
    for (hops, expected) in [
        (None, true),
        (Some(vec![hop("other")]), true),
        (Some(vec![hop("down")]), false),
        (Some(vec![hop("other"), hop("third")]), false),
        // An unreadable entry counts as a hop.
        (Some(vec![hop("other"), FieldValue::Void]), false),
    ] {
        let text = format!("{hops:?}");
        let headers = hops.map(|hops| table(&[("x-received-from", FieldValue::Array(hops))]));
        let encoded = headers.map(|headers| headers.to_bytes());
        let headers = encoded.as_ref().map(|encoded| EncodedTable(encoded));
        let properties = Properties { headers, ..Properties::default() };
        let found = node.reached_with("up", "k", &MessageHeaders(&properties)).expect("a route");
        assert_eq!(found == ["q"], expected, "{text}");
    }
}
