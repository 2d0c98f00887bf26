//! The command line's own request: its advertisement, its errors, and its view of leased records.

use std::sync::Arc;

use ::operations::document::{
    Cancel, ConnectionPage, DeadLetterFilter, DeadLettersMoved, DeclaredQueue, EmptyReply,
    Operation, QueueName, QueueReport, RecordPage, RecordState, RemovedRecords, Span, Start,
};
use ::operations::family::{Effect, OperationAnswer, OperationError, OperationFamily};
use ::operations::{API_KEY, KNOWN_TO, VERSION, VERSION_WITH_TOKEN, document};
use base::MAIN_LEASE_GROUP;
use broker::TakeOptions;
use bytes::{Buf, Bytes};
use kafka_protocol::error::ResponseError::{self, *};
use kafka_protocol::messages::ApiVersionsRequest;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

use crate::harness::*;

fn request(version: i16, document: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(API_KEY.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(7_i32.to_be_bytes());
    frame.extend((-1_i16).to_be_bytes());
    frame.extend((document.len() as i32).to_be_bytes());
    frame.extend(document);
    framed(&frame)
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as i32).to_be_bytes(), frame].concat()
}

impl Client {
    /// Sends bytes; returns error code, message and document of the response.
    async fn say(&mut self, bytes: &[u8]) -> (Option<ResponseError>, String, Bytes) {
        self.send_bytes(bytes).await;
        let mut answer = self.receive_frame().await.expect("an answer");
        assert_eq!(answer.get_i32(), 7);
        let code = ResponseError::try_from_code(answer.get_i16());
        let message = answer.get_i16().max(0) as usize;
        let message = String::from_utf8(answer.split_to(message).to_vec()).expect("text");
        assert_eq!(answer.get_i32() as usize, answer.len());
        (code, message, answer)
    }

    pub(crate) async fn operate<A: DeserializeOwned>(&mut self, operation: &Operation) -> A {
        let document = serde_json::to_vec(operation).expect("JSON");
        let (code, message, answer) = self.say(&request(VERSION, &document)).await;
        assert_eq!(code, None, "{message}");
        serde_json::from_slice(&answer).expect("the answer's document")
    }

    /// The error code of an operation's response, if any.
    pub(crate) async fn code_of(&mut self, operation: &Operation) -> Option<ResponseError> {
        let document = serde_json::to_vec(operation).expect("JSON");
        self.say(&request(VERSION, &document)).await.0
    }

    async fn refused(&mut self, operation: &Operation) -> (ResponseError, String) {
        let document = serde_json::to_vec(operation).expect("JSON");
        let (code, message, answer) = self.say(&request(VERSION, &document)).await;
        assert!(answer.is_empty());
        (code.expect("an error"), message)
    }

    async fn declare(&mut self, topic: &str, config: &[(&str, &str)]) {
        let config = config.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let (queue, from) = (queue(topic), Start::Earliest);
        let operation = Operation::DeclareQueue { queue, from, config: config.collect() };
        self.operate::<DeclaredQueue>(&operation).await;
    }

    async fn peek(&mut self, topic: &str) -> RecordPage {
        let (queue, partition, from) = (queue(topic), None, None);
        self.operate(&Operation::PeekQueue { queue, partition, from, records_max: 100 }).await
    }
}

fn queue(topic: &str) -> QueueName {
    QueueName { topic: topic.to_owned(), group: MAIN_LEASE_GROUP.to_owned() }
}

fn place(partition: u32, offset: u64) -> document::RecordPosition {
    document::RecordPosition { partition, offset }
}

#[tokio::test]
async fn operate_is_advertised_to_the_command_line_only() {
    let node = Node::start().await;
    for (software, told) in [(KNOWN_TO, true), ("librdkafka", false), ("postroad-clix", false)] {
        let mut client = node.client().await;
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text(software))
            .with_client_software_version(text("1"));
        let response = client.ask(3, &request).await;
        let listed = response.api_keys.iter().any(|api| api.api_key == API_KEY);
        assert_eq!(listed, told, "{software}");
    }
    let mut client = node.client().await;
    let response = client.ask(0, &ApiVersionsRequest::default()).await;
    assert!(response.api_keys.iter().all(|api| api.api_key != API_KEY));
}

#[tokio::test]
async fn invalid_operations_are_answered_with_the_reason() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for (document, says) in [
        (&b""[..], "EOF"),
        (b"{", "EOF"),
        (b"[]", "operation"),
        (br#"{"destroy-everything":{}}"#, "unknown variant"),
        (br#"{"list-queues":{}}"#, "missing field"),
        (br#"{"list-queues":{"queues_max":-1}}"#, "invalid value"),
        (br#"{"list-queues":{"queues_max":1,"colour":"red"}}"#, "unknown field"),
        (b"\xff\xfe", "expected value"),
    ] {
        let (code, message, answer) = client.say(&request(VERSION, document)).await;
        assert_eq!(code, Some(InvalidRequest), "{message}");
        assert!(message.contains(says), "{says:?} is not in {message:?}");
        assert!(answer.is_empty());
    }
    let deep = "[".repeat(100_000);
    let (code, ..) = client.say(&request(VERSION, deep.as_bytes())).await;
    assert_eq!(code, Some(InvalidRequest));
    let long = vec![b' '; base::limits::OPERATION_BYTES_MAX + 1];
    let (code, message, _) = client.say(&request(VERSION, &long)).await;
    assert_eq!(code, Some(InvalidRequest));
    assert!(message.contains("at most"), "{message}");
    for version in [-1, VERSION_WITH_TOKEN + 1, i16::MAX] {
        let (code, ..) = client.say(&request(version, b"{}")).await;
        assert_eq!(code, Some(UnsupportedVersion));
    }
    node.is_well().await;
}

#[tokio::test]
async fn wrong_operator_token_is_refused_on_loopback_too() {
    let node =
        Node::with(|options| options.nodes = options.nodes.clone().with_operator_token("secret"))
            .await;
    let mut client = node.client().await;
    let ask = |token: &str| {
        let document = format!(
            r#"{{"token":"{token}","operation":{{"list-queues":{{"after":null,"queues_max":1}}}}}}"#
        );
        request(VERSION_WITH_TOKEN, document.as_bytes())
    };
    let (code, message, answer) = client.say(&ask("guess")).await;
    assert_eq!(code, Some(ClusterAuthorizationFailed));
    assert!(message.contains("operator.token") && answer.is_empty(), "{message}");
    let (code, message, answer) = client.say(&ask("secret")).await;
    assert_eq!(code, None, "{message}");
    assert!(!answer.is_empty());
}

#[tokio::test]
async fn truncated_or_overlong_operation_is_answered_as_invalid() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let whole = request(VERSION, br#"{"list-dead-letter-topics":{}}"#);
    let (code, ..) = client.say(&whole).await;
    assert_eq!(code, None);
    for cut in 8..whole.len() - 4 {
        let (code, ..) = client.say(&framed(&whole[4..4 + cut])).await;
        assert_eq!(code, Some(InvalidRequest), "{cut}");
    }
    let (code, ..) = client.say(&framed(&[&whole[4..], b"more"].concat())).await;
    assert_eq!(code, Some(InvalidRequest));
    node.is_well().await;
}

#[test]
fn arbitrary_operation_bodies_are_answered_as_invalid() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (node, client) = runtime.block_on(async {
        let node = Node::start().await;
        let client = node.client().await;
        (node, std::cell::RefCell::new(client))
    });
    proptest!(ProptestConfig::with_cases(256), |(body: Vec<u8>)| {
        let preamble = request(VERSION, b"")[4..12].to_vec();
        let (code, ..) =
            runtime.block_on(client.borrow_mut().say(&framed(&[preamble, body].concat())));
        prop_assert_eq!(code, Some(InvalidRequest));
    });
    runtime.block_on(node.is_well());
}

#[tokio::test]
async fn errors_name_the_missing_topic_queue_or_setting() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 2, &[]).await;
    let describe = |topic| Operation::DescribeQueue { queue: queue(topic) };
    let (code, message) = client.refused(&describe("x")).await;
    assert_eq!((code, message.contains("there is no topic x")), (UnknownTopicOrPartition, true));
    let (code, message) = client.refused(&describe("t")).await;
    assert_eq!((code, message.contains("topic t is no queue")), (GroupIdNotFound, true));
    client.declare("t", &[]).await;
    let to = vec![place(9, 0)];
    let (code, _) = client.refused(&Operation::SeekQueue { queue: queue("t"), to }).await;
    assert_eq!(code, UnknownTopicOrPartition);
    let to = vec![place(0, 5)];
    let (code, _) = client.refused(&Operation::SeekQueue { queue: queue("t"), to }).await;
    assert_eq!(code, OffsetOutOfRange);
    let config = [("colour".to_owned(), "red".to_owned())].into();
    let declare = Operation::DeclareQueue { queue: queue("t"), from: Start::Latest, config };
    let (code, message) = client.refused(&declare).await;
    assert_eq!((code, message.contains("colour")), (InvalidConfig, true));
    let records = vec![place(0, 0), place(7, 7)];
    let removing = Operation::RemoveRecords { queue: queue("t"), records };
    let removed: RemovedRecords = client.operate(&removing).await;
    assert_eq!((removed.removed, removed.refused.len()), (0, 2));
    let what = Cancel::Records(vec![place(7, 7)]);
    let removed: RemovedRecords =
        client.operate(&Operation::CancelScheduled { queue: queue("t"), what }).await;
    assert_eq!((removed.removed, removed.refused.len()), (0, 1));
}

#[tokio::test]
async fn queue_with_a_protocol_route_refuses_a_dead_letter_topic() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    client.declare("t", &[("dead.letter.route", "amqp:somewhere")]).await;
    let config = [("dead.letter.topic".to_owned(), "dead".to_owned())].into();
    let declare = Operation::DeclareQueue { queue: queue("t"), from: Start::Latest, config };
    let (code, message) = client.refused(&declare).await;
    assert_eq!((code, message.contains("dead.letter.route")), (InvalidConfig, true));
    client.declare("t", &[("attempts.max", "3")]).await;
}

#[tokio::test]
async fn leased_records_are_listed_and_neither_removed_nor_redriven() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    client.declare("t", &[("lease.ms", "600000")]).await;
    let answer = client.produce("t", 0, dead_letters(&["a", "b", "c"])).await;
    assert_eq!(answer.error_code, 0);
    let session = node.broker.lease_session();
    let group = node.main_group("t");
    let taken = session.take(group, TakeOptions::default()).await.expect("takes");
    assert_eq!(taken.len(), 1);
    let report: QueueReport = client.operate(&Operation::DescribeQueue { queue: queue("t") }).await;
    let summary = &report.summary;
    assert_eq!((summary.depth, summary.ready, summary.leased), (3, 2, 1));
    assert_eq!((summary.delivered, summary.settled, summary.published), (1, 0, 3));
    assert_eq!(summary.oldest_unsettled_ms, Some(TIMESTAMP));
    let lease = report.leases[0];
    assert_eq!((lease.offset, lease.attempt, lease.session), (0, 1, session.id()));
    let page = client.peek("t").await;
    assert_eq!(page.next, None);
    let states: Vec<RecordState> = page.records.iter().map(|record| record.state).collect();
    assert_eq!(states, [RecordState::Leased, RecordState::Ready, RecordState::Ready]);

    let records = vec![place(0, 0), place(0, 1)];
    let removing = Operation::RemoveRecords { queue: queue("t"), records };
    let removed: RemovedRecords = client.operate(&removing).await;
    assert_eq!(
        (removed.removed, &*removed.refused[0].reason),
        (1, "record 0 of partition 0 is leased")
    );
    // Redriving leaves a leased record to its consumer too.
    client.create("other", 1, &[]).await;
    let redrive = Operation::RedriveDeadLetters {
        topic: "t".into(),
        only: DeadLetterFilter::default(),
        to: Some("other".into()),
        span: Span { from: None, until: None, records_max: 100 },
    };
    let moved: DeadLettersMoved = client.operate(&redrive).await;
    assert_eq!((moved.records, moved.left, moved.next), (1, 1, None));
    assert_eq!(client.get("other", 0, 0).await, ["c"]);
    drop(session);
    let page = client.peek("t").await;
    assert_eq!(page.records.len(), 1);
    assert_eq!((page.records[0].state, page.records[0].attempts), (RecordState::Ready, 1));
}

#[tokio::test]
async fn queue_with_consumers_is_deleted_only_by_force() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    client.declare("t", &[]).await;
    let group = node.main_group("t");
    let session = node.broker.lease_session();
    session.consume(group, Default::default()).await.expect("consumes");
    let delete = |force| Operation::DeleteQueue { queue: queue("t"), force };
    let (code, message) = client.refused(&delete(false)).await;
    assert_eq!((code, message.contains("1 consumer;")), (NonEmptyGroup, true));
    client.operate::<document::EmptyReply>(&delete(true)).await;
    let (code, _) = client.refused(&delete(true)).await;
    assert_eq!(code, GroupIdNotFound);
}

#[tokio::test]
async fn page_is_bounded_by_bytes_and_continued_by_the_next() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 2, &[]).await;
    client.declare("t", &[]).await;
    let large = "x".repeat(900_000);
    for partition in 0..2 {
        for _ in 0..4 {
            client.put("t", partition, &[&large]).await;
        }
    }
    let (mut from, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let (queue, partition) = (queue("t"), None);
        let operation = Operation::PeekQueue { queue, partition, from, records_max: 1000 };
        let page: RecordPage = client.operate(&operation).await;
        let at = page.records.iter().map(|it| (it.record.partition, it.record.offset));
        seen.extend(at);
        pages += 1;
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    let all: Vec<(u32, u64)> = (0..2).flat_map(|p| (0..4).map(move |o| (p, o))).collect();
    assert_eq!((pages, seen), (2, all));
}

/// Returns each operation as its result, with some exceptions.
#[derive(Debug)]
struct Echo;

impl OperationFamily for Echo {
    fn effect(&self, operation: &[u8]) -> Effect {
        match operation {
            b"\"look\"" => Effect::Look,
            _ => Effect::Change("something".to_owned()),
        }
    }

    fn carry_out(&self, operation: Vec<u8>) -> OperationAnswer<'_> {
        Box::pin(async move {
            match &operation[..] {
                b"\"nonsense\"" => Err(OperationError::Invalid("makes no sense".into())),
                b"\"nowhere\"" => Err(OperationError::NotFound("is not there".into())),
                b"\"broken\"" => Err(OperationError::Failed("cannot be done".into())),
                _ => Ok(operation),
            }
        })
    }
}

#[tokio::test]
async fn operation_of_another_gateway_is_passed_on_unread() {
    let node = Node::with_families(vec![("echo", Arc::new(Echo))]).await;
    let mut client = node.client().await;
    let asked = |family: &str, operation| Operation::Family { family: family.into(), operation };
    let said = serde_json::json!({"do-what": ["nobody", "else", 1, null, "knows"]});
    let answer: serde_json::Value = client.operate(&asked("echo", said.clone())).await;
    assert_eq!(answer, said);
    for (operation, code, message) in [
        ("nonsense", InvalidRequest, "makes no sense"),
        ("nowhere", ResourceNotFound, "is not there"),
        ("broken", UnknownServerError, "cannot be done"),
    ] {
        let refused = client.refused(&asked("echo", operation.into())).await;
        assert_eq!(refused, (code, message.to_owned()));
    }
    let (code, message) = client.refused(&asked("amqp", said)).await;
    assert_eq!(code, InvalidRequest);
    assert_eq!(message, "this node has no operations of amqp");
}

#[tokio::test]
async fn connections_are_listed_with_their_clients_and_closed_one_by_one() {
    let node = Node::start().await;
    let mut operator = node.client().await;
    let list = |after, connections_max| Operation::ListConnections { after, connections_max };
    let alone: ConnectionPage = operator.operate(&list(None, 10)).await;
    assert_eq!((alone.connections.len(), alone.connections[0].id, alone.more), (1, 1, false));
    assert_eq!((&alone.connections[0].client, &alone.connections[0].user), (&None, &None));

    let mut client = node.client().await;
    client.ask(3, &crate::sessions::versions_request()).await;
    let first: ConnectionPage = operator.operate(&list(None, 1)).await;
    assert!(first.more);
    let rest: ConnectionPage = operator.operate(&list(Some(1), 1)).await;
    let [listed] = &rest.connections[..] else { panic!("{rest:?}") };
    let address = client.address().to_string();
    assert_eq!((listed.id, &*listed.protocol, &listed.peer), (2, "kafka", &address));
    assert_eq!(listed.client.as_deref(), Some("test 1.0"));
    assert!((alone.connections[0].since_ms..).contains(&listed.since_ms));

    // A waiting fetch does not delay it.
    client.create("orders", 1, &[]).await;
    client.send(11, &fetch("orders", 0, 0, 60_000)).await;
    let _: EmptyReply = operator.operate(&Operation::CloseConnection { connection: 2 }).await;
    client.is_cut_off().await;
    let closed = Operation::CloseConnection { connection: 2 };
    let (code, message) = operator.refused(&closed).await;
    assert_eq!(code, ResourceNotFound);
    assert!(message.starts_with("there is no connection 2;"), "{message}");
    node.is_well().await;
}
