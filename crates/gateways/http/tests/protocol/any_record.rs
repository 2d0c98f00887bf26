//! Records of any protocol, read by clients of all protocols: none blocks the records behind it, ends a session, or
//! is lost.

use axum::http::Method;
use base::PartitionId;
use broker::{AppendBatch, Broker};
use bytes::BytesMut;
use client::fetcher::{CONSUME, FetchPosition, fetch};
use client::{Client, Tcp, TopicPartition};
use client_amqp::{Argument, Channel, Mode, TimedStream};
use record::{BatchBuilder, BatchHeader, BatchOptions, Header, split};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::harness::{SOON, Server, ask, basic, connect, request, safe_node};

/// Names of headers that gateways read, write or reserve.
const NAMES: [&str; 16] = [
    "amqp.exchange",
    "amqp.routing-key",
    "amqp.content-type",
    "amqp.expiration",
    "amqp.headers",
    "amqp.deaths",
    "amqp.blind-copies",
    "amqp.priority",
    "amqp.timestamp",
    "amqp.header.x",
    "postroad.death.reason",
    "postroad.priority",
    "postroad.key",
    "CC",
    "x-delay",
    "x-death",
];

/// Deterministic random numbers (xorshift).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn bytes(&mut self) -> Vec<u8> {
        let long = self.below(4) == 0;
        let count = if long { 240 + self.below(120) } else { self.below(12) };
        match self.below(4) {
            0 => (0..count).map(|_| self.below(256) as u8).collect(),
            1 => "\u{20ac}".repeat(count / 3 + 1).into_bytes(),
            // AMQP's encoding of a table or an array.
            2 => [&[1, b'a', b'S', 0, 0, 0, 1][..], &[self.below(256) as u8]].concat(),
            _ => (0..count).map(|_| b'0' + self.below(10) as u8).collect(),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => self.bytes(),
            _ => NAMES[self.below(NAMES.len())].as_bytes().to_vec(),
        }
    }

    fn headers(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let count = self.below(6);
        (0..count).map(|_| (self.name(), (self.below(8) > 0).then(|| self.bytes()))).collect()
    }
}

/// Appends like a gateway after it has validated a batch of a Kafka producer.
async fn append(broker: &Broker, topic: &str, random: &mut Sequence, value: &str) {
    let headers = random.headers();
    let headers: Vec<Header<'_>> =
        headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
    let key = (random.below(2) == 0).then(|| random.bytes());
    let timestamp = [0, -1, i64::MIN, i64::MAX, 1_700_000_000_000][random.below(5)];
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(timestamp, key.as_deref(), Some(value.as_bytes()), &headers).expect("it fits");
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let topic = broker.catalog().topic_id(topic).expect("it is there");
    let batch = AppendBatch::new(PartitionId::new(topic, 0), header, bytes);
    broker.append(vec![batch]).await.remove(0).expect("is appended");
}

/// Posts a record with such headers, or without them where HTTP rejects them.
async fn post(server: &Server, topic: &str, random: &mut Sequence, value: &str) {
    let header = |(name, value): (Vec<u8>, Option<Vec<u8>>)| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        json!({"name": text(&name), "value": value.map(|value| text(&value))})
    };
    let headers: Vec<Value> = random.headers().into_iter().map(header).collect();
    for headers in [headers, Vec::new()] {
        let body = json!({"records": [{"value": value, "headers": headers}]});
        let path = format!("/v1/topics/{topic}/records");
        let answer = send(server, Method::POST, &path, &body).await;
        if answer.0 == 200 {
            return;
        }
        assert_eq!(answer.0, 400, "{answer:?}");
    }
    panic!("a plain record is refused");
}

async fn send(server: &Server, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let said = basic("root", "toor");
    let headers = [("content-type", "application/json"), ("authorization", &*said)];
    let request = request(method, path, &headers, body.to_string());
    let answer = ask(&mut connect(server.address).await, request).await;
    (answer.status.as_u16(), answer.json())
}

async fn open(stream: TcpStream) -> Channel<TimedStream<TcpStream>> {
    Channel::over(stream, SOON, Mode::Confirms, ["root", "toor"]).await.expect("opens")
}

#[tokio::test]
async fn record_of_any_protocol_is_delivered_by_all_or_becomes_a_dead_letter() {
    const COUNT: usize = 300;
    let (server, broker, _users) = safe_node().await;
    let (address, _serving) = server.serve_amqp().await;
    let stream = TcpStream::connect(address).await.expect("connects");
    let mut amqp = open(stream).await;
    amqp.declare(&["dead".to_owned()], &[]).await.expect("is declared");
    let to_dead = [
        ("x-dead-letter-exchange", Argument::Text("")),
        ("x-dead-letter-routing-key", Argument::Text("dead")),
    ];
    amqp.declare(&["q".to_owned()], &to_dead).await.expect("is declared");
    let mut random = Sequence(0x9e37_79b9_7f4a_7c15);
    let values: Vec<String> = (0..COUNT).map(|number| format!("value {number}")).collect();
    for (number, value) in values.iter().enumerate() {
        match number % 2 {
            0 => append(&broker, "q", &mut random, value).await,
            _ => post(&server, "q", &mut random, value).await,
        }
    }

    // Kafka, and HTTP.
    let kafka = Client::connect(Tcp, &server.kafka().to_string(), None).await.expect("connects");
    let (mut offset, mut read) = (0, Vec::new());
    while read.len() < COUNT {
        let at = [FetchPosition { partition: TopicPartition::new("q", 0), offset }];
        let fetched = fetch(&*kafka.any().await, &at, CONSUME).await.expect("answers").remove(0);
        let bytes = fetched.records.expect("records");
        // The last batch of a response may be truncated.
        for (_, place) in split(&bytes).map_while(Result::ok) {
            let batch = record::Batch::decode(&bytes[place]).expect("sound");
            for record in batch.records() {
                let record = record.expect("sound");
                offset = record.offset + 1;
                read.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned());
            }
        }
    }
    assert_eq!(read, values);
    let mut read = Vec::new();
    while read.len() < COUNT {
        let path = format!("/v1/topics/q/partitions/0/records?from={}", read.len());
        let (status, page) = send(&server, Method::GET, &path, &json!(null)).await;
        assert_eq!(status, 200, "{page}");
        let records = page["records"].as_array().expect("records");
        read.extend(records.iter().map(|it| it["value"].as_str().expect("text").to_owned()));
    }
    assert_eq!(read, values);
    let look = json!({"count": COUNT, "ackmode": "ack_requeue_true", "encoding": "auto"});
    let (status, got) = send(&server, Method::POST, "/api/queues/%2F/q/get", &look).await;
    assert_eq!((status, got.as_array().map(Vec::len)), (200, Some(COUNT)), "{got}");

    // AMQP: each record is delivered, rejected, and delivered again as a dead letter.
    for queue in ["q", "dead"] {
        let stream = TcpStream::connect(address).await.expect("connects");
        let mut consumer = open(stream).await;
        consumer.consume(queue, 50).await.expect("consumes");
        let mut delivered = Vec::new();
        while delivered.len() < COUNT {
            let delivery = consumer.delivery(SOON).await.expect("the session goes on");
            let delivery = delivery.unwrap_or_else(|| panic!("{queue}: {}", delivered.len()));
            consumer.nack(delivery.tag, false);
            delivered.push(String::from_utf8_lossy(&delivery.body).into_owned());
        }
        consumer.close().await.expect("closes");
        delivered.sort_by_key(|value| values.iter().position(|it| it == value));
        assert_eq!(delivered, values, "{queue}");
    }
}
