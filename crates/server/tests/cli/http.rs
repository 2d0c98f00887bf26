//! HTTP from an operator's view.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tasks::Task;

use crate::harness::{Broker, CommandOutput, postroad, run, serve, serve_at};

const PATIENCE: Duration = Duration::from_secs(60);

/// A response, as far as tests need it.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
}

/// `None`: the connection ended without a response.
pub(crate) fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<HttpResponse> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut head = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes()).ok()?;
    let mut whole = String::new();
    stream.read_to_string(&mut whole).ok()?;
    let status = whole.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(HttpResponse { status, text: whole })
}

#[track_caller]
fn status(address: SocketAddr, path: &str) -> u16 {
    get(address, path, &[]).expect("an answer").status
}

#[test]
fn start_up_line_has_the_http_address_that_is_served() {
    let broker = Broker::start();
    assert!(broker.http().ip().is_loopback());
    assert_eq!(status(broker.http(), "/health/ready"), 200);
    let console = format!(", console http://{}/,", broker.http());
    assert!(broker.announcement.contains(&console), "{}", broker.announcement);
    let page = get(broker.http(), "/", &[]).expect("an answer");
    assert!(page.status == 200 && page.text.contains("/console/app.js"), "{}", page.text);
    broker.run(&["topic", "create", "orders", "--partitions", "3"]).ok();
    broker.feed(&["produce", "orders"], "one\ntwo\n").ok();
    let metrics = get(broker.http(), "/metrics", &[]).expect("an answer");
    for line in [
        "postroad_topics 1",
        "postroad_partitions 3",
        "postroad_records_received_total{protocol=\"kafka\"} 2",
        "postroad_build_info{version=",
        "postroad_process_open_fds ",
    ] {
        assert!(metrics.text.contains(line), "{line}: {}", metrics.text);
    }
    assert_eq!(broker.terminate().0.code(), Some(0));
}

#[test]
fn http_can_be_off_and_metrics_can_have_their_own_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut command = serve(&data);
    command.args(["--http", "off", "--metrics", "127.0.0.1:0"]);
    let broker = Broker::start_with(command, &data);
    assert!(broker.announcement.contains("http off"), "{}", broker.announcement);
    let metrics = broker.port("metrics ");
    assert_eq!(status(metrics, "/metrics"), 200);
    assert_eq!(status(metrics, "/health/ready"), 200);
    assert_eq!(status(metrics, "/problems/starting"), 404);
}

#[test]
fn http_requires_a_login_once_there_is_a_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, password) = (folder.path().join("data"), folder.path().join("password"));
    fs::write(&password, "toor\n").expect("is written");
    let mut command = serve(&data);
    command.args(["--admin-user", "root", "--admin-password-file"]).arg(&password);
    let broker = Broker::start_with(command, &data);
    assert_eq!(status(broker.http(), "/metrics"), 401);
    // root:toor
    let headers = [("authorization", "Basic cm9vdDp0b29y")];
    assert_eq!(get(broker.http(), "/metrics", &headers).expect("an answer").status, 200);
    assert_eq!(status(broker.http(), "/health/live"), 200);
}

fn refused(folder: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = serve_at(&folder.join("data"), "127.0.0.1:0");
    command.args(arguments).env("POSTROAD_LOG", "error");
    command.stderr(std::process::Stdio::piped());
    run(command, b"")
}

#[test]
fn port_open_to_everyone_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let ways = [
        "--http 0.0.0.0:",
        "--admin-user NAME --admin-password-file FILE",
        "--http 127.0.0.1:",
        "--insecure",
    ];
    refused(folder.path(), &["--http", "0.0.0.0:0"]).fails(1, &ways);
    refused(folder.path(), &["--http", "0.0.0.0:0", "--auth", "off"]).fails(1, &ways);
    refused(folder.path(), &["--http", "nowhere"]).fails(1, &["--http", "nowhere"]);
    refused(folder.path(), &["--http-host", "a:1"]).fails(1, &["--http-host"]);
}

#[test]
fn request_with_an_unknown_host_name_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut command = serve(&data);
    command.args(["--http-host", "broker.internal"]);
    let broker = Broker::start_with(command, &data);
    let asked = |host| get(broker.http(), "/metrics", &[("host", host)]).expect("an answer").status;
    assert_eq!(
        (asked("evil.example"), asked("broker.internal"), asked("localhost")),
        (421, 200, 200)
    );
}

/// With a real client, which verifies the certificate.
#[test]
fn http_is_served_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut pair = postroad();
    pair.args(["tls", "self-signed", "--dir"]).arg(folder.path());
    run(pair, b"").ok();
    let mut command = serve(&data);
    command.args(["--http-tls", "127.0.0.1:0", "--tls-cert"]).arg(folder.path().join("cert.pem"));
    command.arg("--tls-key").arg(folder.path().join("key.pem"));
    let broker = Broker::start_with(command, &data);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--include", "--cacert"]);
    curl.arg(folder.path().join("cert.pem"));
    curl.arg(format!("https://{}/metrics", broker.port("http-tls ")));
    let Ok(output) = curl.output() else {
        // A machine without curl; the gateway's own tests need none.
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    // With HTTP/2 if this curl supports it.
    let is_answered = ["http/1.1 200", "http/2 200"].iter().any(|line| text.starts_with(line));
    assert!(is_answered, "{text} {output:?}");
    assert!(text.contains("strict-transport-security: max-age="), "{text}");
    assert!(text.contains("postroad_tls_certificate_end_seconds "), "{text}");
}

fn free_port() -> SocketAddr {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address")
}

/// The HTTP port is open before the node is ready, and until all other ports are closed. The others refuse their
/// clients, which then connect to another node.
#[test]
fn probe_gets_a_reply_while_the_node_starts_and_clients_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let [port, kafka, amqp] = [free_port(), free_port(), free_port()];
    // A member of a cluster whose other nodes do not exist: it never becomes ready.
    let mut command = serve_at(&data, &kafka.to_string());
    command.args(["--http", &port.to_string(), "--peer", "127.0.0.1:0"]);
    command.args(["--amqp", &amqp.to_string()]);
    command.args(["--advertise-peer", "127.0.0.1:7"]);
    command.args(["--seeds", "127.0.0.1:7,127.0.0.2:7,127.0.0.3:7"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    let live = loop {
        if let Some(answer) = get(port, "/health/live", &[]) {
            break answer.status;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody listens");
        std::thread::sleep(Duration::from_millis(10));
    };
    let (ready, startup) = (status(port, "/health/ready"), status(port, "/health/startup"));
    let connects = [kafka, amqp].map(|port| TcpStream::connect(port).map_err(|it| it.kind()));
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!((live, ready, startup), (200, 503, 503));
    for connect in connects {
        assert_eq!(connect.unwrap_err(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_panic_in_a_session_ends_that_session_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, trigger) = (folder.path().join("data"), folder.path().join("panic"));
    let mut command = serve(&data);
    let injection = format!("{}:{}", Task::HttpSession.name(), trigger.display());
    command.env(tasks::inject::VARIABLE, injection).env("RUST_BACKTRACE", "0");
    let broker = Broker::start_with(command, &data);
    assert_eq!(status(broker.http(), "/health/live"), 200);
    fs::write(&trigger, "").expect("is written");
    assert!(get(broker.http(), "/health/live", &[]).is_none(), "its connection is closed");
    assert!(!trigger.exists());
    assert_eq!(status(broker.http(), "/health/live"), 200);
    broker.run(&["topic", "create", "t"]).ok();
    let (status, log) = broker.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("a session panicked; its connection is closed"), "{log}");
}
