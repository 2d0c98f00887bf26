//! A server in memory that replies as Queen's source does (server/src/routes,
//! lib/schema/procedures), with one task for each connection.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use crate::stand_in::{Door, Planned};

#[derive(Clone)]
pub(super) struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// By path.
    planned: Planned<(u16, Value)>,
}

#[derive(Default)]
struct State {
    token: Option<String>,
    queues: BTreeMap<String, Queue>,
    pushed: Vec<Value>,
    leases: u64,
}

#[derive(Default)]
struct Queue {
    lease: Duration,
    partitions: BTreeMap<String, Partition>,
}

#[derive(Default)]
struct Partition {
    /// Transaction ids and payloads.
    messages: Vec<(String, Value)>,
    groups: HashMap<String, Position>,
}

/// State of a group in a partition.
#[derive(Default)]
struct Position {
    consumed: usize,
    lease: Option<(String, Instant)>,
    leased: usize,
    acknowledged: usize,
}

struct Request {
    method: String,
    path: String,
    query: HashMap<String, String>,
    token: Option<String>,
    body: Value,
}

impl Server {
    pub(super) async fn start() -> Self {
        let door = Door::open().await;
        let server =
            Self { address: door.address, state: Arc::default(), planned: Planned::default() };
        let serving = server.clone();
        door.serve(move |stream| serving.clone().serve(stream));
        server
    }

    pub(super) async fn start_with_token(token: &str) -> Self {
        let server = Self::start().await;
        server.state.lock().token = Some(token.into());
        server
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn pushed(&self) -> Vec<Value> {
        self.state.lock().pushed.clone()
    }

    pub(super) fn answer_once(&self, path: &str, status: u16, body: Value) {
        self.planned.once(path, (status, body));
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufStream::new(stream);
        while let Some(request) = read(&mut stream).await {
            let (status, body) = self.answer(&request).await;
            // Queen's server sends the empty result even with a 204.
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let written = stream.write_all((head + &body).as_bytes()).await;
            if written.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, request: &Request) -> (u16, Value) {
        let token = self.state.lock().token.clone();
        if request.path != "/health" && token.is_some() && token != request.token {
            return (401, json!({ "error": "Authentication required" }));
        }
        if let Some(answer) = self.planned.take(&request.path) {
            return answer;
        }
        let named = |prefix: &str| request.path.strip_prefix(prefix).map(str::to_owned);
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/health") => (200, json!({ "status": "healthy", "version": "1.0.0" })),
            ("GET", "/api/v1/resources/namespaces") => (200, json!({ "namespaces": [] })),
            ("POST", "/api/v1/configure") => (200, self.state.lock().configure(&request.body)),
            ("POST", "/api/v1/push") => (201, self.state.lock().push(&request.body)),
            ("POST", "/api/v1/ack/batch") => (200, self.state.lock().acknowledge(&request.body)),
            ("DELETE", _) => {
                let queue = named("/api/v1/resources/queues/").expect("a queue");
                let existed = self.state.lock().queues.remove(&queue).is_some();
                (200, json!({ "deleted": true, "queue": queue, "existed": existed }))
            }
            ("GET", _) => {
                let queue = named("/api/v1/pop/queue/").expect("a queue");
                self.pop(&queue, &request.query).await
            }
            other => panic!("{other:?}"),
        }
    }

    async fn pop(&self, queue: &str, query: &HashMap<String, String>) -> (u16, Value) {
        assert!(!query.contains_key("autoAck"), "nothing is acknowledged before it is settled");
        let number = |name: &str| query.get(name).map(|text| text.parse::<usize>().expect(name));
        let (batch, partitions) =
            (number("batch").unwrap_or(10), number("partitions").unwrap_or(1));
        let group = query.get("consumerGroup").map_or("__QUEUE_MODE__", String::as_str);
        let waits = query.get("wait").is_some_and(|wait| wait == "true");
        let timeout = if waits { number("timeout").expect("a timeout") } else { 0 };
        let deadline = Instant::now() + Duration::from_millis(timeout as u64);
        loop {
            let messages = self.state.lock().pop(queue, group, batch, partitions);
            if !messages.is_empty() {
                return (200, json!({ "success": true, "queue": queue, "messages": messages }));
            }
            if Instant::now() >= deadline {
                let error = "no_available_partition";
                return (204, json!({ "success": false, "error": error, "messages": [] }));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl State {
    fn configure(&mut self, body: &Value) -> Value {
        let seconds = body["options"]["leaseTime"].as_u64().expect("whole seconds");
        let name = body["queue"].as_str().expect("a name");
        let queue = self.queues.entry(name.to_owned()).or_default();
        queue.lease = Duration::from_secs(seconds);
        json!({ "configured": true, "queue": name })
    }

    fn push(&mut self, body: &Value) -> Value {
        let items = body["items"].as_array().expect("items");
        self.pushed.extend_from_slice(items);
        let push = |(index, item): (usize, &Value)| {
            let text = |name: &str| item[name].as_str().expect(name).to_owned();
            let queue = self.queues.entry(text("queue")).or_default();
            let partition = queue.partitions.entry(text("partition")).or_default();
            let id = text("transactionId");
            let known = partition.messages.iter().any(|(known, _)| *known == id);
            let status = if known { "duplicate" } else { "queued" };
            if !known {
                partition.messages.push((id.clone(), item["payload"].clone()));
            }
            json!({ "index": index, "transaction_id": id, "status": status })
        };
        items.iter().enumerate().map(push).collect()
    }

    fn pop(&mut self, queue: &str, group: &str, batch: usize, partitions: usize) -> Vec<Value> {
        self.leases += 1;
        let lease = format!("lease-{}", self.leases);
        let now = Instant::now();
        let mut messages = Vec::new();
        let mut claimed = 0;
        let Some(queue) = self.queues.get_mut(queue) else { return messages };
        for (name, partition) in &mut queue.partitions {
            if messages.len() >= batch || claimed >= partitions {
                break;
            }
            let position = partition.groups.entry(group.to_owned()).or_default();
            let held = position.lease.as_ref().is_some_and(|(_, until)| *until > now);
            let waiting = &partition.messages[position.consumed..];
            if held || waiting.is_empty() {
                continue;
            }
            claimed += 1;
            let taken = &waiting[..waiting.len().min(batch - messages.len())];
            position.lease = Some((lease.clone(), now + queue.lease));
            (position.leased, position.acknowledged) = (taken.len(), 0);
            messages.extend(taken.iter().map(|(id, payload)| {
                json!({
                    "transactionId": id,
                    "data": payload,
                    "partitionId": format!("id-of-{name}"),
                    "leaseId": lease,
                })
            }));
        }
        messages
    }

    fn acknowledge(&mut self, body: &Value) -> Value {
        let group = body["consumerGroup"].as_str().unwrap_or("__QUEUE_MODE__").to_owned();
        let told = body["acknowledgments"].as_array().expect("acknowledgments");
        let now = Instant::now();
        // All are validated before any is applied; then in the order of the messages.
        let mut valid = Vec::new();
        for (index, told) in told.iter().enumerate() {
            let text = |name: &str| told[name].as_str().expect(name);
            let position = self.position(text("partitionId"), text("transactionId"), &group);
            let Some((place, position)) = position else { continue };
            let lease = position.lease.as_ref();
            if lease.is_some_and(|(id, until)| id == text("leaseId") && *until > now) {
                valid.push((text("partitionId").to_owned(), place, index));
            }
        }
        valid.sort_unstable();
        for (partition, place, index) in &valid {
            let id = told[*index]["transactionId"].as_str().expect("is text");
            let (_, position) = self.position(partition, id, &group).expect("was there");
            match told[*index]["status"].as_str() {
                Some("completed") => {
                    // Everything before it counts as acknowledged.
                    position.consumed = place + 1;
                    position.acknowledged += 1;
                    if position.acknowledged >= position.leased {
                        position.lease = None;
                    }
                }
                Some("retry") => position.lease = None,
                other => panic!("{other:?}"),
            }
        }
        let answered = |index: usize| {
            let success = valid.iter().any(|(_, _, valid)| *valid == index);
            let error = if success { Value::Null } else { json!("Invalid or expired lease") };
            json!({ "index": index, "success": success, "error": error })
        };
        (0..told.len()).map(answered).collect()
    }

    /// Index of a message in its partition, and the position of the group there. Partition ids are
    /// unique in the server, and message ids are unique here.
    fn position(
        &mut self,
        partition: &str,
        transaction: &str,
        group: &str,
    ) -> Option<(usize, &mut Position)> {
        let name = partition.strip_prefix("id-of-").expect("is one of ours");
        let all = self.queues.values_mut().filter_map(|queue| queue.partitions.get_mut(name));
        for partition in all {
            let place = partition.messages.iter().position(|(id, _)| id == transaction);
            if let Some(place) = place {
                return Some((place, partition.groups.get_mut(group)?));
            }
        }
        None
    }
}

async fn read(stream: &mut BufStream<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split_whitespace();
    let (method, uri) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut token) = (0, None);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Request {
        method,
        path: path.to_owned(),
        query: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        token,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}
