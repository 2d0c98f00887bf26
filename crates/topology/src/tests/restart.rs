use super::*;

#[tokio::test]
async fn only_durable_entities_survive_a_restart() {
    let node = open().await;
    node.queue("durable").await;
    node.transient_queue("transient", None).await;
    node.transient_queue("exclusive", Some(node.client)).await;
    node.exchange("x", ExchangeKind::Topic, true).await;
    node.exchange("gone", ExchangeKind::Fanout, false).await;
    for queue in ["durable", "transient", "exclusive"] {
        node.bind("x", &queue_named(queue), "#").await.expect("it is bound");
    }
    node.bind("gone", &queue_named("durable"), "").await.expect("it is bound");
    assert_eq!(node.reached("x", "a.b"), ["durable", "exclusive", "transient"]);
    let node = node.restart().await;
    assert_eq!(node.topic_names(), ["durable"]);
    assert_eq!(node.reached("x", "a.b"), ["durable"]);
    assert!(!node.vhost.has_exchange("gone"));
    assert_eq!(node.documents("amqp.queues"), ["%2F/durable"]);
    assert_eq!(node.vhost.bindings().len(), 1);
    // The queue is the same as before.
    let again = node.queue("durable").await;
    assert_eq!(&*again.topic_name, "durable");
}

#[tokio::test]
async fn interrupted_changes_are_repaired_at_the_next_start() {
    let node = open().await;
    let queue = node.queue("q").await;
    node.bind("amq.fanout", &queue_named("q"), "").await.expect("it is bound");
    // A declaration that crashed after its document.
    let uuid = OsEntropy.uuid().to_string();
    let document = serde_json::json!({ "topic": "half", "uuid": uuid, "arguments": "" });
    let (name, anything) =
        (documents::join(&["/", "half"]), documents::WritePrecondition::Anything);
    let kept = documents::store::put(&node.broker, "amqp.queues", name, &document, anything);
    kept.await.expect("it is kept");
    // A declaration that crashed after its topic.
    let group = queue.group().expect("it has a group");
    node.broker.delete_lease_group(group).await.expect("it is deleted");
    let node = node.restart().await;
    assert!(node.vhost.find_queue("half").is_none());
    assert_eq!(node.documents("amqp.queues"), ["%2F/q"]);
    let queue = node.vhost.find_queue("q").expect("it is there");
    assert_eq!(node.lease_config(&queue)["lease.ms"], "0");
    // A deletion that crashed after the topic.
    node.broker.delete_topic(queue.topic).await.expect("deleted");
    let node = node.restart().await;
    assert!(node.vhost.find_queue("q").is_none());
    assert!(node.documents("amqp.queues").is_empty());
    assert!(node.documents("amqp.bindings").is_empty());
}

#[tokio::test]
async fn topic_that_reuses_the_name_of_a_deleted_queue_is_another_queue() {
    let node = open().await;
    let queue = node.queue_with("q", &[("x-max-length", 5.into())]).await;
    node.broker.delete_topic(queue.topic).await.expect("deleted");
    node.topic("q", 3).await;
    let node = node.restart().await;
    let queue = node.vhost.find_queue("q").expect("the topic is a queue");
    assert!(!queue.declared && queue.partition_count() == 3);
}

#[tokio::test]
async fn metadata_of_a_vhost_is_durable_and_deleted_with_it() {
    let node = open().await;
    let vhost = node.topology.create_vhost("shop").await.expect("it is made");
    assert_eq!(*vhost.metadata(), Metadata::default());
    let wanted = Metadata {
        description: "orders".to_owned(),
        tags: vec!["a".to_owned()],
        default_queue_type: Some("quorum".to_owned()),
        protected_from_deletion: true,
    };
    vhost.set_metadata(|_| wanted.clone()).await.expect("it is set");
    assert_eq!(*vhost.metadata(), wanted);
    let node = node.restart().await;
    let vhost = node.topology.vhost("shop").expect("it is kept");
    assert_eq!(*vhost.metadata(), wanted);
    let refused = node.topology.delete_vhost("shop").await;
    assert_eq!(refused, Err(ChangeError::ProtectedVirtualHost("shop".to_owned())));
    let open_to_deletion =
        |before: &Metadata| Metadata { protected_from_deletion: false, ..before.clone() };
    vhost.set_metadata(open_to_deletion).await.expect("it is set");
    // The vhost is the same, so no connection was closed.
    assert!(node.topology.vhost("shop").is_some_and(|now| now.is(&vhost)));
    assert_eq!(node.topology.delete_vhost("shop").await, Ok(true));
    assert!(node.documents("amqp.vhost-metadata").is_empty());
    let again = node.topology.create_vhost("shop").await.expect("it is made");
    assert_eq!(*again.metadata(), Metadata::default());
    // The default vhost.
    node.vhost.set_metadata(|_| wanted.clone()).await.expect("it is set");
    let node = node.restart().await;
    assert_eq!(*node.vhost.metadata(), wanted);
}

#[tokio::test]
async fn entities_of_a_vhost_are_separate_and_deleted_with_it() {
    let node = open().await;
    node.queue("q").await;
    let other = node.topology.create_vhost("other/one").await.expect("it is made");
    let arguments = &Table::new();
    let (durable, auto_delete, owner) = (true, false, None);
    let new = NewQueue { name: "q", durable, auto_delete, owner, arguments };
    other.declare_queue(new, any).await.expect("it is declared");
    let destination = &queue_named("q");
    let request = BindingRequest { source: "amq.topic", destination, key: "#", arguments };
    other.bind(node.client, request).await.expect("it is bound");
    let node = node.restart().await;
    let other = node.topology.vhost("other/one").expect("it is kept");
    assert_eq!((other.queues().len(), other.bindings().len()), (1, 1));
    assert_eq!(node.vhost.bindings().len(), 0);
    assert_eq!(node.topic_names(), ["amqp.other-2Fone.q", "q"]);
    assert!(node.topology.delete_vhost("other/one").await.expect("it is deleted"));
    assert_eq!(node.topic_names(), ["q"]);
    assert!(node.documents("amqp.bindings").is_empty());
    assert!(node.topology.delete_vhost("/").await.is_err());
}
