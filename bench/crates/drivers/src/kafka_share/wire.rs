//! One connection that speaks the few calls which librdkafka does not know, each in one version.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use driver::Failure;
use kafka_protocol::messages::api_versions_response::ApiVersionsResponse;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, IncrementalAlterConfigsRequest, MetadataRequest, MetadataResponse,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

const API_VERSIONS: i16 = 3;
const INCREMENTAL_ALTER_CONFIGS: i16 = 1;
/// The first with ids of topics that is asked by name.
const METADATA: i16 = 12;
/// A response larger than this is a fault of the server.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// Resource type of a group's settings (KIP-848), and the operation that sets one.
const GROUP: i8 = 32;
const SET: i8 = 0;
const METADATA_VERSION: &str = "metadata.version";

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    next_correlation: i32,
    /// Calls whose answers are still to come, in their order: a call may be given up.
    unanswered: VecDeque<i32>,
    /// What came of them.
    arrived: BytesMut,
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::unknown(error)
}

/// An error code of the protocol.
pub(super) fn check(what: &str, code: i16) -> Result<(), Failure> {
    if code == 0 {
        return Ok(());
    }
    let name = kafka_protocol::ResponseError::try_from_code(code)
        .map_or_else(|| format!("error {code}"), |error| format!("{error:?} ({code})"));
    Err(Failure::refused(format!("{what}: {name}")))
}

pub(super) fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Self, Failure> {
        let unreachable = |why: String| Failure::Unreachable { endpoint: address.to_owned(), why };
        let stream = timeout(PATIENCE, TcpStream::connect(address))
            .await
            .map_err(|_| unreachable(format!("no answer within {PATIENCE:?}")))?
            .map_err(|error| unreachable(error.to_string()))?;
        stream.set_nodelay(true).map_err(broken)?;
        let (unanswered, arrived) = (VecDeque::new(), BytesMut::new());
        Ok(Self { stream, next_correlation: 1, unanswered, arrived })
    }

    pub(super) async fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Failure> {
        match timeout(PATIENCE, self.exchange(version, request)).await {
            Ok(answered) => answered,
            Err(_) => Err(Failure::unknown(format!("no answer within {PATIENCE:?}"))),
        }
    }

    async fn exchange<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Failure> {
        let correlation = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(StrBytes::from_static_str("postroad-bench")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, R::header_version(version)).map_err(broken)?;
        request.encode(&mut frame, version).map_err(broken)?;
        let length = i32::try_from(frame.len() - 4).map_err(broken)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.unanswered.push_back(correlation);
        self.stream.write_all(&frame).await.map_err(broken)?;
        loop {
            let mut frame = self.frame().await?;
            let got = frame.first_chunk().map(|number| i32::from_be_bytes(*number));
            if self.unanswered.pop_front() != got {
                return Err(Failure::unknown(format!(
                    "answer {got:?} came where {correlation} was due"
                )));
            }
            if got == Some(correlation) {
                ResponseHeader::decode(&mut frame, R::Response::header_version(version))
                    .map_err(broken)?;
                return R::Response::decode(&mut frame, version).map_err(broken);
            }
        }
    }

    /// The next answer, whole. May be given up while it waits.
    async fn frame(&mut self) -> Result<Bytes, Failure> {
        loop {
            if let Some(length) = self.arrived.first_chunk() {
                let length = usize::try_from(i32::from_be_bytes(*length)).map_err(broken)?;
                if length > RESPONSE_BYTES_MAX {
                    return Err(Failure::unknown(format!("a response of {length} bytes")));
                }
                if self.arrived.len() >= size_of::<i32>() + length {
                    self.arrived.advance(size_of::<i32>());
                    return Ok(self.arrived.split_to(length).freeze());
                }
                self.arrived.reserve(size_of::<i32>() + length - self.arrived.len());
            }
            if self.stream.read_buf(&mut self.arrived).await.map_err(broken)? == 0 {
                return Err(Failure::unknown("the connection is gone"));
            }
        }
    }

    async fn api_versions(&mut self) -> Result<ApiVersionsResponse, Failure> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("postroad-bench"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let answer = self.call(API_VERSIONS, &request).await?;
        check("ApiVersions", answer.error_code)?;
        Ok(answer)
    }

    /// The level of the cluster's metadata: all that Kafka tells of its version.
    pub(super) async fn metadata_level(&mut self) -> Result<Option<i16>, Failure> {
        let answer = self.api_versions().await?;
        let features = answer.finalized_features.into_iter();
        let mut features = features.filter(|feature| feature.name.as_str() == METADATA_VERSION);
        Ok(features.next().map(|feature| feature.max_version_level))
    }

    pub(super) async fn metadata(
        &mut self,
        topics: &[String],
    ) -> Result<MetadataResponse, Failure> {
        let asked = topics.iter().map(|topic| {
            MetadataRequestTopic::default()
                .with_topic_id(uuid::Uuid::nil())
                .with_name(Some(topic_name(topic)))
        });
        let request = MetadataRequest::default()
            .with_topics(Some(asked.collect()))
            .with_allow_auto_topic_creation(false);
        self.call(METADATA, &request).await
    }

    pub(super) async fn configure_group(
        &mut self,
        group: &str,
        settings: &[(&'static str, String)],
    ) -> Result<(), Failure> {
        let configs = settings.iter().map(|(name, value)| {
            AlterableConfig::default()
                .with_name(StrBytes::from_static_str(name))
                .with_config_operation(SET)
                .with_value(Some(StrBytes::from_string(value.clone())))
        });
        let resource = AlterConfigsResource::default()
            .with_resource_type(GROUP)
            .with_resource_name(StrBytes::from_string(group.to_owned()))
            .with_configs(configs.collect());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let answer = self.call(INCREMENTAL_ALTER_CONFIGS, &request).await?;
        for response in answer.responses {
            check(&format!("settings of group {group}"), response.error_code)?;
        }
        Ok(())
    }
}
