//! The audit over a broker on a simulated disk: recorded events, access to them, and a full buffer.

use std::path::Path;

use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use base::PartitionId;
use broker::BrokerOptions;
use record::Batch;
use serde_json::{Value, json};
use world::{SimulatedDisk, World};

use super::*;
use crate::{AccessTarget, Operation, Principal, Rights, SettingsUser, Users};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(60);

async fn open(strict: bool) -> (Broker, Users) {
    let world = World::on(Arc::new(SimulatedDisk::new()));
    let broker = Broker::open(world, Path::new("/data"), BrokerOptions::default()).await;
    let broker = broker.expect("the broker opens");
    let root = SettingsUser { name: "root".to_owned(), password: "toor".to_owned() };
    let users = Users::open(broker.clone(), vec![root], |_| true).await.expect("are read");
    users.set_audit(Audit::open(&broker, strict));
    (broker, users)
}

fn rights(users: &Users, name: &str) -> Rights {
    let principal = Principal::new(name, users);
    users.rights(&principal, HERE).audited_as(users.audit().caller(Some(name), HERE, "kafka"))
}

/// All events of the topic, without their times.
async fn written(broker: &Broker, users: &Users) -> Vec<Value> {
    users.audit().flush(SOON).await;
    let Some(topic) = broker.catalog().topic_named(TOPIC).map(|topic| topic.id()) else {
        return Vec::new();
    };
    let read = broker.read_known_batches(PartitionId::new(topic, 0), 0, 1 << 20).await;
    let read = read.expect("is read");
    let mut events = Vec::new();
    for batch in read.iter() {
        let (_, bytes) = batch.expect("a batch");
        let batch = Batch::decode(&bytes).expect("a batch");
        for record in batch.records() {
            let value = record.expect("a record").value.expect("a value");
            let mut event: Value = serde_json::from_slice(value).expect("JSON");
            let time = event.as_object_mut().and_then(|event| event.remove("time_ms"));
            assert!(time.is_some_and(|time| time.as_i64().is_some()));
            events.push(event);
        }
    }
    events
}

async fn user_with(users: &Users, action: Action, name: &str) {
    let hash = passwords::hash_password("canary-password").expect("a hash");
    users.add("app", hash).await.expect("is added");
    let rule = Rule {
        resource: Resource::Topic,
        pattern: Pattern::Literal,
        name: name.to_owned(),
        principal: "User:app".to_owned(),
        host: "*".to_owned(),
        action,
        verdict: Verdict::Allow,
    };
    users.add_rules(vec![rule]).await.expect("is added");
}

#[tokio::test]
async fn changes_and_denials_are_audited_and_use_is_not() {
    let (broker, users) = open(false).await;
    user_with(&users, Action::Any, "t").await;
    let app = rights(&users, "app");
    assert!(app.allows(Action::Write, Resource::Topic, "t"));
    assert!(app.may(Operation::Browse, AccessTarget::Topic("t")));
    assert!(!app.allows(Action::Describe, Resource::Topic, "other"));
    assert!(!app.would(Operation::Delete, AccessTarget::Topic("other")));
    assert!(written(&broker, &users).await.is_empty());

    assert!(app.allows_by("DeleteTopics", Action::Delete, Resource::Topic, "t"));
    assert!(!app.may(Operation::Browse, AccessTarget::Topic("other")));
    assert!(rights(&users, "root").creates_topic("CreateTopics", "new"));
    let event = |principal: &str, action: &str, name: &str, outcome: &str, rule: &str| {
        json!({
            "node": 1, "principal": principal, "protocol": "kafka", "address": "127.0.0.1",
            "action": action, "resource": "topic", "name": name, "outcome": outcome, "rule": rule,
        })
    };
    let mut expected = [
        event(
            "app",
            "delete",
            "t",
            "allowed",
            "the rule: allow User:app all of literal topic \"t\" from *",
        ),
        event("app", "browse", "other", "denied", "nothing allows it"),
        event("root", "create", "new", "allowed", "it may do everything"),
    ];
    expected[0]["request"] = "DeleteTopics".into();
    expected[2]["request"] = "CreateTopics".into();
    assert_eq!(written(&broker, &users).await, expected);
    assert_eq!(users.audit().counted(), (3, 0));
}

#[tokio::test]
async fn records_read_by_a_person_are_audited_once_per_request() {
    let (broker, users) = open(false).await;
    let principal = Principal::new("root", &users);
    let caller = users.audit().caller(Some("root"), HERE, "console").expect("it is on");
    let caller = caller.by("GET /v1/topics/t/records".to_owned(), Some("7".to_owned()));
    let root = users.rights(&principal, HERE).audited_as(Some(caller.looking(true)));
    for _ in 0..2 {
        assert!(root.may(Operation::Browse, AccessTarget::Topic("t")));
    }
    // Browsing the audit topic is not audited.
    assert!(root.may(Operation::Browse, AccessTarget::Topic(TOPIC)));
    let events = written(&broker, &users).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["protocol"], &events[0]["request_id"]),
        (&json!("console"), &json!("7"))
    );
}

#[tokio::test]
async fn log_ins_are_audited_without_passwords() {
    let (broker, users) = open(false).await;
    users.audit().logged_in("root", HERE, "amqp", false);
    for _ in 0..3 {
        users.audit().logged_in("root", HERE, "http", true);
    }
    let credentials = |password: &str| crate::Credentials::from_bytes(b"root", password.as_bytes());
    for _ in 0..2 {
        users.log_in(credentials("canary-wrong"), HERE).await.expect_err("it is wrong");
    }
    let events = written(&broker, &users).await;
    let outcomes: Vec<_> = events.iter().map(|it| it["outcome"].as_str().unwrap_or("")).collect();
    assert_eq!(outcomes, ["logged-in", "logged-in", "log-in-refused"]);
    assert!(!format!("{events:?}").contains("canary"));
}

#[tokio::test]
async fn topics_of_nodes_are_read_only_by_administrators_and_written_by_no_user() {
    let (_broker, users) = open(false).await;
    user_with(&users, Action::Any, "*").await;
    let app = rights(&users, "app");
    let of_nodes = [TOPIC, base::topics::TRACE];
    let queue = |name| AccessTarget::Queue { virtual_host: "/", name, topic: name };
    for topic in of_nodes {
        for action in [Action::Read, Action::Describe, Action::Write, Action::Delete] {
            assert!(!app.allows(action, Resource::Topic, topic), "{action:?}");
            assert!(app.allows(action, Resource::Topic, "t"));
        }
        assert_eq!(app.append_by_rules(topic), Some(Verdict::Deny));
        let queue = queue(topic);
        assert!(!app.may(Operation::Consume, queue) && !app.may(Operation::Append, queue));
    }
    let administrator = crate::Tags::new(vec!["administrator".to_owned()]).expect("tags");
    users.set_tags("app", administrator).await.expect("are set");
    let app = rights(&users, "app");
    for topic in of_nodes {
        let consumes = app.may(Operation::Consume, queue(topic));
        assert!(app.allows(Action::Read, Resource::Topic, topic) && consumes);
        assert!(!app.allows(Action::Write, Resource::Topic, topic));
        assert!(!app.allows(Action::Delete, Resource::Topic, topic));
    }
}

#[tokio::test]
async fn full_buffer_drops_events_or_with_strict_rejects_changes() {
    for strict in [false, true] {
        let (broker, users) = open(strict).await;
        let root = rights(&users, "root");
        // The writer task does not run before the test yields.
        let done = (0..AUDIT_EVENTS_QUEUED_MAX + 5)
            .filter(|_| root.allows(Action::Alter, Resource::Topic, "t"))
            .count();
        let (recorded, dropped) = users.audit().counted();
        assert_eq!((recorded as usize, dropped), (AUDIT_EVENTS_QUEUED_MAX, 5));
        assert_eq!(done, AUDIT_EVENTS_QUEUED_MAX + if strict { 0 } else { 5 });
        // Actions that change nothing are still allowed. Once there is room, changes are, too.
        assert!(root.allows(Action::Write, Resource::Topic, "t"));
        users.audit().flush(SOON).await;
        assert!(root.allows(Action::Alter, Resource::Topic, "t"));
        drop(broker);
    }
}
