//! A client: its frames, its connection and its channels.

use bytes::{Bytes, BytesMut};
use gateway_amqp::codec::fields::{EncodedTable, LongString};
use gateway_amqp::codec::frame::{self, FrameFront, FrameKind, PROTOCOL_HEADER};
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::table::FieldTable;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{A_WHILE, SOON};

/// A received frame.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedFrame {
    pub(crate) kind: FrameKind,
    pub(crate) channel: u16,
    pub(crate) payload: Bytes,
}

impl ReceivedFrame {
    pub(crate) fn method(&self) -> Method<'_> {
        assert_eq!(self.kind, FrameKind::Method, "{self:?}");
        Method::decode(&self.payload).expect("a method")
    }
}

pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    buffer: BytesMut,
    /// Largest payload of a body frame that is sent.
    pub(crate) payload_bytes_max: usize,
    /// Heartbeats received and skipped.
    pub(crate) heartbeats: usize,
}

// ----------------------------------------------------------------------------------- the wire

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("is set");
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        let payload_bytes_max = (128 << 10) - frame::OVERHEAD_BYTES;
        Self { stream, buffer: BytesMut::new(), payload_bytes_max, heartbeats: 0 }
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        // The server may have closed already; the test then finds that.
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        let mut out = BytesMut::new();
        frame::put_method(channel, method, &mut out);
        self.send_bytes(&out).await;
    }

    /// Returns the next frame other than a heartbeat; `None` once the connection is closed.
    pub(crate) async fn frame(&mut self) -> Option<ReceivedFrame> {
        loop {
            let came = timeout(SOON, self.any_frame()).await.expect("the server says something")?;
            if came.kind != FrameKind::Heartbeat {
                return Some(came);
            }
            self.heartbeats += 1;
        }
    }

    async fn any_frame(&mut self) -> Option<ReceivedFrame> {
        loop {
            let front = frame::front(&self.buffer, 1 << 20).expect("a frame");
            if let FrameFront::Frame { bytes } = front {
                let bytes = self.buffer.split_to(bytes).freeze();
                let read = frame::read(&bytes).expect("a frame");
                let payload = bytes.slice_ref(read.payload);
                return Some(ReceivedFrame { kind: read.kind, channel: read.channel, payload });
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Asserts that only heartbeats arrive for a while.
    pub(crate) async fn is_silent(&mut self) {
        let came = timeout(A_WHILE, self.frame()).await;
        assert!(came.is_err(), "{came:?}");
    }

    /// Returns the next frame, which must be a method on this channel.
    pub(crate) async fn method(&mut self, channel: u16) -> ReceivedFrame {
        let came = self.frame().await.expect("the connection is open");
        assert_eq!((came.kind, came.channel), (FrameKind::Method, channel), "{came:?}");
        came
    }

    pub(crate) async fn call<'a>(
        &mut self,
        channel: u16,
        method: impl Into<Method<'a>>,
    ) -> ReceivedFrame {
        self.send(channel, method).await;
        self.method(channel).await
    }

    /// Asserts that the channel is closed with this text.
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

    /// Asserts that the connection is closed with this code and text, and then the socket.
    pub(crate) async fn connection_closes(&mut self, code: u16, text: &str) {
        let came = self.method(0).await;
        let Method::ConnectionClose(close) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!((close.reply_code, close.reply_text), (code, text));
        self.send(0, ConnectionCloseOk::default()).await;
        self.is_cut_off().await;
    }

    /// Waits for the end of the socket and skips all frames before it.
    pub(crate) async fn is_cut_off(&mut self) {
        while timeout(SOON, self.frame()).await.expect("the socket is closed").is_some() {}
    }
}

// ------------------------------------------------------------------------------ the connection

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) async fn start(&mut self) -> ReceivedFrame {
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
        let came = self.call(0, open).await;
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
        let came = self.call(channel, ChannelOpen::default()).await;
        assert!(matches!(came.method(), Method::ChannelOpenOk(_)), "{:?}", came.method());
    }

    /// Sends `channel.close` without waiting for the reply.
    pub(crate) async fn close_channel_later(&mut self, channel: u16) {
        self.send(channel, ChannelClose { reply_code: 200, ..ChannelClose::default() }).await;
    }

    pub(crate) async fn close_channel(&mut self, channel: u16) {
        let close = ChannelClose { reply_code: 200, ..ChannelClose::default() };
        let came = self.call(channel, close).await;
        assert!(matches!(came.method(), Method::ChannelCloseOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn close(mut self) {
        let close = ConnectionClose { reply_code: 200, ..ConnectionClose::default() };
        let came = self.call(0, close).await;
        assert!(matches!(came.method(), Method::ConnectionCloseOk(_)), "{:?}", came.method());
        self.stream.shutdown().await.expect("closes its side");
        self.is_cut_off().await;
    }
}

/// Properties of a client with every capability that the server supports.
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
