//! HTTP/2: concurrent requests on one connection, and the same behaviour as HTTP/1.

use std::net::SocketAddr;
use std::time::Duration;

use access::Admission;
use axum::http::{Method, Request, Version};
use bytes::Bytes;
use futures_util::future::join_all;
use gateway::tls::ClientCertificates;
use gateway_http::LoginOptions;
use gateway_http::limits::HTTP2_ANSWER_PIECE_BYTES;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use test_tls::Authority;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::{ReceivedResponse, SOON, Server, basic, get, open_node, safe_node, whole};
use crate::records::{make, produce};

type Sender = http2::SendRequest<Full<Bytes>>;

async fn handshake(io: impl Read + Write + Unpin + Send + 'static) -> Sender {
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), io).await.expect("a client of HTTP/2");
    tokio::spawn(connection);
    sender
}

/// Connects with prior knowledge.
pub(crate) async fn connect(address: SocketAddr) -> Sender {
    handshake(TokioIo::new(TcpStream::connect(address).await.expect("connects"))).await
}

/// The host of the URI becomes `:authority`.
fn request(
    method: Method,
    uri: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(uri).version(Version::HTTP_2);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).expect("a request")
}

async fn ask(sender: &Sender, request: Request<Full<Bytes>>) -> ReceivedResponse {
    let response = timeout(SOON, sender.clone().send_request(request)).await.expect("in time");
    whole(response.expect("an answer")).await
}

pub(crate) async fn get_by(
    sender: &Sender,
    path: &str,
    headers: &[(&str, &str)],
) -> ReceivedResponse {
    let uri = format!("http://127.0.0.1{path}");
    ask(sender, request(Method::GET, &uri, headers, String::new())).await
}

async fn post_by(
    sender: &Sender,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> ReceivedResponse {
    let uri = format!("http://127.0.0.1{path}");
    ask(sender, request(Method::POST, &uri, headers, body.to_string())).await
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn concurrent_requests_of_one_connection_produce_and_consume_records() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 4, json!({})).await;
    let client = connect(server.address).await;
    // More than the limit of concurrent streams: the client queues the rest, since the node announces the limit.
    let produced = join_all((0..300).map(|number| {
        let record = json!({"records": [{"key": number.to_string(), "value": "x".repeat(10_000)}]});
        let client = &client;
        async move { post_by(client, "/v1/topics/t/records", &[JSON], record).await }
    }));
    for answer in produced.await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let path = "/v1/topics/t/groups/g";
    let made = ask(
        &client,
        request(Method::PUT, &format!("http://127.0.0.1{path}"), &[JSON], "{}".into()),
    );
    assert_eq!(made.await.status, 201);
    let taken = join_all((0..30).map(|_| {
        let client = &client;
        async move {
            let asked = json!({"max_records": 10, "wait_ms": 5_000, "lease_ms": 30_000});
            let leases = post_by(client, &format!("{path}/leases"), &[JSON], asked).await.json();
            let leases = leases["leases"].as_array().expect("leases").clone();
            let accept = |lease: &Value| json!({"token": lease["token"], "action": "accept"});
            let settles: Vec<_> = leases.iter().map(accept).collect();
            let (path, settles) = (format!("{path}/settle"), json!({"settles": settles}));
            let settled = post_by(client, &path, &[JSON], settles).await;
            assert_eq!(settled.status, 200);
            leases.len()
        }
    }));
    assert_eq!(taken.await.iter().sum::<usize>(), 300);
    assert_eq!(server.connections.list(None, 10).len(), 1);
    // The same port still serves HTTP/1.
    assert_eq!(server.get("/v1/topics/t").await.status, 200);
}

#[tokio::test]
async fn topic_is_streamed_concurrently_with_other_requests() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let client = connect(server.address).await;
    let uri = "http://127.0.0.1/v1/topics/t/stream?from=earliest";
    let followed = client.clone().send_request(request(Method::GET, uri, &[], String::new()));
    let mut events =
        timeout(SOON, followed).await.expect("in time").expect("an answer").into_body();
    for number in 0..20 {
        let record = json!({"records": [{"value": format!("v{number}")}]});
        assert_eq!(post_by(&client, "/v1/topics/t/records", &[JSON], record).await.status, 200);
        let frame = timeout(SOON, events.frame()).await.expect("in time").expect("an event");
        let data = frame.expect("whole").into_data().expect("data");
        let text = String::from_utf8(data.to_vec()).expect("text");
        assert!(text.contains(&format!("\"value\":\"v{number}\"")), "{text}");
    }
    // The stream ends when the node shuts down, and so does its connection.
    server.front.drain();
    let rest = timeout(SOON, events.collect()).await.expect("in time").expect("whole");
    drop(rest);
    timeout(SOON, server.shutdown()).await.expect("in time");
    let refused = client.clone().send_request(request(Method::GET, uri, &[], String::new())).await;
    refused.expect_err("the connection has ended");
}

#[tokio::test]
async fn request_in_flight_is_answered_when_the_node_shuts_down() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let client = connect(server.address).await;
    assert_eq!(get_by(&client, "/health/live", &[]).await.status, 200);
    let waiting = get_by(&client, "/v1/topics/t/partitions/0/records?wait_ms=1500", &[]);
    let shut = async {
        sleep(Duration::from_millis(200)).await;
        server.shutdown().await;
    };
    let (answer, ()) = tokio::join!(waiting, shut);
    assert_eq!((answer.status.as_u16(), &answer.json()["next"]), (200, &json!(0)));
}

#[tokio::test]
async fn host_is_checked_in_authority_and_host_header() {
    let (server, _broker) = open_node().await;
    let client = connect(server.address).await;
    for ours in ["127.0.0.1", "localhost:15672", "[::1]:15672", "x.localhost"] {
        let uri = format!("http://{ours}/metrics");
        let answer = ask(&client, request(Method::GET, &uri, &[], String::new())).await;
        assert_eq!(answer.status, 200, "{ours}");
    }
    for path in ["/metrics", "/health/ready", "/nothing"] {
        let uri = format!("http://evil.example{path}");
        let answer = ask(&client, request(Method::GET, &uri, &[], String::new())).await;
        answer.is_problem(421, "wrong-host");
    }
    // `Host` and `:authority` must agree.
    for (uri, host) in
        [("http://localhost/metrics", "evil.example"), ("http://evil.example/metrics", "localhost")]
    {
        let answer =
            ask(&client, request(Method::GET, uri, &[("host", host)], String::new())).await;
        answer.is_problem(400, "bad-request");
    }
    let same = [("host", "localhost")];
    let answer =
        ask(&client, request(Method::GET, "http://localhost/metrics", &same, String::new()));
    assert_eq!(answer.await.status, 200);
    // The origin is compared with the `:authority`.
    let topic = json!({"name": "t", "partitions": 1});
    let other = [JSON, ("origin", "http://evil.example")];
    post_by(&client, "/v1/topics", &other, topic.clone()).await.is_problem(403, "cross-site");
    let own = [JSON, ("origin", "http://127.0.0.1")];
    assert_eq!(post_by(&client, "/v1/topics", &own, topic).await.status, 201);
}

#[tokio::test]
async fn http2_requests_log_in_by_password_and_by_cookie() {
    let (server, _broker, _users) = safe_node().await;
    let client = connect(server.address).await;
    get_by(&client, "/v1/whoami", &[]).await.is_problem(401, "not-logged-in");
    let known = basic("root", "toor");
    let answer =
        get_by(&client, "/v1/whoami", &[("authorization", &known), ("x-request-id", "a-1")]).await;
    assert_eq!(answer.json()["user"], "root");
    assert_eq!(answer.header("x-request-id"), "a-1");
    let body = json!({"user": "root", "password": "toor"});
    let session = post_by(&client, "/v1/session", &[JSON], body).await;
    let cookie = session.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    // Clients may send each cookie in a header of its own.
    let cookies = [("cookie", "a=b"), ("cookie", &*cookie)];
    assert_eq!(get_by(&client, "/v1/session", &cookies).await.json()["user"], "root");
    assert_eq!(get_by(&client, "/v1/session", &[]).await.json()["user"], Value::Null);
    assert_eq!(server.connections.list(None, 10)[0].user(), "root");
}

#[tokio::test]
async fn tls_client_negotiates_the_version_and_sends_its_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = Server::encrypted(authority.tls(&clients, ClientCertificates::Optional)).await;
    let login =
        LoginOptions { plain: Admission::Required, tls: Admission::Required, plaintext: false };
    let (_broker, users) = server.open(login).await;
    users.trust_certificates("cn".parse().expect("a mapping"));
    let address = server.encrypted.expect("it encrypts");
    let root = clients.named("root");
    let open = async |protocols: &[&[u8]]| {
        authority.connect_speaking(protocols, address, Some(&root)).await.expect("connects")
    };
    let stream = open(&[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let client = handshake(TokioIo::new(stream)).await;
    for answer in join_all((0..20).map(|_| get_by(&client, "/v1/session", &[]))).await {
        assert_eq!(answer.json()["user"], "root");
        assert!(answer.headers.contains_key("strict-transport-security"));
    }
    for (protocols, agreed) in [
        (&[&b"http/1.1"[..]][..], Some(&b"http/1.1"[..])),
        (&[b"http/1.0"], Some(b"http/1.0")),
        (&[], None),
    ] {
        let stream = open(protocols).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a client");
        tokio::spawn(connection);
        let asked = crate::harness::request(Method::GET, "/v1/session", &[], "");
        assert_eq!(crate::harness::ask(&mut sender, asked).await.json()["user"], "root");
    }
}

#[tokio::test]
async fn further_request_of_a_connection_counts_as_a_connection() {
    let server = Server::start(|options| options.sessions_max = 4).await;
    let _node = server.open(LoginOptions::default()).await;
    let (client, other) = (connect(server.address).await, connect(server.address).await);
    make_by(&client, "t").await;
    assert_eq!(get_by(&other, "/health/live", &[]).await.status, 200);
    let wait = async || {
        get_by(&client, "/v1/topics/t/partitions/0/records?from=earliest&wait_ms=2000", &[]).await
    };
    let asked = async {
        sleep(Duration::from_millis(300)).await;
        let refused = get_by(&client, "/health/live", &[]).await;
        refused.is_problem(503, "busy");
        assert_eq!(refused.header("retry-after"), "1");
        // Each connection has a place of its own.
        assert_eq!(get_by(&other, "/health/live", &[]).await.status, 200);
    };
    let (one, two, three, ()) = tokio::join!(wait(), wait(), wait(), asked);
    for answer in [one, two, three] {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(get_by(&client, "/health/live", &[]).await.status, 200);
}

async fn make_by(client: &Sender, topic: &str) {
    let made =
        post_by(client, "/v1/topics", &[JSON], json!({"name": topic, "partitions": 1})).await;
    assert_eq!(made.status, 201, "{made:?}");
}

#[tokio::test]
async fn long_response_is_sent_whole_and_an_unread_one_blocks_no_other() {
    let within = Duration::from_millis(1_500);
    let server = Server::start(|options| options.answer_taken_within = within).await;
    let _node = server.open(LoginOptions::default()).await;
    make(&server, "t", 1, json!({})).await;
    let value = "v".repeat(900_000);
    produce(&server, "t", &[&value]).await;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(65_535);
    let stream = TcpStream::connect(server.address).await.expect("connects");
    let (client, connection) = builder.handshake(TokioIo::new(stream)).await.expect("a client");
    tokio::spawn(connection);
    let path = "/v1/topics/t/partitions/0/records?from=earliest";
    let answer = get_by(&client, path, &[]).await;
    assert_eq!(answer.json()["records"][0]["value"], value);
    // The stream's window fills before the whole response is sent, and only reading opens it again.
    let uri = format!("http://127.0.0.1{path}");
    let unread = client.clone().send_request(request(Method::GET, &uri, &[], String::new()));
    let mut unread = timeout(SOON, unread).await.expect("in time").expect("an answer").into_body();
    for _ in 0..40 {
        assert_eq!(get_by(&client, "/health/live", &[]).await.status, 200);
        sleep(within / 20).await;
    }
    let cut = timeout(SOON, async {
        let mut bytes = 0;
        loop {
            match unread.frame().await {
                Some(Ok(frame)) => bytes += frame.into_data().map_or(0, |data| data.len()),
                ended => return (bytes, ended.is_some()),
            }
        }
    });
    let (bytes, is_cut) = cut.await.expect("in time");
    assert!(is_cut && bytes < answer.body.len(), "{bytes}");
    assert!(bytes >= HTTP2_ANSWER_PIECE_BYTES, "{bytes}");
    assert_eq!(get_by(&client, "/health/live", &[]).await.status, 200);
    assert_eq!(get(server.address, path, &[]).await.status, 200);
}

#[tokio::test]
async fn metrics_port_serves_http2_and_its_connections_can_be_closed() {
    let (server, _broker) = open_node().await;
    let scraper = connect(server.metrics).await;
    assert_eq!(get_by(&scraper, "/metrics", &[]).await.status, 200);
    let listed = server.connections.list(None, 10);
    assert_eq!((listed.len(), listed[0].protocol()), (1, "metrics"));
    assert!(server.connections.close(listed[0].id()));
    timeout(SOON, async {
        while !server.connections.list(None, 10).is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it is closed");
}
