//! `/v1`: Kafka consumer groups: members, committed offsets, seek and deletion.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use axum::http::Method;
use client::consumer::ConsumerMember;
use client::groups::Committer;
use client::member::Membership;
use client::{Client, Tcp, TopicPartition};
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use crate::harness::{
    ReceivedResponse, SOON, Server, ask, basic, connect, open_node, request, safe_node,
};
use crate::records::{make, post, produce};

async fn kafka(server: &Server) -> Arc<Client> {
    let address = server.kafka().to_string();
    Arc::new(Client::connect(Tcp, &address, None).await.expect("connects"))
}

async fn delete(server: &Server, path: &str) -> ReceivedResponse {
    ask(&mut connect(server.address).await, request(Method::DELETE, path, &[], "")).await
}

/// Commits from outside of the group.
async fn commit(client: &Client, group: &str, offsets: &[(&str, i32, u64)]) {
    let offsets: BTreeMap<TopicPartition, u64> = offsets
        .iter()
        .map(|(topic, partition, offset)| (TopicPartition::new(*topic, *partition), *offset))
        .collect();
    client.commit(group, &Committer::OUTSIDER, &offsets).await.expect("is committed");
}

#[tokio::test]
async fn group_is_described_with_members_and_assignments() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 4, json!({})).await;
    let kafka = kafka(&server).await;
    // A group with server-side assignment, and one whose members assign.
    let id = Uuid::from_u128(7);
    let mut modern = ConsumerMember::new(Arc::clone(&kafka), "modern", &["t".into()], id, SOON);
    modern.report().await.expect("joins");
    let mut classic = Membership::new(Arc::clone(&kafka), "classic", &["t".into()]);
    timeout(SOON, classic.join()).await.expect("in time").expect("joins");
    let page = server.get("/v1/groups").await.json();
    let rows: Vec<(&Value, &Value, &Value)> = page["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|it| (&it["name"], &it["membership"]["kind"], &it["membership"]["members"]))
        .collect();
    let (one, kinds) = (json!(1), [json!("classic"), json!("consumer")]);
    let names = [json!("classic"), json!("modern")];
    assert_eq!(rows, [(&names[0], &kinds[0], &one), (&names[1], &kinds[1], &one)], "{page}");
    for (group, assignor) in [("classic", "range"), ("modern", "uniform")] {
        let described = server.get(&format!("/v1/groups/{group}")).await.json();
        assert_eq!(described["membership"]["state"], "Stable", "{described}");
        assert_eq!(described["membership"]["assignor"], assignor, "{described}");
        assert_eq!((&described["offsets"], &described["coordinator"]), (&json!(0), &json!(1)));
        let members = server.get(&format!("/v1/groups/{group}/members")).await.json();
        let [member] = &members["items"].as_array().expect("items")[..] else {
            panic!("{members}");
        };
        assert_eq!(member["assignment"], json!([{"topic": "t", "partitions": [0, 1, 2, 3]}]));
        assert_eq!((&member["topics"], &member["target"]), (&json!(["t"]), &Value::Null));
        assert_eq!(member["address"], "127.0.0.1", "{member}");
    }
    // A group with members is neither moved nor deleted.
    let seek = json!({"to": "latest", "topics": ["t"]});
    let refused = post(&server, "/v1/groups/modern/seek?dry_run=true", &seek).await;
    let problem = refused.is_problem(422, "invalid");
    assert!(problem["detail"].as_str().expect("text").contains("has 1 member:"), "{problem}");
    delete(&server, "/v1/groups/classic").await.is_problem(422, "invalid");
    modern.leave().await.expect("leaves");
    classic.leave().await.expect("leaves");
    assert_eq!(post(&server, "/v1/groups/none/seek", &seek).await.status, 404);
    server.get("/v1/groups/none").await.is_problem(404, "no-such-group");
    server.get("/v1/groups/none/members").await.is_problem(404, "no-such-group");
}

#[tokio::test]
async fn members_of_a_group_are_paged() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 3, json!({})).await;
    let kafka = kafka(&server).await;
    let mut members = Vec::new();
    for number in 1..=3 {
        let id = Uuid::from_u128(number);
        let mut member = ConsumerMember::new(Arc::clone(&kafka), "g", &["t".into()], id, SOON);
        member.report().await.expect("joins");
        members.push(member);
    }
    let first = server.get("/v1/groups/g/members?limit=2").await.json();
    let next = first["next"].as_str().expect("a cursor");
    assert_eq!(
        (first["items"].as_array().map(Vec::len), next),
        (Some(2), &*Uuid::from_u128(2).to_string())
    );
    let rest = server.get(&format!("/v1/groups/g/members?limit=2&cursor={next}")).await.json();
    assert_eq!(rest["items"][0]["id"], Uuid::from_u128(3).to_string());
    assert_eq!((rest["items"].as_array().map(Vec::len), &rest["next"]), (Some(1), &Value::Null));
    // The first member has not revoked yet what the others are to get.
    assert_eq!(first["items"][0]["assignment"][0]["partitions"], json!([0, 1, 2]), "{first}");
    assert_eq!(first["items"][0]["target"][0]["partitions"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn committed_offsets_are_listed_with_their_lag() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 3, json!({})).await;
    make(&server, "u", 1, json!({})).await;
    produce(&server, "t", &["1", "2", "3", "4", "5", "6"]).await;
    let kafka = kafka(&server).await;
    commit(&kafka, "g", &[("t", 0, 1), ("t", 2, 0), ("u", 0, 0)]).await;
    let page = server.get("/v1/groups/g/offsets?limit=2").await.json();
    let rows = page["items"].as_array().expect("items");
    let row = json!({"topic": "t", "partition": 0, "offset": 1, "metadata": "", "start": 0, "end": 2, "lag": 1});
    assert_eq!((&rows[0], rows.len()), (&row, 2), "{page}");
    let next = page["next"].as_str().expect("a cursor");
    let rest = server.get(&format!("/v1/groups/g/offsets?limit=2&cursor={next}")).await.json();
    assert_eq!((&rest["items"][0]["topic"], &rest["next"]), (&json!("u"), &Value::Null));
    assert_eq!(server.get("/v1/groups/g").await.json()["offsets"], 3);
    server.get("/v1/groups/g/offsets?cursor=x").await.is_problem(400, "bad-request");
    server.get("/v1/groups/none/offsets").await.is_problem(404, "no-such-group");
    // Offsets of a deleted topic are not shown.
    assert_eq!(delete(&server, "/v1/topics/t").await.status, 204);
    let left = server.get("/v1/groups/g/offsets").await.json();
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
}

#[tokio::test]
async fn seek_sets_committed_offsets_and_a_dry_run_reports_its_effect() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 2, json!({})).await;
    produce(&server, "t", &["1", "2", "3", "4", "5", "6"]).await;
    let kafka = kafka(&server).await;
    commit(&kafka, "g", &[("t", 0, 3), ("t", 1, 1)]).await;
    let seek = "/v1/groups/g/seek";
    let tried = post(&server, &format!("{seek}?dry_run=true"), &json!({"to": "earliest"})).await;
    let expected = json!({"offsets": [
        {"topic": "t", "partition": 0, "offset": 0, "before": 3},
        {"topic": "t", "partition": 1, "offset": 0, "before": 1},
    ], "again": 4, "skipped": 0, "dry_run": true});
    assert_eq!(tried.json(), expected);
    let lag = async || server.get("/v1/groups/g/lag").await.json()["lag"].clone();
    assert_eq!(lag().await, 2);
    post(&server, seek, &json!({"to": "earliest"})).await.json();
    assert_eq!(lag().await, 6);
    let one = json!({"offsets": [{"topic": "t", "partition": 1, "offset": 2}]});
    let sought = post(&server, seek, &one).await.json();
    assert_eq!((&sought["skipped"], &sought["dry_run"]), (&json!(2), &json!(false)), "{sought}");
    assert_eq!(lag().await, 4);
    post(&server, seek, &json!({"to": "-1", "topics": ["t"]})).await.json();
    assert_eq!(lag().await, 2);
    for (wrong, status) in [
        (json!({}), 400),
        (json!({"to": "3"}), 400),
        (json!({"to": "earliest", "offsets": [{"topic": "t", "partition": 0, "offset": 0}]}), 400),
        (json!({"topics": ["t"], "offsets": [{"topic": "t", "partition": 0, "offset": 0}]}), 400),
        (json!({"offsets": [{"topic": "t", "partition": 9, "offset": 0}]}), 404),
        (json!({"offsets": [{"topic": "none", "partition": 0, "offset": 0}]}), 404),
        (json!({"offsets": [{"topic": "t", "partition": 0, "offset": 99}]}), 422),
        (
            json!({"offsets": [
                {"topic": "t", "partition": 0, "offset": 0},
                {"topic": "t", "partition": 0, "offset": 1},
            ]}),
            422,
        ),
    ] {
        let answer = post(&server, seek, &wrong).await;
        assert_eq!(answer.status.as_u16(), status, "{wrong} {answer:?}");
    }
    assert_eq!(lag().await, 2);
}

#[tokio::test]
async fn group_is_deleted_with_its_offsets_after_a_dry_run() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 2, json!({})).await;
    let kafka = kafka(&server).await;
    commit(&kafka, "g", &[("t", 0, 0), ("t", 1, 0)]).await;
    let tried = delete(&server, "/v1/groups/g?dry_run=true").await;
    assert_eq!((tried.status.as_u16(), tried.json()), (200, json!({"offsets": 2})));
    assert_eq!(server.get("/v1/groups/g").await.status, 200);
    assert_eq!(delete(&server, "/v1/groups/g").await.status, 204);
    server.get("/v1/groups/g").await.is_problem(404, "no-such-group");
    delete(&server, "/v1/groups/g").await.is_problem(404, "no-such-group");
}

#[tokio::test]
async fn hidden_topics_and_groups_are_not_revealed() {
    let (server, _broker, users) = safe_node().await;
    users.add("app", passwords::hash_password("secret").expect("a hash")).await.expect("is made");
    let allow = async |resource, name: &str, action| {
        let rule = Rule {
            resource,
            pattern: Pattern::Literal,
            name: name.to_owned(),
            principal: "User:app".to_owned(),
            host: "*".to_owned(),
            action,
            verdict: Verdict::Allow,
        };
        users.add_rules(vec![rule]).await.expect("is added");
    };
    let root = basic("root", "toor");
    for name in ["seen", "hidden"] {
        let body = json!({"name": name, "partitions": 1}).to_string();
        let asked = request(Method::POST, "/v1/topics", &[("authorization", &root)], body);
        assert_eq!(ask(&mut connect(server.address).await, asked).await.status, 201);
    }
    let kafka = kafka(&server).await;
    for group in ["ours", "theirs"] {
        commit(&kafka, group, &[("seen", 0, 0), ("hidden", 0, 0)]).await;
    }
    allow(Resource::Group, "ours", Action::Describe).await;
    allow(Resource::Topic, "seen", Action::Describe).await;
    let page = server.get_as("/v1/groups", "app", "secret").await.json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
    assert_eq!(page["items"][0]["name"], "ours");
    let offsets = server.get_as("/v1/groups/ours/offsets", "app", "secret").await.json();
    assert_eq!(offsets["items"].as_array().map(Vec::len), Some(1), "{offsets}");
    assert_eq!(offsets["items"][0]["topic"], "seen");
    for path in ["/v1/groups/theirs", "/v1/groups/theirs/members", "/v1/groups/theirs/offsets"] {
        server.get_as(path, "app", "secret").await.is_problem(403, "not-allowed");
    }
    // Only visible topics of a member are shown.
    let topics = ["seen".to_owned(), "hidden".to_owned()];
    let id = Uuid::from_u128(1);
    let mut member =
        ConsumerMember::new(Arc::clone(&kafka), "ours", &topics, id, Duration::from_secs(30));
    member.report().await.expect("joins");
    let members = server.get_as("/v1/groups/ours/members", "app", "secret").await.json();
    let seen = &members["items"][0];
    assert_eq!(seen["topics"], json!(["seen"]), "{members}");
    assert_eq!(seen["assignment"], json!([{"topic": "seen", "partitions": [0]}]), "{members}");
}
