//! Malicious HTTP/2 clients, byte by byte: they are disconnected, and other clients are unaffected.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use gateway_http::limits::{
    HTTP_HEADERS_MAX, HTTP_HEADERS_WITHIN, HTTP2_CONTROL_FRAMES_MAX, HTTP2_RESETS_MAX,
    HTTP2_RESETS_UNSEEN_MAX, HTTP2_STREAMS_MAX,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{SOON, Server, open_node};
use crate::http2::{connect, get_by};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![high, middle, low, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A literal header without indexing (RFC 7541).
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        match text.len() {
            short @ ..127 => bytes.push(short as u8),
            long => {
                bytes.push(127);
                let mut left = long - 127;
                while left >= 128 {
                    bytes.push((left % 128) as u8 | 128);
                    left /= 128;
                }
                bytes.push(left as u8);
            }
        }
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The header block of a `GET`.
fn block(path: &str) -> Vec<u8> {
    // `:method GET`, `:scheme http`.
    let mut block = vec![0x82, 0x86];
    block.extend(literal(":path", path));
    block.extend(literal(":authority", "localhost"));
    block
}

fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(path))
}

fn reset_frame(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// A frame from the node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NodeFrame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl NodeFrame {
    /// Error code of a frame that ends a stream or the connection.
    fn reason(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

struct Client(TcpStream);

impl Client {
    /// Connects, and lets the node send `window` bytes of each response.
    async fn with_window(address: SocketAddr, window: u32) -> Self {
        let mut client = Self(TcpStream::connect(address).await.expect("connects"));
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        client.send(PREFACE).await.expect("is sent");
        client.send(&frame(SETTINGS, 0, 0, &settings)).await.expect("is sent");
        client
    }

    async fn open(server: &Server) -> Self {
        Self::with_window(server.address, 65_535).await
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The next frame; `None`: the connection has ended.
    async fn next(&mut self) -> Option<NodeFrame> {
        let mut head = [0; 9];
        timeout(SOON, self.0.read_exact(&mut head)).await.expect("in time").ok()?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        timeout(SOON, self.0.read_exact(&mut payload)).await.expect("in time").ok()?;
        Some(NodeFrame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The next frame of this kind.
    async fn next_of(&mut self, kind: u8) -> Option<NodeFrame> {
        loop {
            let said = self.next().await?;
            if said.kind == kind {
                return Some(said);
            }
        }
    }

    /// All frames until the connection ends.
    async fn rest(&mut self) -> Vec<NodeFrame> {
        let mut all = Vec::new();
        while let Some(said) = self.next().await {
            all.push(said);
        }
        all
    }
}

#[tokio::test]
async fn http_version_is_detected_from_single_bytes() {
    let (server, _broker) = open_node().await;
    let mut client = Client(TcpStream::connect(server.address).await.expect("connects"));
    client.0.set_nodelay(true).expect("is set");
    let said = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &get_frame(1, "/health/live")].concat();
    for byte in said {
        client.send(&[byte]).await.expect("is sent");
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.next_of(HEADERS).await.map(|said| said.stream), Some(1));
    // A method with the same first letters may arrive in pieces, too.
    let mut stream = TcpStream::connect(server.address).await.expect("connects");
    for piece in
        [&b"P"[..], b"R", b"OPFIND / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"]
    {
        stream.write_all(piece).await.expect("is sent");
        sleep(Duration::from_millis(20)).await;
    }
    let mut text = String::new();
    timeout(SOON, stream.read_to_string(&mut text)).await.expect("in time").expect("text");
    assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
}

/// Other clients are served while one is disconnected.
async fn unharmed(server: &Server) {
    assert_eq!(server.get("/health/live").await.status, 200);
    let other = connect(server.address).await;
    assert_eq!(get_by(&other, "/health/live", &[]).await.status, 200);
}

#[tokio::test]
async fn streams_over_the_limit_are_refused() {
    let (server, _broker) = open_node().await;
    crate::records::make(&server, "t", 1, serde_json::json!({})).await;
    let mut client = Client::open(&server).await;
    let wait = "/v1/topics/t/partitions/0/records?wait_ms=20000";
    for number in 0..HTTP2_STREAMS_MAX {
        client.send(&get_frame(2 * number + 1, wait)).await.expect("is sent");
    }
    let one_more = 2 * HTTP2_STREAMS_MAX + 1;
    client.send(&get_frame(one_more, wait)).await.expect("is sent");
    let refused = client.next_of(RST_STREAM).await.expect("is refused");
    assert_eq!((refused.stream, refused.reason()), (one_more, REFUSED_STREAM));
    unharmed(&server).await;
    // A cancelled request makes room for another.
    client.send(&reset_frame(1)).await.expect("is sent");
    client.send(&get_frame(one_more + 2, "/health/live")).await.expect("is sent");
    let answer = client.next_of(HEADERS).await.expect("an answer");
    assert_eq!(answer.stream, one_more + 2);
}

#[tokio::test]
async fn client_that_resets_requests_at_once_is_disconnected() {
    let (server, _broker) = open_node().await;
    let mut client = Client::open(&server).await;
    let mut flood = Vec::new();
    for number in 0..1_000 {
        flood.extend(get_frame(2 * number + 1, "/v1/topics"));
        flood.extend(reset_frame(2 * number + 1));
    }
    // The connection may be closed before all of it is written.
    let _ = client.send(&flood).await;
    let said = client.rest().await;
    let answered = said.iter().filter(|said| said.kind == HEADERS).count();
    assert!(answered <= HTTP2_RESETS_MAX as usize, "{answered}");
    assert!(
        said.iter().all(|it| it.kind != GOAWAY || it.reason() == ENHANCE_YOUR_CALM),
        "{said:?}"
    );
    unharmed(&server).await;
    assert!(HTTP2_RESETS_UNSEEN_MAX < HTTP2_RESETS_MAX as usize);
}

#[tokio::test]
async fn client_that_resets_running_requests_is_disconnected() {
    let (server, _broker) = open_node().await;
    crate::records::make(&server, "t", 1, serde_json::json!({})).await;
    let mut client = Client::open(&server).await;
    let begun = Instant::now();
    let mut number = 0;
    while number < 10 * HTTP2_RESETS_MAX {
        let stream = 2 * number + 1;
        let wait = get_frame(stream, "/v1/topics/t/partitions/0/records?wait_ms=20000");
        if client.send(&wait).await.is_err() {
            break;
        }
        sleep(Duration::from_millis(2)).await;
        if client.send(&reset_frame(stream)).await.is_err() {
            break;
        }
        number += 1;
    }
    // The client notices the end a few writes later.
    assert!((HTTP2_RESETS_MAX..2 * HTTP2_RESETS_MAX).contains(&number), "{number}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    unharmed(&server).await;
}

#[tokio::test]
async fn client_that_floods_pings_or_settings_is_disconnected() {
    let (server, _broker) = open_node().await;
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(HTTP2_CONTROL_FRAMES_MAX as usize + 1);
    let settings = frame(SETTINGS, 0, 0, &[]).repeat(HTTP2_CONTROL_FRAMES_MAX as usize + 1);
    let mut empty = frame(HEADERS, END_HEADERS, 1, &block("/health/live"));
    empty.extend(frame(DATA, 0, 1, &[]).repeat(10_000));
    for flood in [pings, settings, empty] {
        let mut client = Client::open(&server).await;
        let _ = client.send(&flood).await;
        client.rest().await;
        unharmed(&server).await;
    }
    // A few of them are answered.
    let mut client = Client::open(&server).await;
    client.send(&frame(PING, 0, 0, b"are you?")).await.expect("is sent");
    let answer = client.next_of(PING).await.expect("is answered");
    assert_eq!((answer.flags, &*answer.payload), (1, &b"are you?"[..]));
}

#[tokio::test]
async fn header_block_over_the_limit_is_rejected() {
    let (server, _broker) = open_node().await;
    // Split into three frames.
    let mut long = block("/health/live");
    for number in 0..4 {
        long.extend(literal(&format!("x-long-{number}"), &"a".repeat(10_000)));
    }
    let mut client = Client::open(&server).await;
    client.send(&frame(HEADERS, END_STREAM, 1, &long[..15_000])).await.expect("is sent");
    client.send(&frame(CONTINUATION, 0, 1, &long[15_000..30_000])).await.expect("is sent");
    client.send(&frame(CONTINUATION, END_HEADERS, 1, &long[30_000..])).await.expect("is sent");
    let refused = client.next_of(HEADERS).await.expect("is answered");
    // `:status 431`, which is not in the static table.
    assert!(refused.payload.windows(3).any(|part| part == b"431") || refused.payload.len() < 10);
    // Only the beginning of a megabyte is read.
    let mut client = Client::open(&server).await;
    let huge = literal("x-long", &"a".repeat(1 << 20));
    let mut flood = frame(HEADERS, END_STREAM, 1, &block("/health/live"));
    for part in huge.chunks(16_000) {
        flood.extend(frame(CONTINUATION, 0, 1, part));
    }
    let _ = client.send(&flood).await;
    let said = client.rest().await;
    assert!(said.iter().all(|said| said.kind != HEADERS), "{said:?}");
    // Neither is a block that never ends.
    let mut client = Client::open(&server).await;
    client.send(&frame(HEADERS, END_STREAM, 1, &block("/health/live"))).await.expect("is sent");
    let _ = client.send(&frame(CONTINUATION, 0, 1, &[]).repeat(100_000)).await;
    client.rest().await;
    unharmed(&server).await;
    // The number of headers is limited.
    let many: Vec<_> = (0..HTTP_HEADERS_MAX + 1).map(|number| format!("x-{number}")).collect();
    let many: Vec<_> = many.iter().map(|name| (&**name, "1")).collect();
    let answer = get_by(&connect(server.address).await, "/health/live", &many).await;
    answer.is_problem(431, "headers-too-long");
}

#[tokio::test]
async fn connection_specific_headers_are_rejected() {
    let (server, _broker) = open_node().await;
    for name in ["connection", "transfer-encoding", "upgrade", "keep-alive"] {
        let mut client = Client::open(&server).await;
        let mut headers = block("/health/live");
        headers.extend(literal(name, "close"));
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &headers)).await.expect("is sent");
        let refused = client.next_of(RST_STREAM).await.expect("is refused");
        assert_eq!((refused.stream, refused.reason()), (1, 1), "{name}");
    }
}

#[tokio::test]
async fn idle_http2_connection_is_closed() {
    let (server, _broker) = open_node().await;
    let half = frame(HEADERS, END_STREAM, 1, &block("/health/live"));
    let cases =
        [PREFACE[..3].to_vec(), PREFACE.to_vec(), [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()];
    let mut waiting = tokio::task::JoinSet::new();
    for said in cases.into_iter().chain([[PREFACE, &frame(SETTINGS, 0, 0, &[]), &half].concat()]) {
        let address = server.address;
        waiting.spawn(async move {
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).await.expect("connects");
            stream.write_all(&said).await.expect("is sent");
            let _ = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("is closed");
            begun.elapsed()
        });
    }
    for took in waiting.join_all().await {
        assert!(took >= HTTP_HEADERS_WITHIN - Duration::from_secs(1), "{took:?}");
    }
}

#[tokio::test]
async fn idle_connection_after_requests_is_closed_with_goaway() {
    let (server, _broker) = open_node().await;
    let mut client = Client::open(&server).await;
    client.send(&get_frame(1, "/health/live")).await.expect("is sent");
    let begun = Instant::now();
    let goodbye = client.next_of(GOAWAY).await.expect("it hears it");
    assert_eq!(goodbye.reason(), 0);
    assert!(begun.elapsed() >= HTTP_HEADERS_WITHIN - Duration::from_secs(1));
}

#[tokio::test]
async fn client_that_does_not_read_its_responses_is_disconnected() {
    let within = Duration::from_millis(300);
    let server = Server::start(|options| options.answer_taken_within = within).await;
    let _node = server.open(Default::default()).await;
    // Its window is closed.
    let mut client = Client::with_window(server.address, 0).await;
    client.send(&get_frame(1, "/metrics")).await.expect("is sent");
    assert_eq!(client.next_of(HEADERS).await.map(|said| said.stream), Some(1));
    let cut = client.next_of(RST_STREAM).await.expect("it is given up");
    assert_eq!(cut.stream, 1);
    // This client does not read either, and its window is open.
    let mut client = Client::with_window(server.address, (1 << 31) - 1).await;
    let more = frame(8, 0, 0, &((1_u32 << 30) - 1).to_be_bytes());
    client.send(&more).await.expect("is sent");
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < SOON
        && client.send(&get_frame(2 * number + 1, "/metrics")).await.is_ok()
    {
        number += 1;
        sleep(Duration::from_millis(1)).await;
    }
    assert!(begun.elapsed() < SOON, "it is not cut off");
    unharmed(&server).await;
}
