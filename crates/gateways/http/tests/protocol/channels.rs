//! RabbitMQ's management API: connections, channels and consumers of AMQP, as reported by their sessions.

use std::net::SocketAddr;

use axum::http::Method;
use client_amqp::{Channel, Mode, TimedStream};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{ReceivedResponse, SOON, Server, ask, basic, connect, request, safe_node};

type Client = Channel<TimedStream<TcpStream>>;

async fn open(address: SocketAddr, mode: Mode, user: [&str; 2]) -> Client {
    let stream = TcpStream::connect(address).await.expect("connects");
    Client::over(stream, SOON, mode, user).await.expect("opens")
}

async fn root(server: &Server, path: &str) -> Value {
    server.get_as(path, "root", "toor").await.json()
}

async fn delete(server: &Server, path: &str, headers: &[(&str, &str)]) -> ReceivedResponse {
    let said = basic("root", "toor");
    let headers = [headers, &[("authorization", &*said)]].concat();
    ask(&mut connect(server.address).await, request(Method::DELETE, path, &headers, "")).await
}

fn names(rows: &Value) -> Vec<&str> {
    let rows = rows.as_array().unwrap_or_else(|| panic!("{rows}"));
    rows.iter().map(|row| row["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn channels_and_consumers_are_listed_with_their_current_state() {
    let (server, _broker, _users) = safe_node().await;
    let (address, _serving) = server.serve_amqp().await;
    let mut publisher = open(address, Mode::Confirms, ["root", "toor"]).await;
    let queue = "q".to_owned();
    publisher.declare(std::slice::from_ref(&queue), &[]).await.expect("is declared");
    for _ in 0..3 {
        publisher.publish("", "q", b"m");
    }
    while publisher.unconfirmed() > 0 {
        publisher.confirms().await.expect("are confirmed");
    }
    let mut consumer = open(address, Mode::Transactions, ["root", "toor"]).await;
    consumer.consume("q", 2).await.expect("consumes");
    for _ in 0..2 {
        consumer.delivery(SOON).await.expect("a delivery").expect("in time");
    }
    let channels = root(&server, "/api/channels").await;
    let [first, second] = &channels.as_array().expect("rows")[..] else { panic!("{channels}") };
    for (row, confirm, unacknowledged, prefetch, consumers) in
        [(first, true, 0, 0, 0), (second, false, 2, 2, 1)]
    {
        assert_eq!((&row["number"], &row["vhost"]), (&json!(1), &json!("/")), "{row}");
        assert_eq!((&row["confirm"], &row["transactional"]), (&json!(confirm), &json!(!confirm)));
        assert_eq!(row["messages_unacknowledged"], unacknowledged, "{row}");
        assert_eq!((&row["messages_unconfirmed"], &row["user"]), (&json!(0), &json!("root")));
        assert_eq!(
            (&row["prefetch_count"], &row["consumer_count"]),
            (&json!(prefetch), &json!(consumers))
        );
    }
    let connections = root(&server, "/api/connections").await;
    let of_amqp = connections.as_array().expect("rows").iter();
    let rows: Vec<&Value> = of_amqp.filter(|row| row["protocol"] == "AMQP 0-9-1").collect();
    assert_eq!(rows.len(), 2, "{connections}");
    let (row, connection) = (rows[1], rows[1]["name"].as_str().expect("a name"));
    assert_eq!(
        (&row["vhost"], &row["channels"], &row["ssl"]),
        (&json!("/"), &json!(1), &json!(false))
    );
    assert_eq!(second["connection_details"]["name"], connection);
    // All paths that lead to it.
    let escaped = |name: &str| name.replace(' ', "%20").replace('>', "%3E");
    let channel = second["name"].as_str().expect("a name");
    let of_connection =
        root(&server, &format!("/api/connections/{}/channels", escaped(connection))).await;
    assert_eq!(names(&of_connection), [channel]);
    assert_eq!(names(&root(&server, "/api/vhosts/%2F/channels").await).len(), 2);
    assert_eq!(names(&root(&server, "/api/vhosts/%2F/connections").await).len(), 2);
    let page =
        root(&server, "/api/channels?page=1&page_size=1&sort=consumer_count&sort_reverse=true")
            .await;
    assert_eq!((&page["filtered_count"], &page["items"][0]["name"]), (&json!(2), &json!(channel)));
    let one = root(&server, &format!("/api/channels/{}", escaped(channel))).await;
    assert_eq!(one["consumer_details"][0]["queue"], json!({"name": "q", "vhost": "/"}), "{one}");
    for path in ["/api/consumers", "/api/consumers/%2F"] {
        let consumers = root(&server, path).await;
        let [row] = &consumers.as_array().expect("rows")[..] else { panic!("{consumers}") };
        assert_eq!((&row["queue"]["name"], &row["ack_required"]), (&json!("q"), &json!(true)));
        assert_eq!((&row["active"], &row["prefetch_count"]), (&json!(true), &json!(2)), "{row}");
        assert_eq!(row["consumer_timeout"], 0, "for as long as it is connected");
        assert_eq!(row["channel_details"]["connection_name"], connection, "{row}");
    }
    consumer.close().await.expect("closes");
    assert_eq!(root(&server, "/api/consumers").await, json!([]));
    let gone = server.get_as(&format!("/api/channels/{}", escaped(channel)), "root", "toor").await;
    assert_eq!(gone.status, 404);
}

#[tokio::test]
async fn single_active_consumer_is_reported_as_active() {
    let (server, _broker, _users) = safe_node().await;
    let (address, _serving) = server.serve_amqp().await;
    let said = basic("root", "toor");
    let single = json!({"arguments": {"x-single-active-consumer": true}}).to_string();
    let put = request(Method::PUT, "/api/queues/%2F/q", &[("authorization", &*said)], single);
    assert_eq!(ask(&mut connect(server.address).await, put).await.status, 201);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = open(address, Mode::Transactions, ["root", "toor"]).await;
        client.consume("q", 1).await.expect("consumes");
        clients.push(client);
    }
    // Messages go to the active consumer.
    let message =
        json!({"routing_key": "q", "payload": "m", "payload_encoding": "string", "properties": {}});
    let publish = "/api/exchanges/%2F/amq.default/publish";
    let headers = [("authorization", &*said)];
    let asked = request(Method::POST, publish, &headers, message.to_string());
    assert_eq!(ask(&mut connect(server.address).await, asked).await.status, 200);
    clients[0].delivery(SOON).await.expect("a delivery").expect("in time");
    // The session learns a moment later which of its consumers is active.
    let known = async {
        loop {
            let consumers = root(&server, "/api/consumers?sort=channel_details.name").await;
            let rows = consumers.as_array().expect("rows").iter();
            let of = |row: &Value| (row["active"] == true, row["activity_status"].clone());
            if rows.map(of).eq([(true, json!("single_active")), (false, json!("waiting"))]) {
                break;
            }
        }
    };
    timeout(SOON, known).await.expect("one is active, and not the other");
}

#[tokio::test]
async fn user_sees_own_connections_and_an_administrator_closes_those_of_a_user() {
    let (server, _broker, users) = safe_node().await;
    let (address, _serving) = server.serve_amqp().await;
    users.add("app", passwords::hash_password("secret").expect("a hash")).await.expect("is made");
    users.allow("app", "/", access_rules::Permissions::everything()).await.expect("is allowed");
    users
        .set_tags("app", access::Tags::new(vec!["management".to_owned()]).expect("tags"))
        .await
        .expect("is set");
    let _others = open(address, Mode::Confirms, ["root", "toor"]).await;
    let mut own = open(address, Mode::Confirms, ["app", "secret"]).await;
    for path in ["/api/channels", "/api/vhosts/%2F/channels"] {
        let seen = server.get_as(path, "app", "secret").await.json();
        assert_eq!(seen.as_array().map(Vec::len), Some(1), "{seen}");
        assert_eq!(seen[0]["user"], "app");
    }
    let seen = server.get_as("/api/connections", "app", "secret").await.json();
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(seen[0]["port"], address.port(), "{seen}");
    let of_user = root(&server, "/api/connections/username/app").await;
    let name = of_user[0]["name"].as_str().expect("a name").to_owned();
    assert_eq!(of_user.as_array().map(Vec::len), Some(1), "{of_user}");
    let path = format!("/api/connections/{}", name.replace(' ', "%20").replace('>', "%3E"));
    let said = basic("app", "secret");
    let asked = request(Method::DELETE, &path, &[("authorization", &*said)], "");
    assert_eq!(ask(&mut connect(server.address).await, asked).await.status, 401);
    let closed = delete(&server, "/api/connections/username/app", &[("x-reason", "a test")]).await;
    assert_eq!(closed.status, 204, "{closed:?}");
    own.delivery(SOON).await.expect_err("it is told that it is closed");
}

#[tokio::test]
async fn unsupported_features_are_listed_empty_and_cannot_be_set() {
    let (server, _broker, _users) = safe_node().await;
    for path in [
        "/api/vhost-limits",
        "/api/vhost-limits/%2F",
        "/api/user-limits",
        "/api/topic-permissions",
        "/api/users/ada/topic-permissions",
        "/api/vhosts/%2F/topic-permissions",
        "/api/channels",
        "/api/consumers",
        "/api/parameters",
        "/api/stream/connections",
        "/api/stream/publishers/%2F",
        "/api/stream/consumers",
    ] {
        assert_eq!(root(&server, path).await, json!([]), "{path}");
    }
    let said = basic("root", "toor");
    for (path, body) in [
        ("/api/topic-permissions/%2F/root", json!({"exchange": "x", "write": "", "read": ""})),
        ("/api/parameters/federation-upstream/%2F/up", json!({"value": {"uri": "amqp://"}})),
        ("/api/global-parameters/x", json!({"value": 1})),
    ] {
        let headers = [("authorization", &*said)];
        let put = request(Method::PUT, path, &headers, body.to_string());
        let refused = ask(&mut connect(server.address).await, put).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]),
            (400, &json!("bad_request"))
        );
        assert_eq!(delete(&server, path, &[]).await.status, 404, "{path}");
    }
}
