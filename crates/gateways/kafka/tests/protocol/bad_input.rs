//! Invalid input: it closes the connection or gets an error, and other clients are not affected.

use std::time::Duration;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, ResponseHeader,
};
use kafka_protocol::protocol::Decodable;

use crate::harness::*;
use crate::sessions::versions_request;

#[tokio::test]
async fn frames_of_impossible_lengths_close_the_connection() {
    let node = Node::with(|options| options.request_bytes_max = 1 << 20).await;
    for length in [-1, i32::MIN, 0, 7, (1 << 20) + 1, i32::MAX] {
        let mut client = node.client().await;
        client.send_bytes(&length.to_be_bytes()).await;
        client.send_bytes(&[0; 8]).await;
        client.is_cut_off().await;
    }
    node.is_well().await;
}

#[tokio::test]
async fn incomplete_frame_times_out() {
    let node = Node::with(|options| {
        options.request_arrives_within = Duration::from_millis(100);
    })
    .await;
    let whole = frame(1, 12, &MetadataRequest::default());
    for cut in [1, 3, 4, 5, 9, whole.len() - 1] {
        let mut client = node.client().await;
        client.send_bytes(&whole[..cut]).await;
        client.is_cut_off().await;
    }
    node.is_well().await;
}

#[tokio::test]
async fn a_frame_may_come_byte_by_byte() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let mut bytes = frame(1, 12, &MetadataRequest::default()).to_vec();
    bytes.extend(frame(2, 12, &MetadataRequest::default()));
    for byte in bytes {
        client.send_bytes(&[byte]).await;
    }
    assert_eq!(client.receive_raw::<MetadataRequest>(12).await.0, 1);
    assert_eq!(client.receive_raw::<MetadataRequest>(12).await.0, 2);
}

#[tokio::test]
async fn an_unknown_api_key_or_version_closes_the_connection() {
    let node = Node::start().await;
    for (key, version) in [(999, 0), (-1, 0), (22, 0x7fff), (3, 99), (0, 2), (24, 0), (78, 1)] {
        let mut client = node.client().await;
        let mut bytes = frame(1, 12, &MetadataRequest::default());
        bytes[4..6].copy_from_slice(&i16::to_be_bytes(key));
        bytes[6..8].copy_from_slice(&i16::to_be_bytes(version));
        client.send_bytes(&bytes).await;
        client.is_cut_off().await;
    }
    node.is_well().await;
}

#[tokio::test]
async fn api_versions_of_an_unknown_version_returns_the_supported_versions() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let mut bytes = frame(77, 4, &versions_request());
    bytes[6..8].copy_from_slice(&i16::to_be_bytes(99));
    client.send_bytes(&bytes).await;
    let mut frame = client.receive_frame().await.expect("an answer");
    assert_eq!(ResponseHeader::decode(&mut frame, 0).unwrap().correlation_id, 77);
    let response = ApiVersionsResponse::decode(&mut frame, 0).unwrap();
    assert_eq!(response.error_code, ResponseError::UnsupportedVersion.code());
    let versions = response.api_keys.iter().find(|api| api.api_key == 18).unwrap();
    assert_eq!((versions.min_version, versions.max_version), (0, 4));
    // The client may continue with one of them.
    assert_eq!(client.ask(4, &versions_request()).await.error_code, 0);
}

#[tokio::test]
async fn api_versions_is_answered_in_every_version() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for version in 0..=4 {
        let request = if version < 3 { ApiVersionsRequest::default() } else { versions_request() };
        let response = client.ask(version, &request).await;
        assert_eq!(response.error_code, 0);
        let produce = response.api_keys.iter().find(|api| api.api_key == 0).unwrap();
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
        let group = response.supported_features.iter().any(|f| &*f.name == "group.version");
        assert_eq!(group, version >= 4);
        assert_eq!(response.finalized_features.is_empty(), version < 3);
        let share = response.supported_features.iter().any(|f| &*f.name == "share.version");
        assert_eq!(share, version >= 4);
        let transactional = |key: &i16| response.api_keys.iter().any(|api| api.api_key == *key);
        assert!([24, 25, 26, 28].iter().all(transactional));
    }
}

#[tokio::test]
async fn a_malformed_body_closes_the_connection_whatever_the_request() {
    let node = Node::start().await;
    for api in ApiKey::iter() {
        for version in 0..20 {
            let mut client = node.client().await;
            // Header: key, version, correlation, null client id; then bytes of 0xff.
            let mut bytes = vec![0, 0, 0, 60];
            bytes.extend((api as i16).to_be_bytes());
            bytes.extend(i16::to_be_bytes(version));
            bytes.extend([0, 0, 0, 1, 0xff, 0xff, 0]);
            bytes.resize(64, 0xff);
            client.send_bytes(&bytes).await;
            // It is malformed, or (a version without a body) it is answered.
            let _ = client.receive_frame().await;
        }
    }
    node.is_well().await;
}

#[tokio::test]
async fn random_bodies_do_not_disturb_other_clients() {
    let node = Node::with(|options| options.auto_create_topics = false).await;
    let mut bystander = node.client().await;
    bystander.create("orders", 1, &[]).await;
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..600 {
        let mut client = node.client().await;
        let length = 8 + random() % 120;
        let mut bytes = Vec::from((length as i32).to_be_bytes());
        // Transactions and groups wait for others; every other request is answered at once, or closes the
        // connection.
        bytes.extend(((random() % 76) as i16).to_be_bytes());
        bytes.extend(((random() % 14) as i16).to_be_bytes());
        let small = random() % 2 == 0;
        while bytes.len() < length as usize + 4 {
            bytes.push(if small { (random() % 4) as u8 } else { random() as u8 });
        }
        client.send_bytes(&bytes).await;
        drop(client);
        if round % 100 == 0 {
            bystander.put("orders", 0, &["still here"]).await;
        }
    }
    node.is_well().await;
    assert_eq!(bystander.get("orders", 0, 0).await.len(), 6);
}
