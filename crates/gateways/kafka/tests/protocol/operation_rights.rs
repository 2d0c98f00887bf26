//! Each private operation, without its rights and with them.

use ::operations::document::{
    Cancel, DeadLetterFilter, DeadLetterTopics, Operation, QueueName, QueuePage, RecordPosition,
    Span, Start,
};
use ::operations::history::SearchKey;
use ::operations::offset_groups::OffsetPlace;
use access_rules::acl::{Action, CLUSTER, Resource};
use base::MAIN_LEASE_GROUP;
use kafka_protocol::error::ResponseError::{
    self, ClusterAuthorizationFailed, GroupAuthorizationFailed, TopicAuthorizationFailed,
};
use serde_json::json;

use crate::authorization::{app, logged_in, node};
use crate::harness::dead_letters;

pub(crate) const REFUSALS: [ResponseError; 3] =
    [ClusterAuthorizationFailed, TopicAuthorizationFailed, GroupAuthorizationFailed];

/// All rights that an operation needs. A new operation must be added here and to the samples.
fn rights(operation: &Operation) -> (usize, Vec<(Resource, &str, Action)>) {
    let topic = |action| vec![(Resource::Topic, "t", action)];
    let offset_group = |action| vec![(Resource::Group, "g", action)];
    let cluster = |action| vec![(Resource::Cluster, CLUSTER, action)];
    let group =
        |action, of_group| vec![(Resource::Topic, "t", action), (Resource::Group, "g", of_group)];
    match operation {
        Operation::DeclareQueue { config, .. } => {
            let letters = config.values().map(|to| (Resource::Topic, &**to, Action::Write));
            (0, topic(Action::Alter).into_iter().chain(letters).collect())
        }
        Operation::ListQueues { .. } => (1, Vec::new()),
        Operation::DescribeQueue { .. } => (2, group(Action::Describe, Action::Describe)),
        Operation::PeekQueue { .. } => (3, group(Action::Read, Action::Describe)),
        Operation::PurgeQueue { .. } => (4, topic(Action::Delete)),
        Operation::RemoveRecords { .. } => (5, topic(Action::Delete)),
        Operation::PauseQueue { .. } => (6, topic(Action::Alter)),
        Operation::SeekQueue { .. } => (7, group(Action::Delete, Action::Read)),
        Operation::DeleteQueue { .. } => {
            (8, [group(Action::Read, Action::Delete), topic(Action::Delete)].concat())
        }
        Operation::ListDeadLetterTopics {} => (9, Vec::new()),
        Operation::CountDeadLetters { .. } => (10, topic(Action::Describe)),
        Operation::ShowDeadLetters { .. } => (11, topic(Action::Read)),
        Operation::RedriveDeadLetters { .. } => {
            (12, [topic(Action::Read), vec![(Resource::Topic, "other", Action::Write)]].concat())
        }
        Operation::DeleteDeadLetters { .. } => (13, topic(Action::Delete)),
        Operation::ListScheduled { .. } => (14, group(Action::Read, Action::Describe)),
        Operation::CancelScheduled { .. } => (15, topic(Action::Delete)),
        Operation::ListShards {} => (16, cluster(Action::Describe)),
        Operation::ElectLeader {} => (17, cluster(Action::Alter)),
        Operation::ListConnections { .. } => (18, cluster(Action::Describe)),
        Operation::CloseConnection { .. } => (19, cluster(Action::Alter)),
        Operation::Family { .. } => (20, cluster(Action::Alter)),
        Operation::ListOffsetGroups { .. } => (21, Vec::new()),
        Operation::DescribeOffsetGroup { .. } => (22, offset_group(Action::Describe)),
        Operation::SeekOffsetGroup { .. } => {
            (23, [offset_group(Action::Read), topic(Action::Read)].concat())
        }
        Operation::DeleteOffsetGroup { .. } => (24, offset_group(Action::Delete)),
        Operation::DescribeRecord { .. } => (25, topic(Action::Read)),
        Operation::FindRecords { topic: Some(_), .. } => (26, topic(Action::Read)),
        Operation::FindRecords { topic: None, .. } => (26, Vec::new()),
    }
}

const COUNT: usize = 27;

/// At least one sample of each operation.
fn samples() -> Vec<Operation> {
    samples_of("t", "g")
}

/// Samples about a topic and one of its groups.
pub(crate) fn samples_of(topic: &str, group: &str) -> Vec<Operation> {
    let queue = || QueueName { topic: topic.into(), group: group.into() };
    let (from, records_max) = (None, 10);
    let span = || Span { from: None, until: None, records_max: 10 };
    let only = DeadLetterFilter::default;
    let topic = || topic.to_owned();
    vec![
        Operation::DeclareQueue { queue: queue(), from: Start::Earliest, config: [].into() },
        Operation::DeclareQueue {
            queue: queue(),
            from: Start::Earliest,
            config: [("dead.letter.topic".into(), "other".into())].into(),
        },
        Operation::ListQueues { after: None, queues_max: 10 },
        Operation::DescribeQueue { queue: queue() },
        Operation::PeekQueue { queue: queue(), partition: None, from, records_max },
        Operation::PurgeQueue { queue: queue() },
        Operation::RemoveRecords { queue: queue(), records: Vec::new() },
        Operation::PauseQueue { queue: queue(), paused: true },
        Operation::SeekQueue {
            queue: queue(),
            to: vec![RecordPosition { partition: 0, offset: 0 }],
        },
        Operation::ListDeadLetterTopics {},
        Operation::CountDeadLetters { topic: topic(), from },
        Operation::ShowDeadLetters { topic: topic(), only: only(), from, records_max },
        Operation::RedriveDeadLetters {
            topic: topic(),
            only: only(),
            to: Some("other".into()),
            span: span(),
        },
        Operation::RedriveDeadLetters {
            topic: topic(),
            only: DeadLetterFilter { source: Some("other".into()), ..only() },
            to: None,
            span: span(),
        },
        Operation::DeleteDeadLetters { topic: topic(), only: only(), span: span() },
        Operation::ListScheduled { queue: queue(), after: None, records_max },
        Operation::CancelScheduled { queue: queue(), what: Cancel::Id("x".into()) },
        Operation::ListShards {},
        Operation::ElectLeader {},
        Operation::ListConnections { after: None, connections_max: 10 },
        Operation::CloseConnection { connection: 4_000_000 },
        Operation::Family { family: "none".into(), operation: json!({}) },
        Operation::DeleteQueue { queue: queue(), force: true },
        Operation::ListOffsetGroups { after: None, groups_max: 10 },
        Operation::DescribeOffsetGroup { group: group.into(), after: None, members_max: 10 },
        Operation::SeekOffsetGroup {
            group: group.into(),
            to: vec![OffsetPlace { topic: topic(), partition: 0, offset: 0 }],
            dry_run: false,
        },
        Operation::DeleteOffsetGroup { group: group.into(), dry_run: false },
        Operation::DescribeRecord {
            topic: topic(),
            place: RecordPosition { partition: 0, offset: 0 },
        },
        Operation::FindRecords {
            topic: Some(topic()),
            by: SearchKey::Id("x".into()),
            from_ms: None,
            after: None,
            records_max: 10,
        },
    ]
}

#[tokio::test]
async fn each_operation_needs_all_of_its_rights() {
    let node = node().await;
    let mut root = logged_in(&node, b"\0root\0toor").await;
    for group in ["g", MAIN_LEASE_GROUP] {
        let declare = samples_of("t", group).remove(0);
        root.operate::<serde_json::Value>(&declare).await;
    }
    let mut app = app(&node).await;
    let mut walked = [false; COUNT];
    for operation in samples() {
        let (place, rights) = rights(&operation);
        walked[place] = true;
        if rights.is_empty() {
            continue;
        }
        for missing in 0..rights.len() {
            let others = rights.iter().enumerate().filter(|(place, _)| *place != missing);
            for (_, (resource, name, action)) in others {
                node.allow(*resource, name, *action).await;
            }
            let code = app.code_of(&operation).await;
            assert!(code.is_some_and(|code| REFUSALS.contains(&code)), "{operation:?} {missing}");
            node.forget_rules().await;
        }
        for (resource, name, action) in &rights {
            node.allow(*resource, name, *action).await;
        }
        let code = app.code_of(&operation).await;
        assert!(!code.is_some_and(|code| REFUSALS.contains(&code)), "{operation:?} {code:?}");
        node.forget_rules().await;
    }
    assert_eq!(walked, [true; COUNT], "an operation has no sample");
}

#[tokio::test]
async fn redrive_to_the_source_topics_needs_the_right_to_administer() {
    let node = node().await;
    let mut app = app(&node).await;
    let (to, only) = (None, DeadLetterFilter::default());
    let span = Span { from: None, until: None, records_max: 10 };
    let operation = Operation::RedriveDeadLetters { topic: "t".into(), only, to, span };
    node.allow(Resource::Topic, "*", Action::Any).await;
    assert_eq!(app.code_of(&operation).await, Some(ClusterAuthorizationFailed));
    node.allow(Resource::Cluster, CLUSTER, Action::Alter).await;
    assert_eq!(app.code_of(&operation).await, None);
}

#[tokio::test]
async fn redrive_of_a_topic_that_is_no_queue_needs_the_right_to_declare_one() {
    let node = node().await;
    let mut app = app(&node).await;
    let redrive = Operation::RedriveDeadLetters {
        topic: "t".into(),
        only: DeadLetterFilter::default(),
        to: Some("other".into()),
        span: Span { from: None, until: None, records_max: 10 },
    };
    node.allow(Resource::Topic, "t", Action::Read).await;
    node.allow(Resource::Topic, "other", Action::Write).await;
    assert_eq!(app.code_of(&redrive).await, None, "there are no dead letters");
    let mut root = logged_in(&node, b"\0root\0toor").await;
    let answer = root.produce("t", 0, dead_letters(&["a"])).await;
    assert_eq!(answer.error_code, 0);
    assert_eq!(app.code_of(&redrive).await, Some(TopicAuthorizationFailed));
    let has_main = || {
        let catalog = node.broker.catalog();
        let topic = catalog.topic_named("t").expect("is there").id();
        catalog.lease_group_named(topic, MAIN_LEASE_GROUP).is_some()
    };
    assert!(!has_main(), "a reader makes no queue");
    node.allow(Resource::Topic, "t", Action::Alter).await;
    assert_eq!(app.code_of(&redrive).await, None);
    assert!(has_main());
}

#[tokio::test]
async fn operation_lists_have_only_visible_queues_and_topics() {
    let node = node().await;
    let mut root = logged_in(&node, b"\0root\0toor").await;
    for topic in ["t", "other"] {
        let queue = QueueName { topic: topic.into(), group: MAIN_LEASE_GROUP.into() };
        let config = [("dead.letter.topic".to_owned(), topic.to_owned())].into();
        let declare = Operation::DeclareQueue { queue, from: Start::Earliest, config };
        root.operate::<serde_json::Value>(&declare).await;
    }
    let mut app = app(&node).await;
    let list = Operation::ListQueues { after: None, queues_max: 10 };
    let dead = Operation::ListDeadLetterTopics {};
    assert!(app.operate::<QueuePage>(&list).await.queues.is_empty());
    assert!(app.operate::<DeadLetterTopics>(&dead).await.topics.is_empty());
    node.allow(Resource::Topic, "t", Action::Describe).await;
    let seen = app.operate::<QueuePage>(&list).await.queues;
    assert_eq!(seen.iter().map(|queue| &*queue.topic).collect::<Vec<_>>(), ["t"]);
    assert_eq!(app.operate::<DeadLetterTopics>(&dead).await.topics, ["t"]);
    assert_eq!(root.operate::<QueuePage>(&list).await.queues.len(), 2);
}
