//! ApiVersions: reports the handled requests, their versions and the features of the cluster to clients.

use std::sync::Arc;

use base::{ClusterLevel, Level, Levels};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use crate::api_keys::HANDLED;
use crate::errors::Fault;
use crate::groups::streams_requests;
use crate::messages::{RequestError, RequestHead, Response};
use crate::request::Request;
use crate::state::Gateway;
use crate::state::Session;

/// An enabled capability beyond single requests. Java clients check `group.version` before they use the new
/// group protocol.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) min: i16,
    /// The finalized version too.
    pub(crate) max: i16,
}

pub(crate) const FEATURES: &[Feature] = &[
    // 4.2-IV1: the messages that brokers may exchange, shown by tools as the cluster's version. Share groups
    // need 4.2.
    Feature { name: "metadata.version", min: 7, max: 29 },
    // KIP-848.
    Feature { name: "group.version", min: 0, max: 1 },
    // KIP-932.
    Feature { name: "share.version", min: 0, max: 1 },
    // KIP-1071.
    Feature { name: "streams.version", min: 0, max: 1 },
    TRANSACTIONS,
];

/// KIP-890. It needs the feature level of transactions.
const TRANSACTIONS: Feature = Feature { name: "transaction.version", min: 0, max: 2 };

/// Requests that need the feature level of transactions.
const TRANSACTIONAL: [ApiKey; 4] =
    [ApiKey::AddPartitionsToTxn, ApiKey::AddOffsetsToTxn, ApiKey::EndTxn, ApiKey::TxnOffsetCommit];

/// The cluster's feature level as a Kafka feature. `postroad cluster upgrade --finalize` raises it.
pub(crate) const LEVEL: &str = "postroad.level";

/// A level as Kafka's type, clamped to its maximum.
fn number(level: Level) -> i16 {
    i16::try_from(level.0).unwrap_or(i16::MAX)
}

pub(crate) fn answer(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ApiVersionsRequest = request.decode()?;
    let head = request.head;
    let mut knows_operate = false;
    if head.version >= 3 {
        let (name, version) = (message.client_software_name, message.client_software_version);
        if !is_software_word(&name) || !is_software_word(&version) {
            let refused = Fault::plain(ResponseError::InvalidRequest);
            let refused = ApiVersionsResponse::default().with_error_code(refused.code());
            return Response::encode(&head, &refused);
        }
        knows_operate = *name == *operations::KNOWN_TO;
        session.connection.set_client(&format!("{name} {version}"));
    }
    let mut supported = supported(head.version, Some(gateway.broker.level()));
    // The command line gets it only after a required login.
    if knows_operate && session.login.is_open() {
        let operate = ApiVersion::default()
            .with_api_key(operations::API_KEY)
            .with_min_version(operations::VERSION)
            .with_max_version(operations::VERSION_WITH_TOKEN);
        supported.api_keys.push(operate);
    }
    Response::encode(&head, &supported)
}

/// KIP-511: letters and digits, with `-` and `.` inside.
fn is_software_word(word: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
        && ends_well(word.chars().next())
        && ends_well(word.chars().next_back())
}

/// A newer client may use an unknown version of ApiVersions. The response has version 0, which every client
/// reads, with the supported versions (KIP-511).
pub(crate) fn answer_unsupported(correlation: i32) -> Result<Response, RequestError> {
    let head = RequestHead { api: ApiKey::ApiVersions, version: 0, correlation, client_id: None };
    let code = ResponseError::UnsupportedVersion.code();
    Response::encode(&head, &supported(0, None).with_error_code(code))
}

/// `level`: the cluster's; versions before 3 have no features.
fn supported(version: i16, level: Option<&Arc<ClusterLevel>>) -> ApiVersionsResponse {
    let has_transactions = level.is_none_or(|level| level.now() >= Level::TRANSACTIONS);
    let handled =
        HANDLED.iter().filter(|(api, ..)| has_transactions || !TRANSACTIONAL.contains(api));
    let api_keys = handled.map(|(api, range, _)| {
        // librdkafka compresses only for brokers that list Produce version 0 (KAFKA-18659), so Kafka 4
        // advertises it too, without accepting it.
        let min = if *api == ApiKey::Produce { 0 } else { *range.start() };
        ApiVersion::default()
            .with_api_key(*api as i16)
            .with_min_version(min)
            .with_max_version(*range.end())
    });
    let api_keys = api_keys.chain(streams_requests::supported());
    let response = ApiVersionsResponse::default().with_api_keys(api_keys.collect());
    if version < 3 {
        return response;
    }
    let features = || FEATURES.iter().filter(|it| has_transactions || it.name != TRANSACTIONS.name);
    let supported_features = features()
        // Clients of version 3 cannot read a range that begins with 0 (KIP-1022).
        .filter(|feature| version >= 4 || feature.min > 0)
        .map(|feature| {
            SupportedFeatureKey::default()
                .with_name(StrBytes::from_static_str(feature.name))
                .with_min_version(feature.min)
                .with_max_version(feature.max)
        });
    let level_supported = level.map(|level| {
        let Levels { min, max } = level.can();
        SupportedFeatureKey::default()
            .with_name(StrBytes::from_static_str(LEVEL))
            .with_min_version(number(min))
            .with_max_version(number(max))
    });
    let level_finalized = level.map(|level| {
        FinalizedFeatureKey::default()
            .with_name(StrBytes::from_static_str(LEVEL))
            .with_min_version_level(number(level.now()))
            .with_max_version_level(number(level.now()))
    });
    let finalized_features = features().map(|feature| {
        FinalizedFeatureKey::default()
            .with_name(StrBytes::from_static_str(feature.name))
            .with_min_version_level(feature.max)
            .with_max_version_level(feature.max)
    });
    response
        .with_supported_features(supported_features.chain(level_supported).collect())
        .with_finalized_features(finalized_features.chain(level_finalized).collect())
        // It grows whenever a finalized feature changes: only the level does.
        .with_finalized_features_epoch(level.map_or(0, |level| i64::from(level.now().0) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_versions_are_known_to_the_message_crate() {
        // These have codecs of our own for their latest version.
        let own = [ApiKey::ShareFetch, ApiKey::ShareAcknowledge, ApiKey::DescribeShareGroupOffsets];
        for (api, range, _) in HANDLED.iter().filter(|(api, ..)| !own.contains(api)) {
            let known = api.valid_versions();
            assert!(known.min <= *range.start() && *range.end() <= known.max, "{api:?}");
        }
    }

    #[test]
    fn software_names_follow_kip_511() {
        for good in ["librdkafka", "2.6.0", "a-b.c", "x"] {
            assert!(is_software_word(good), "{good}");
        }
        for bad in ["", "-a", "a-", ".1", "a b", "ä"] {
            assert!(!is_software_word(bad), "{bad}");
        }
    }
}
