//! A node and clients for the tests.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::{SettingsUser, Users};
use broker::{Broker, BrokerOptions};
use bytes::{Bytes, BytesMut};
use gateway_amqp::GatewayOptions;
use gateway_amqp::codec::fields::{EncodedTable, LongString};
use gateway_amqp::codec::frame::{self, ContentHeader, FrameKind, Front, PROTOCOL_HEADER};
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::{Properties, WireProperties};
use gateway_amqp::codec::table::{FieldTable, FieldValue};
use gateway_amqp::dead_letter::{Router, SCHEME};
use gateway_amqp::operations::Administration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use topology::Topology;
use world::{Net, SimulatedDisk, World};

/// Longer than anything here takes; shorter than a hang.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Long enough to see that nothing comes.
pub(crate) const A_WHILE: Duration = Duration::from_millis(150);

pub(crate) struct Node {
    pub(crate) broker: Broker,
    pub(crate) administration: Administration,
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::on(Arc::new(SimulatedDisk::new()), change).await
    }

    /// A node whose settings name users.
    pub(crate) async fn with_users(users: Vec<SettingsUser>) -> Self {
        Self::start_on(Arc::new(SimulatedDisk::new()), users, |_| {}).await
    }

    /// A node on a disk that another one may have left.
    pub(crate) async fn on(
        disk: Arc<SimulatedDisk>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        Self::start_on(disk, Vec::new(), change).await
    }

    pub(crate) async fn start_on(
        disk: Arc<SimulatedDisk>,
        users: Vec<SettingsUser>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        let options = BrokerOptions {
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            ..BrokerOptions::default()
        };
        let broker =
            Broker::open(World::on(disk), Path::new("/data"), options).await.expect("opens");
        let topology = Topology::open(broker.clone()).await.expect("opens");
        let known = topology.clone();
        let users = Users::open(broker.clone(), users, move |name| known.vhost(name).is_some());
        let users = users.await.expect("opens");
        broker.set_dead_letter_router(SCHEME, Arc::new(Router::new(&topology)));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let mut options = GatewayOptions::default();
        change(&mut options);
        let (stop, stopping) = watch::channel(false);
        let serving = gateway_amqp::serve(
            listener,
            broker.clone(),
            topology.clone(),
            users.clone(),
            options,
            stopping,
        );
        let serving = tokio::spawn(serving);
        let administration = Administration::new(topology, users);
        Self { broker, administration, address, stop, serving }
    }

    /// Shuts down as a server does.
    pub(crate) async fn shutdown(self) {
        self.stop.send_replace(true);
        self.serving.await.expect("ends well");
        self.broker.shutdown().await;
    }

    /// A socket on which nothing was said.
    pub(crate) async fn socket(&self) -> Client {
        Client::new(TcpStream::connect(self.address).await.expect("connects"))
    }

    /// A client whose socket takes little that it does not read.
    pub(crate) async fn client_with_small_window(&self) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("is set");
        let mut client = Client::new(socket.connect(self.address).await.expect("connects"));
        client.log_in("guest", "guest").await;
        client.open().await;
        client
    }

    /// An open connection.
    pub(crate) async fn connection(&self) -> Client {
        let mut client = self.socket().await;
        client.log_in("guest", "guest").await;
        client.open().await;
        client
    }

    /// An open connection with channel 1.
    pub(crate) async fn client(&self) -> Client {
        let mut client = self.connection().await;
        client.open_channel(1).await;
        client
    }

    /// Somebody else is served as ever.
    pub(crate) async fn is_well(&self) {
        let mut client = self.client().await;
        let declared = client.declare_exclusive().await;
        client.publish(1, "", &declared, b"well").await;
        let (_, body) = client.get(1, &declared).await.expect("it is there");
        assert_eq!(body, b"well");
        client.close().await;
    }
}

pub(crate) fn user(name: &str, password: &str) -> SettingsUser {
    SettingsUser { name: name.into(), password: password.into() }
}

/// A frame that came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) kind: FrameKind,
    pub(crate) channel: u16,
    pub(crate) payload: Bytes,
}

impl Came {
    pub(crate) fn method(&self) -> Method<'_> {
        assert_eq!(self.kind, FrameKind::Method, "{self:?}");
        Method::decode(&self.payload).expect("a method")
    }
}

/// A message that came, with what was said about it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: Came,
    pub(crate) properties: Bytes,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn deliver(&self) -> BasicDeliver<'_> {
        match self.method.method() {
            Method::BasicDeliver(deliver) => deliver,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn properties(&self) -> Properties<'_> {
        Properties::decode(&self.properties).expect("properties")
    }

    pub(crate) fn headers(&self) -> FieldTable {
        let headers = self.properties().headers.unwrap_or_default();
        FieldTable::decode(headers.0).expect("a table")
    }

    pub(crate) fn header(&self, name: &str) -> Option<FieldValue> {
        self.headers().get(name).cloned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
    /// What may be in one body frame that is sent.
    pub(crate) payload_bytes_max: usize,
    /// Heartbeats that came and were passed over.
    pub(crate) heartbeats: usize,
}

// ----------------------------------------------------------------------------------- the wire

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("is set");
        let payload_bytes_max = (128 << 10) - frame::OVERHEAD_BYTES;
        Self { stream, buffer: BytesMut::new(), payload_bytes_max, heartbeats: 0 }
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        // The server may have closed already, which is what the test then finds.
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        let mut out = BytesMut::new();
        frame::put_method(channel, method, &mut out);
        self.send_bytes(&out).await;
    }

    /// The next frame that is no heartbeat; `None` once the connection was closed.
    pub(crate) async fn frame(&mut self) -> Option<Came> {
        loop {
            let came = timeout(SOON, self.any_frame()).await.expect("the server says something")?;
            if came.kind != FrameKind::Heartbeat {
                return Some(came);
            }
            self.heartbeats += 1;
        }
    }

    async fn any_frame(&mut self) -> Option<Came> {
        loop {
            let front = frame::front(&self.buffer, 1 << 20).expect("a frame");
            if let Front::Frame { bytes } = front {
                let bytes = self.buffer.split_to(bytes).freeze();
                let read = frame::read(&bytes).expect("a frame");
                let payload = bytes.slice_ref(read.payload);
                return Some(Came { kind: read.kind, channel: read.channel, payload });
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Nothing but heartbeats comes for a while.
    pub(crate) async fn is_silent(&mut self) {
        let came = timeout(A_WHILE, self.frame()).await;
        assert!(came.is_err(), "{came:?}");
    }

    /// The next frame, which is a method on this channel.
    pub(crate) async fn method(&mut self, channel: u16) -> Came {
        let came = self.frame().await.expect("the connection is open");
        assert_eq!((came.kind, came.channel), (FrameKind::Method, channel), "{came:?}");
        came
    }

    pub(crate) async fn ask<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) -> Came {
        self.send(channel, method).await;
        self.method(channel).await
    }

    /// The channel is closed with this text.
    pub(crate) async fn channel_closes(&mut self, channel: u16, text: &str) {
        let came = self.method(channel).await;
        let Method::ChannelClose(close) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(close.reply_text, text);
        self.send(channel, ChannelCloseOk::default()).await;
    }

    pub(crate) async fn refuses<'a>(
        &mut self,
        channel: u16,
        method: impl Into<Method<'a>>,
        text: &str,
    ) {
        self.send(channel, method).await;
        self.channel_closes(channel, text).await;
        self.open_channel(channel).await;
    }

    /// The connection is closed with this code and text, and then the socket.
    pub(crate) async fn connection_closes(&mut self, code: u16, text: &str) {
        let came = self.method(0).await;
        let Method::ConnectionClose(close) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!((close.reply_code, close.reply_text), (code, text));
        self.send(0, ConnectionCloseOk::default()).await;
        self.is_cut_off().await;
    }

    /// The socket is closed, whatever comes before.
    pub(crate) async fn is_cut_off(&mut self) {
        while timeout(SOON, self.frame()).await.expect("the socket is closed").is_some() {}
    }
}

// ------------------------------------------------------------------------------ the connection

impl Client {
    pub(crate) async fn start(&mut self) -> Came {
        self.send_bytes(&PROTOCOL_HEADER).await;
        self.method(0).await
    }

    pub(crate) async fn log_in(&mut self, name: &str, password: &str) {
        self.start().await;
        let response = format!("\0{name}\0{password}");
        let properties = client_properties();
        let start_ok = ConnectionStartOk {
            client_properties: EncodedTable(&properties),
            mechanism: "PLAIN",
            response: LongString(response.as_bytes()),
            locale: "en_US",
            ..ConnectionStartOk::default()
        };
        self.send(0, start_ok).await;
    }

    pub(crate) async fn open(&mut self) {
        self.open_with(60).await;
    }

    pub(crate) async fn open_with(&mut self, heartbeat: u16) {
        self.tune(heartbeat).await;
        let open = ConnectionOpen { virtual_host: "/", ..ConnectionOpen::default() };
        let came = self.ask(0, open).await;
        assert!(matches!(came.method(), Method::ConnectionOpenOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn tune(&mut self, heartbeat: u16) {
        let came = self.method(0).await;
        let Method::ConnectionTune(tune) = came.method() else { panic!("{:?}", came.method()) };
        let tune_ok = ConnectionTuneOk {
            channel_max: tune.channel_max,
            frame_max: tune.frame_max,
            heartbeat,
            ..ConnectionTuneOk::default()
        };
        self.send(0, tune_ok).await;
    }

    pub(crate) async fn open_channel(&mut self, channel: u16) {
        let came = self.ask(channel, ChannelOpen::default()).await;
        assert!(matches!(came.method(), Method::ChannelOpenOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn close_channel(&mut self, channel: u16) {
        let close = ChannelClose { reply_code: 200, ..ChannelClose::default() };
        let came = self.ask(channel, close).await;
        assert!(matches!(came.method(), Method::ChannelCloseOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn close(mut self) {
        let close = ConnectionClose { reply_code: 200, ..ConnectionClose::default() };
        let came = self.ask(0, close).await;
        assert!(matches!(came.method(), Method::ConnectionCloseOk(_)), "{:?}", came.method());
        self.stream.shutdown().await.expect("closes its side");
        self.is_cut_off().await;
    }
}

/// A client that can do all that the server may do to it.
pub(crate) fn client_properties() -> Bytes {
    let mut capabilities = FieldTable::new();
    for name in ["consumer_cancel_notify", "connection.blocked", "authentication_failure_close"] {
        capabilities.push(name, true);
    }
    let mut properties = FieldTable::new();
    properties.push("product", "test");
    properties.push("capabilities", capabilities);
    properties.to_bytes()
}

// ---------------------------------------------------------------------------------- messages

impl Client {
    pub(crate) async fn declare(&mut self, queue: &str) -> QueueCounts {
        self.declare_with(queue, &[]).await
    }

    pub(crate) async fn declare_with(
        &mut self,
        queue: &str,
        arguments: &[(&str, FieldValue)],
    ) -> QueueCounts {
        let arguments = table(arguments);
        let declare = QueueDeclare {
            queue,
            durable: true,
            arguments: EncodedTable(&arguments),
            ..QueueDeclare::default()
        };
        self.declared(1, declare).await
    }

    /// A queue of this connection's own; its name.
    pub(crate) async fn declare_exclusive(&mut self) -> String {
        let declare = QueueDeclare { exclusive: true, ..QueueDeclare::default() };
        self.declared(1, declare).await.name
    }

    /// What is in it, and who consumes it.
    pub(crate) async fn look_at(&mut self, queue: &str) -> QueueCounts {
        let declare = QueueDeclare { queue, passive: true, ..QueueDeclare::default() };
        self.declared(1, declare).await
    }

    pub(crate) async fn declared(
        &mut self,
        channel: u16,
        declare: QueueDeclare<'_>,
    ) -> QueueCounts {
        let came = self.ask(channel, declare).await;
        let Method::QueueDeclareOk(ok) = came.method() else { panic!("{:?}", came.method()) };
        QueueCounts {
            name: ok.queue.to_owned(),
            messages: ok.message_count,
            consumers: ok.consumer_count,
        }
    }

    pub(crate) async fn bind(&mut self, queue: &str, exchange: &str, routing_key: &str) {
        let bind = QueueBind { queue, exchange, routing_key, ..QueueBind::default() };
        let came = self.ask(1, bind).await;
        assert!(matches!(came.method(), Method::QueueBindOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn select_confirms(&mut self, channel: u16) {
        let came = self.ask(channel, ConfirmSelect::default()).await;
        assert!(matches!(came.method(), Method::ConfirmSelectOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn publish(&mut self, channel: u16, exchange: &str, key: &str, body: &[u8]) {
        let publish = BasicPublish { exchange, routing_key: key, ..BasicPublish::default() };
        self.publish_with(channel, publish, &Properties::default(), body).await;
    }

    pub(crate) async fn publish_with(
        &mut self,
        channel: u16,
        publish: BasicPublish<'_>,
        properties: &Properties<'_>,
        body: &[u8],
    ) {
        let out = self.content(channel, publish, properties, body);
        self.send_bytes(&out).await;
    }

    /// All frames of a message.
    pub(crate) fn content<'a>(
        &self,
        channel: u16,
        method: impl Into<Method<'a>>,
        properties: &Properties<'_>,
        body: &[u8],
    ) -> BytesMut {
        let mut out = BytesMut::new();
        frame::put_method(channel, method, &mut out);
        frame::put(FrameKind::Header, channel, &mut out, |out| {
            ContentHeader::put_fixed(60, body.len() as u64, out);
            properties.encode(out);
        });
        for part in body.chunks(self.payload_bytes_max) {
            frame::put(FrameKind::Body, channel, &mut out, |out| out.extend_from_slice(part));
        }
        out
    }

    /// What was published on the channel is where it belongs, up to here.
    pub(crate) async fn confirmed_up_to(&mut self, channel: u16, tag: u64) {
        let mut confirmed = 0;
        while confirmed < tag {
            let came = self.method(channel).await;
            let Method::BasicAck(ack) = came.method() else { panic!("{:?}", came.method()) };
            assert!(ack.delivery_tag > confirmed, "{ack:?} after {confirmed}");
            confirmed = ack.delivery_tag;
        }
        assert_eq!(confirmed, tag);
    }

    /// The rest of a message whose method came.
    pub(crate) async fn message(&mut self, method: Came) -> Message {
        let came = self.frame().await.expect("a header");
        assert_eq!((came.kind, came.channel), (FrameKind::Header, method.channel));
        let header = ContentHeader::decode(&came.payload).expect("a header");
        let properties = came.payload.slice_ref(header.properties);
        let mut body = Vec::new();
        while (body.len() as u64) < header.body_bytes {
            let came = self.frame().await.expect("a body");
            assert_eq!((came.kind, came.channel), (FrameKind::Body, method.channel));
            body.extend_from_slice(&came.payload);
        }
        assert_eq!(body.len() as u64, header.body_bytes);
        Message { method, properties, body }
    }

    /// The next message that is delivered, or returned.
    pub(crate) async fn next(&mut self, channel: u16) -> Message {
        let method = self.method(channel).await;
        self.message(method).await
    }

    pub(crate) async fn texts(&mut self, channel: u16, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(self.next(channel).await.text());
        }
        texts
    }

    /// One message off a queue, acknowledged by being sent; its properties and body.
    pub(crate) async fn get(&mut self, channel: u16, queue: &str) -> Option<(Message, Vec<u8>)> {
        let get = BasicGet { queue, no_ack: true, ..BasicGet::default() };
        let came = self.ask(channel, get).await;
        if matches!(came.method(), Method::BasicGetEmpty(_)) {
            return None;
        }
        let message = self.message(came).await;
        let body = message.body.clone();
        Some((message, body))
    }

    pub(crate) async fn consume(&mut self, channel: u16, queue: &str, consumer_tag: &str) {
        let consume = BasicConsume { queue, consumer_tag, ..BasicConsume::default() };
        self.consume_with(channel, consume, &[]).await;
    }

    pub(crate) async fn consume_with(
        &mut self,
        channel: u16,
        consume: BasicConsume<'_>,
        arguments: &[(&str, FieldValue)],
    ) {
        let arguments = table(arguments);
        let consume = BasicConsume { arguments: EncodedTable(&arguments), ..consume };
        let came = self.ask(channel, consume).await;
        assert!(matches!(came.method(), Method::BasicConsumeOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn prefetch(&mut self, channel: u16, prefetch_count: u16, global: bool) {
        let qos = BasicQos { prefetch_count, global, ..BasicQos::default() };
        let came = self.ask(channel, qos).await;
        assert!(matches!(came.method(), Method::BasicQosOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn ack(&mut self, channel: u16, delivery_tag: u64, multiple: bool) {
        self.send(channel, BasicAck { delivery_tag, multiple, ..BasicAck::default() }).await;
    }

    pub(crate) async fn nack(&mut self, channel: u16, delivery_tag: u64, requeue: bool) {
        self.send(channel, BasicNack { delivery_tag, requeue, ..BasicNack::default() }).await;
    }

    /// Publishes texts to a queue and waits until they are there.
    pub(crate) async fn fill(&mut self, queue: &str, texts: &[&str]) {
        for text in texts {
            self.publish(1, "", queue, text.as_bytes()).await;
        }
        self.look_at(queue).await;
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct QueueCounts {
    pub(crate) name: String,
    pub(crate) messages: u32,
    pub(crate) consumers: u32,
}

pub(crate) fn table(fields: &[(&str, FieldValue)]) -> Bytes {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    FieldTable(fields.collect()).to_bytes()
}
