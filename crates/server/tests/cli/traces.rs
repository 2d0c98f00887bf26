//! Spans of traced records, as received by an OpenTelemetry collector.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tasks::Task;

use crate::harness::{Broker, run, serve};
use crate::http::get;

const PATIENCE: Duration = Duration::from_secs(30);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A request to the collector.
struct Export {
    head: String,
    request: ExportTraceServiceRequest,
}

/// Replies to requests with these statuses, and later with 200.
fn collector(statuses: &'static [u16]) -> (SocketAddr, Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let (sender, exports) = mpsc::channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter().copied();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            while let Some(export) = read_request(&stream) {
                let status = statuses.next().unwrap_or(200);
                let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
                if stream.write_all(answer.as_bytes()).is_err() || sender.send(export).is_err() {
                    break;
                }
            }
        }
    });
    (address, exports)
}

fn read_request(stream: &TcpStream) -> Option<Export> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let lower = line.to_lowercase();
        if let Some(said) = lower.strip_prefix("content-length:") {
            length = said.trim().parse().ok()?;
        }
        head += &lower;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("a request of OTLP");
    Some(Export { head, request })
}

fn spans(export: &Export) -> impl Iterator<Item = &Span> {
    let scopes = export.request.resource_spans.iter().flat_map(|it| &it.scope_spans);
    scopes.flat_map(|scope| &scope.spans)
}

fn attributes(attributes: &[KeyValue]) -> HashMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let pair = |it: &KeyValue| {
        let value = it.value.as_ref().and_then(|value| value.value.as_ref());
        (it.key.clone(), text(value.expect("a value")))
    };
    attributes.iter().map(pair).collect()
}

/// Posts JSON, optionally with a trace that is sampled or not. Returns the response body.
#[track_caller]
fn post(address: SocketAddr, path: &str, sampled: Option<bool>, body: &str) -> String {
    send("POST", address, path, sampled, body)
}

#[track_caller]
fn send(
    method: &str,
    address: SocketAddr,
    path: &str,
    sampled: Option<bool>,
    body: &str,
) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    let trace = sampled
        .map(|sampled| format!("traceparent: 00-{TRACE}-{PARENT}-0{}\r\n", u8::from(sampled)));
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         {}content-length: {}\r\n\r\n{body}",
        trace.unwrap_or_default(),
        body.len(),
    );
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

/// Waits for this number of spans.
fn wait_for(exports: &Receiver<Export>, count: usize) -> Vec<Export> {
    let deadline = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    while found.iter().flat_map(spans).count() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        found.push(exports.recv_timeout(left).expect("spans come in time"));
    }
    found
}

#[test]
fn only_traced_records_have_spans_from_append_to_settle() {
    let (address, exports) = collector(&[503]);
    let folder = tempfile::tempdir().expect("a folder");
    let headers = folder.path().join("headers");
    std::fs::write(&headers, "x-key: s3cret\n").expect("written");
    let mut command = serve(&folder.path().join("data"));
    command.args(["--otel-endpoint", &format!("http://{address}/base")]);
    command.args(["--otel-headers", headers.to_str().expect("text"), "--history-bytes", "0"]);
    let broker = Broker::start_with(command, &folder.path().join("data"));
    broker.run(&["topic", "create", "orders"]).ok();
    send("PUT", broker.http(), "/v1/topics/orders/groups/cellar", None, "{}");
    let records = "/v1/topics/orders/records";
    for sampled in [None, Some(false), Some(true)] {
        post(broker.http(), records, sampled, r#"{"records": [{"value": "an order"}]}"#);
    }
    let leases = "/v1/topics/orders/groups/cellar/leases";
    let taken = r#"{"max_records": 3, "wait_ms": 5000, "lease_ms": 30000}"#;
    let taken = post(broker.http(), leases, None, taken);
    let tokens = taken.split("\"token\":\"").skip(1).map(|it| it.split('"').next().expect("one"));
    let settles = tokens.map(|token| format!(r#"{{"token": "{token}", "action": "accept"}}"#));
    let settles = settles.collect::<Vec<_>>();
    assert_eq!(settles.len(), 3, "{taken}");
    let settled = format!(r#"{{"settles": [{}]}}"#, settles.join(","));
    post(broker.http(), "/v1/topics/orders/groups/cellar/settle", None, &settled);

    // A request that the collector rejected temporarily is retried.
    let found = wait_for(&exports, 4);
    assert!(found[0].head.starts_with("post /base/v1/traces http/1.1"), "{}", found[0].head);
    for wanted in ["content-type: application/x-protobuf", "x-key: s3cret"] {
        assert!(found[0].head.contains(wanted), "{}", found[0].head);
    }
    let resource = found[0].request.resource_spans[0].resource.as_ref().expect("a resource");
    assert_eq!(attributes(&resource.attributes)["service.name"], "postroad");
    let all: HashMap<&str, &Span> =
        found.iter().flat_map(spans).map(|it| (&*it.name, it)).collect();
    let mut names: Vec<_> = all.keys().copied().collect();
    names.sort_unstable();
    assert_eq!(names, ["append orders", "deliver orders", "settle orders"]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let append = all["append orders"];
    assert_eq!((&*hex(&append.trace_id), &*hex(&append.parent_span_id)), (TRACE, PARENT));
    for name in ["deliver orders", "settle orders"] {
        let span = all[name];
        assert!(span.parent_span_id.is_empty() && hex(&span.trace_id) != TRACE);
        assert_eq!(hex(&span.links[0].trace_id), TRACE);
        let said = attributes(&span.attributes);
        assert_eq!(said["messaging.destination.name"], "orders");
        assert_eq!((&*said["postroad.offset"], &*said["network.protocol.name"]), ("2", "http"));
        assert_eq!(said["messaging.consumer.group.name"], "cellar");
    }
    assert_eq!(attributes(&all["settle orders"].attributes)["postroad.outcome"], "accepted");
    let metrics = get(broker.http(), "/metrics", &[]).expect("an answer").text;
    assert!(metrics.contains("postroad_trace_spans_total{outcome=\"dropped\"} 0"), "{metrics}");
    assert_eq!(broker.terminate().0.code(), Some(0));
}

#[test]
fn unreachable_collector_delays_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut command = serve(&data);
    command.args(["--otel-endpoint", "http://127.0.0.1:1"]);
    let broker = Broker::start_with(command, &data);
    broker.run(&["topic", "create", "orders"]).ok();
    let records = "/v1/topics/orders/records";
    post(broker.http(), records, Some(true), r#"{"records": [{"value": "an order"}]}"#);
    // The request is retried for a while; a stopping node does not wait for that.
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    assert_eq!(broker.terminate().0.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let log = std::fs::read_to_string(crate::harness::log_path(&data)).expect("a log");
    assert!(log.contains("spans are not taken by the collector"), "{log}");
}

#[test]
fn panic_while_authorities_are_read_loses_only_spans() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, trigger) = (folder.path().join("data"), folder.path().join("panic"));
    let mut command = serve(&data);
    command.args(["--otel-endpoint", "https://127.0.0.1:1"]);
    let injected = format!("{}:{}", Task::TraceAuthorities.name(), trigger.display());
    command.env(tasks::inject::VARIABLE, injected);
    let broker = Broker::start_with(command, &data);
    broker.run(&["topic", "create", "orders"]).ok();
    std::fs::write(&trigger, "").expect("written");
    let records = "/v1/topics/orders/records";
    post(broker.http(), records, Some(true), r#"{"records": [{"value": "an order"}]}"#);
    let begun = Instant::now();
    while trigger.exists() {
        assert!(begun.elapsed() < PATIENCE, "the authorities are not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    post(broker.http(), records, Some(true), r#"{"records": [{"value": "another"}]}"#);
    assert_eq!(broker.terminate().0.code(), Some(0));
    let mut wrong = serve(&data);
    wrong.args(["--otel-endpoint", "127.0.0.1:4318"]);
    run(wrong, b"").fails(1, &["--otel-endpoint", "http://127.0.0.1:4318"]);
}
