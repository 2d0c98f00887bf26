//! A node and clients for the tests. A client uses the product's own client, and can also send invalid bytes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::Admission;
use access::{Quotas, SettingsUser, Users};
use admin::Admin;
use base::headers::{DEATH_REASON, DEATH_REASON_REJECTED, DEATH_TOPIC};
use base::{LeaseGroupId, MAIN_LEASE_GROUP};
use broker::{Broker, BrokerOptions};
use bytes::{Bytes, BytesMut};
pub(crate) use client::requests::topic_name as name;
use client::requests::{self, FetchLimits};
use client::{Pipeline, RequestHandle};
use consumer_groups::Groups;
use gateway::Connections;
use gateway_kafka::GatewayOptions;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, FetchRequest, FetchResponse, MetadataRequest, ProduceRequest,
    ProduceResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use nodes::{Endpoint, Endpoints, Nodes};
use operations::family::NamedFamilies;
use record::{Batch, BatchBuilder, BatchOptions, Header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use world::{Net, SimulatedDisk, World};

/// Longer than anything here takes; shorter than a hang.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Node {
    pub(crate) broker: Broker,
    pub(crate) address: SocketAddr,
    /// Present if login is required.
    pub(crate) users: Option<Users>,
    quotas: Quotas,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) serving: JoinHandle<()>,
}

impl Node {
    /// Leader epoch of the topic's first partition.
    pub(crate) fn leader_epoch(&self, topic: &str) -> i32 {
        let topic = self.broker.catalog().topic_named(topic).expect("it is there").id();
        self.broker.leaders(topic).of(0).epoch
    }

    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::on(Arc::new(SimulatedDisk::new()), change).await
    }

    /// A node on a disk that another one may have used.
    pub(crate) async fn on(
        disk: Arc<SimulatedDisk>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        Self::on_with(disk, Vec::new(), |_, options| change(options)).await
    }

    /// A node with operations of other parts.
    pub(crate) async fn with_families(families: NamedFamilies) -> Self {
        Self::on_with(Arc::new(SimulatedDisk::new()), families, |_, _| {}).await
    }

    async fn on_with(
        disk: Arc<SimulatedDisk>,
        families: NamedFamilies,
        change: impl FnOnce(&Broker, &mut GatewayOptions),
    ) -> Self {
        let options = BrokerOptions {
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            ..BrokerOptions::default()
        };
        let broker =
            Broker::open(World::on(disk), Path::new("/data"), options).await.expect("opens");
        // As in the tests of Kafka itself: the first member of a group need not wait for others.
        let is_configured = !broker.catalog().node_config().overrides.is_empty();
        if !is_configured {
            let delay = ("group.initial.rebalance.delay.ms".to_owned(), "0".to_owned());
            broker.set_node_config([delay].into()).await.expect("is configured");
        }
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let kafka = Endpoint { host: "127.0.0.1".to_owned(), port: address.port() };
        let nodes = Nodes::alone(
            broker.node(),
            Endpoints { kafka, amqp: None, kafka_tls: None, rack: None },
        );
        let groups = Groups::start(&broker);
        let connections = Connections::default();
        let admin = Admin::new(broker.clone(), groups.clone(), connections, families);
        let mut options = GatewayOptions::new(nodes, groups, admin);
        change(&broker, &mut options);
        if options.login.plain == Admission::Required {
            // The administrator, as which clients log in if login is required.
            let root = SettingsUser { name: "root".to_owned(), password: "toor".to_owned() };
            let users = Users::open(broker.clone(), vec![root], |_| true).await;
            options.users = Some(users.expect("users are read"));
        }
        let users = options.users.clone();
        let quotas = options.quotas.clone();
        let (stop, stopping) = watch::channel(false);
        let serving =
            tokio::spawn(gateway_kafka::serve(listener.into(), broker.clone(), options, stopping));
        Self { broker, address, users, quotas, stop, serving }
    }

    /// A node that stores quotas.
    pub(crate) async fn with_quotas() -> Self {
        Self::on_with(Arc::new(SimulatedDisk::new()), Vec::new(), |broker, options| {
            options.quotas = Quotas::open(broker.clone()).expect("quotas are read");
        })
        .await
    }

    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Shuts down as a server does.
    pub(crate) async fn shutdown(self) {
        self.stop.send_replace(true);
        self.serving.await.expect("ends well");
        self.broker.shutdown().await;
    }

    /// The lease group of a queue.
    pub(crate) fn main_group(&self, topic: &str) -> LeaseGroupId {
        let catalog = self.broker.catalog();
        let topic = catalog.topic_id(topic).expect("it was made");
        catalog.lease_group_named(topic, MAIN_LEASE_GROUP).expect("it was declared").id()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(TcpStream::connect(self.address).await.expect("connects"))
    }

    /// A client whose socket buffers little data.
    pub(crate) async fn client_with_small_window(&self) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("is set");
        Client::new(socket.connect(self.address).await.expect("connects"))
    }

    /// Checks that another client is served.
    pub(crate) async fn is_well(&self) {
        let mut client = self.client().await;
        let metadata = client.ask(12, &MetadataRequest::default().with_topics(None)).await;
        assert_eq!(metadata.brokers.len(), 1);
    }
}

/// Uses the product's client; invalid bytes bypass it.
pub(crate) struct Client {
    pipeline: Pipeline<TcpStream>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("is set");
        Self { pipeline: Pipeline::over(stream).named("test").patient_for(SOON) }
    }

    pub(crate) async fn ask<R: Request>(&mut self, version: i16, message: &R) -> R::Response {
        self.pipeline.call(version, message).await.expect("is answered")
    }

    pub(crate) async fn send<R: Request>(&mut self, version: i16, message: &R) -> RequestHandle<R> {
        self.pipeline.send(version, message).await.expect("sends")
    }

    /// Sends a request without a response.
    pub(crate) async fn tell<R: Request>(&mut self, version: i16, message: &R) {
        self.pipeline.tell(version, message).await.expect("sends");
    }

    /// Receives a response, which must be the next one.
    pub(crate) async fn receive<R: Request>(&mut self, sent: RequestHandle<R>) -> R::Response {
        self.pipeline.receive(sent).await.expect("is answered")
    }

    /// The client's own address, as the node sees it.
    pub(crate) fn address(&mut self) -> SocketAddr {
        self.pipeline.stream().local_addr().expect("is bound")
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.pipeline.into_stream()
    }

    // ------------------------------------------------------------------------- past the client

    /// Returns the size of the response, and the response.
    pub(crate) async fn ask_counted<R: Request>(
        &mut self,
        version: i16,
        message: &R,
    ) -> (usize, R::Response) {
        self.send_bytes(&frame(1, version, message)).await;
        let frame = self.receive_frame().await.expect("the connection is open");
        (frame.len(), decode::<R>(version, frame).1)
    }

    /// The response to a request of [`frame`], and its correlation id.
    pub(crate) async fn receive_raw<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let frame = self.receive_frame().await.expect("the connection is open");
        decode::<R>(version, frame)
    }

    /// `None` once the connection was closed.
    pub(crate) async fn receive_frame(&mut self) -> Option<Bytes> {
        let read = async {
            let stream = self.pipeline.stream();
            let length = stream.read_i32().await.ok()?;
            let mut frame = BytesMut::zeroed(usize::try_from(length).expect("a length"));
            stream.read_exact(&mut frame).await.ok()?;
            Some(frame.freeze())
        };
        timeout(SOON, read).await.expect("the broker answers or closes")
    }

    /// Checks that the connection is closed without a response.
    pub(crate) async fn is_cut_off(&mut self) {
        assert_eq!(self.receive_frame().await, None);
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        // The broker may have closed the connection already, which the test detects later.
        let _ = self.pipeline.stream().write_all(bytes).await;
    }
}

fn decode<R: Request>(version: i16, mut frame: Bytes) -> (i32, R::Response) {
    let header_version = R::Response::header_version(version);
    let header = ResponseHeader::decode(&mut frame, header_version).expect("a header");
    let response = R::Response::decode(&mut frame, version).expect("a response");
    assert!(frame.is_empty(), "{} bytes follow the response", frame.len());
    (header.correlation_id, response)
}

/// A whole frame with this message.
pub(crate) fn frame<R: Request>(correlation: i32, version: i16, message: &R) -> BytesMut {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_static_str("test")));
    let api = ApiKey::try_from(R::KEY).expect("an api");
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&[0; 4]);
    header.encode(&mut frame, api.request_header_version(version)).expect("encodes");
    message.encode(&mut frame, version).expect("encodes");
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn new_topic(topic: &str, partitions: i32, config: &[(&str, &str)]) -> CreatableTopic {
    let configs = config.iter().map(|(key, value)| {
        CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
    });
    CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(-1)
        .with_configs(configs.collect())
}

impl Client {
    /// Creates a topic, by default with unlimited retention: records of the tests are older than the default
    /// retention, and would be deleted at any moment. Returns its id.
    pub(crate) async fn create(
        &mut self,
        topic: &str,
        partitions: i32,
        config: &[(&str, &str)],
    ) -> uuid::Uuid {
        let mut config = config.to_vec();
        if !config.iter().any(|(key, _)| key.starts_with("retention.")) {
            config.push(("retention.ms", "-1"));
        }
        let topics = vec![new_topic(topic, partitions, &config)];
        let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(5000);
        let response = self.ask(7, &request).await;
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
        response.topics[0].topic_id
    }

    /// Produces one batch with version 9; returns the partition's result.
    pub(crate) async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: impl Into<Bytes>,
    ) -> PartitionProduceResponse {
        let response = self.ask(9, &produce(topic, partition, -1, batch.into())).await;
        only_partition(response)
    }

    /// Produces values and expects success; returns the first one's offset.
    pub(crate) async fn put(&mut self, topic: &str, partition: i32, values: &[&str]) -> i64 {
        let answer = self.produce(topic, partition, batch(values)).await;
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        answer.base_offset
    }

    /// Fetches all records of a partition from an offset on, by one fetch without a session.
    pub(crate) async fn get(&mut self, topic: &str, partition: i32, offset: i64) -> Vec<String> {
        let response = self.ask(11, &fetch(topic, partition, offset, 0)).await;
        values(&response)
    }
}

pub(crate) fn only_partition(response: ProduceResponse) -> PartitionProduceResponse {
    response.responses.into_iter().next().expect("a topic").partition_responses.remove(0)
}

pub(crate) fn batch(values: &[&str]) -> Vec<u8> {
    batch_of(BatchOptions::default(), &values.iter().map(|v| (None, *v)).collect::<Vec<_>>())
}

/// Records that rejects in topic `source` made dead letters.
pub(crate) fn dead_letters(values: &[&str]) -> Vec<u8> {
    let death = [
        Header { key: DEATH_REASON.as_bytes(), value: Some(DEATH_REASON_REJECTED.as_bytes()) },
        Header { key: DEATH_TOPIC.as_bytes(), value: Some(b"source") },
    ];
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for (timestamp, value) in (TIMESTAMP..).zip(values) {
        builder.push(timestamp, None, Some(value.as_bytes()), &death).expect("fits");
    }
    builder.finish()
}

pub(crate) const TIMESTAMP: i64 = 1_700_000_000_000;

/// The record at place n has the timestamp `TIMESTAMP + n`.
pub(crate) fn batch_of(options: BatchOptions, records: &[(Option<&str>, &str)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for (place, (key, value)) in records.iter().enumerate() {
        let key = key.map(str::as_bytes);
        let timestamp = TIMESTAMP + place as i64;
        builder.push(timestamp, key, Some(value.as_bytes()), &[]).expect("fits");
    }
    builder.finish()
}

pub(crate) fn produce(topic: &str, partition: i32, acks: i16, batch: Bytes) -> ProduceRequest {
    requests::produce(topic, acks, [(partition, batch)])
}

/// A fetch without a session, by name (versions up to 12).
pub(crate) fn fetch(topic: &str, partition: i32, offset: i64, wait_ms: i32) -> FetchRequest {
    let (bytes_max, partition_bytes_max) = (50 << 20, 1 << 20);
    let limits = FetchLimits { wait_ms, bytes_min: 1, bytes_max, partition_bytes_max };
    requests::fetch([(topic, [(partition, offset)])], limits)
}

/// The values of all records in a response, in its order.
pub(crate) fn values(response: &FetchResponse) -> Vec<String> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.flat_map(|partition| values_of(partition.records.as_deref())).collect()
}

pub(crate) fn values_of(records: Option<&[u8]>) -> Vec<String> {
    let records = records.unwrap_or_default();
    let batches = record::split(records).map(|split| split.expect("a batch").1);
    batches
        .flat_map(|place| {
            let batch = Batch::decode(&records[place]).expect("a batch");
            let values: Vec<_> = batch
                .records()
                .map(|record| {
                    let value = record.expect("a record").value.unwrap_or_default();
                    String::from_utf8_lossy(value).into_owned()
                })
                .collect();
            values
        })
        .collect()
}
