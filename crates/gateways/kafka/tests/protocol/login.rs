//! Login, and requests of clients that are not logged in.

use std::time::Duration;

use access::Admission;
use gateway_kafka::GatewayOptions;
use gateway_kafka::limits::{LOGIN_FRAME_BYTES_MAX, LOGIN_WITHIN};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiVersionsRequest, MetadataRequest, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest,
};
use scram::Hash;
use scram::client::Client as Scram;
use tokio::time::{Instant, sleep};

use crate::harness::*;

fn required(options: &mut GatewayOptions) {
    options.login.plain = Admission::Required;
}

async fn node() -> Node {
    Node::with(required).await
}

fn handshake(mechanism: &str) -> SaslHandshakeRequest {
    SaslHandshakeRequest::default().with_mechanism(text(mechanism))
}

fn say(bytes: &[u8]) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest::default().with_auth_bytes(bytes.to_vec().into())
}

impl Client {
    async fn begins(&mut self, mechanism: &str) {
        assert_eq!(self.ask(1, &handshake(mechanism)).await.error_code, 0);
    }

    async fn says(&mut self, bytes: &[u8]) -> SaslAuthenticateResponse {
        self.ask(2, &say(bytes)).await
    }

    /// Checks that the client is served.
    async fn asks(&mut self) {
        let metadata = self.ask(12, &MetadataRequest::default()).await;
        assert_eq!(metadata.brokers.len(), 1);
    }
}

#[tokio::test]
async fn only_api_versions_is_answered_before_the_login() {
    let node = node().await;
    let mut client = node.client().await;
    let versions = client.ask(3, &crate::sessions::versions_request()).await;
    assert!(versions.api_keys.iter().any(|api| api.api_key == 17));
    client.send_bytes(&frame(1, 12, &MetadataRequest::default())).await;
    client.is_cut_off().await;

    let mut client = node.client().await;
    client.begins("PLAIN").await;
    let said = client.says(b"\0root\0toor").await;
    assert_eq!((said.error_code, said.session_lifetime_ms), (0, 0));
    client.asks().await;
    // A logged-in client may request versions again.
    client.ask(0, &ApiVersionsRequest::default()).await;
}

#[tokio::test]
async fn login_succeeds_by_each_mechanism_and_over_bare_messages() {
    let node = node().await;
    for hash in Hash::ALL {
        let scram = Scram::new(hash, "root", "toor", "clientnonce");
        let mut client = node.client().await;
        client.begins(hash.mechanism()).await;
        let challenge = client.says(scram.first().as_bytes()).await.auth_bytes;
        let (last, expected) = scram.answer(&challenge).expect("well-formed");
        expected.check(&client.says(last.as_bytes()).await.auth_bytes).expect("it knows");
        client.asks().await;
    }
    // As clients before Kafka 1.0 do: lengths, without requests around the messages.
    let mut client = node.client().await;
    assert_eq!(client.ask(0, &handshake("PLAIN")).await.error_code, 0);
    client.send_bytes(b"\0\0\0\x0a\0root\0toor").await;
    assert_eq!(client.receive_frame().await.as_deref(), Some(&b""[..]));
    client.asks().await;
    let mut client = node.client().await;
    client.ask(0, &handshake("PLAIN")).await;
    client.send_bytes(b"\0\0\0\x04\0r\0x").await;
    client.is_cut_off().await;
}

#[tokio::test]
async fn failed_login_is_answered_and_closes_the_connection() {
    let node = node().await;
    let mut client = node.client().await;
    let refused = client.ask(1, &handshake("GSSAPI")).await;
    assert_eq!(refused.error_code, ResponseError::UnsupportedSaslMechanism.code());
    let offered: Vec<&str> = refused.mechanisms.iter().map(|it| it.as_str()).collect();
    assert_eq!(offered, ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]);
    client.is_cut_off().await;

    let failed = ResponseError::SaslAuthenticationFailed.code();
    for (mechanism, message) in [
        ("PLAIN", &b"\0root\0wrong"[..]),
        ("PLAIN", b"\0nobody\0toor"),
        ("PLAIN", b"other\0root\0toor"),
        ("PLAIN", b""),
        ("PLAIN", &[0xff; 60_000]),
        ("SCRAM-SHA-256", b""),
        ("SCRAM-SHA-256", b"n,,"),
        ("SCRAM-SHA-512", b"n,,x"),
        ("SCRAM-SHA-512", &[b','; 60_000]),
    ] {
        let mut client = node.client().await;
        client.begins(mechanism).await;
        let said = client.says(message).await;
        assert_eq!(said.error_code, failed, "{mechanism}");
        let told = said.error_message.expect("it says why");
        assert!(told.contains(mechanism) && !told.contains("nobody"), "{told:?}");
        client.is_cut_off().await;
    }
    let mut client = node.client().await;
    let early = client.says(b"\0root\0toor").await;
    assert_eq!(early.error_code, ResponseError::IllegalSaslState.code());
    client.is_cut_off().await;
    // During a login, no other request is accepted.
    let mut client = node.client().await;
    client.begins("PLAIN").await;
    client.send_bytes(&frame(1, 0, &ApiVersionsRequest::default())).await;
    client.is_cut_off().await;
}

#[tokio::test]
async fn frames_before_a_log_in_are_small() {
    let node = node().await;
    let too_long = (LOGIN_FRAME_BYTES_MAX as i32 + 1).to_be_bytes();
    let mut client = node.client().await;
    client.send_bytes(&too_long).await;
    client.send_bytes(&[0; 8]).await;
    client.is_cut_off().await;
    // Also for messages without a request around them.
    for length in [too_long, (-1_i32).to_be_bytes()] {
        let mut client = node.client().await;
        client.ask(0, &handshake("PLAIN")).await;
        client.send_bytes(&length).await;
        client.is_cut_off().await;
    }
    let mut client = node.client().await;
    client.begins("PLAIN").await;
    client.says(b"\0root\0toor").await;
    let many = vec!["a-name-that-takes-some-room"; LOGIN_FRAME_BYTES_MAX / 16];
    let request = client::requests::metadata(many.iter().copied());
    client.ask(9, &request).await;
}

#[tokio::test]
async fn slow_login_is_disconnected() {
    let node = node().await;
    let began = Instant::now();
    let mut client = node.client().await;
    client.begins("SCRAM-SHA-256").await;
    client.is_cut_off().await;
    assert!(began.elapsed() >= LOGIN_WITHIN.mul_f64(0.9), "{:?}", began.elapsed());
}

#[tokio::test]
async fn session_ends_unless_its_client_logs_in_again_as_the_same_user() {
    let lasts = Duration::from_secs(1);
    let node = Node::with(|options| {
        required(options);
        options.login.session_max = Some(lasts);
    })
    .await;
    let mut client = node.client().await;
    client.begins("PLAIN").await;
    assert_eq!(client.says(b"\0root\0toor").await.session_lifetime_ms, 1_000);
    sleep(lasts * 6 / 10).await;
    client.begins("PLAIN").await;
    assert_eq!(client.says(b"\0root\0toor").await.error_code, 0);
    sleep(lasts * 6 / 10).await;
    client.asks().await;
    sleep(lasts).await;
    client.send_bytes(&frame(1, 12, &MetadataRequest::default())).await;
    client.is_cut_off().await;

    let mut client = node.client().await;
    client.begins("PLAIN").await;
    client.says(b"\0root\0toor").await;
    client.begins("PLAIN").await;
    let other = client.says(b"\0guest\0guest").await;
    assert_ne!(other.error_code, 0);
    client.is_cut_off().await;
}
