//! Routes each frame to its handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kafka_protocol::messages::ApiKey;
use tokio::time::Instant;

use crate::authorization::Caller;
use crate::catalog::currency;
use crate::cluster::{elections, log_dirs, quorum, reassignments};
use crate::groups::streams_requests;
use crate::messages::frames::Frame;
use crate::messages::{Preamble, RequestError, Response};
use crate::produce::PendingProduce;
use crate::request::{Request, ResponseFuture};
use crate::security::{acls, authentication, scram_credentials};
use crate::state::{Gateway, Session};
use crate::{
    api_keys, configs, fetch, groups, metadata, offsets, operations, produce, producers, quotas,
    share, topics, transactions, unsupported, versions,
};

/// An accepted request. Resolves to its response, or to `None` if the client expects none.
pub(crate) enum AcceptedRequest {
    Answered(Response),
    /// Submitted to the broker in order; the response follows when the records are durable.
    Produce(Box<PendingProduce>),
    /// Starts with its first poll, when its turn comes.
    Later(ResponseFuture),
    Taken,
}

impl AcceptedRequest {
    /// False for a request that starts with its first poll.
    pub(crate) fn has_started(&self) -> bool {
        !matches!(self, Self::Later(_))
    }

    /// The client's deadline, if it set one. [`AcceptedRequest::time_out`] produces the response then.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self {
            Self::Produce(pending) => Some(pending.due()),
            Self::Answered(_) | Self::Later(_) | Self::Taken => None,
        }
    }

    pub(crate) fn time_out(&mut self) -> Result<Option<Response>, RequestError> {
        match std::mem::replace(self, Self::Taken) {
            Self::Produce(mut pending) => pending.time_out(),
            Self::Answered(_) | Self::Later(_) | Self::Taken => Ok(None),
        }
    }
}

impl Future for AcceptedRequest {
    type Output = Result<Option<Response>, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Produce(pending) => pending.poll(context),
            Self::Later(handling) => handling.as_mut().poll(context).map(|answer| answer.map(Some)),
            Self::Answered(_) | Self::Taken => match std::mem::replace(&mut *self, Self::Taken) {
                Self::Answered(response) => Poll::Ready(Ok(Some(response))),
                _ => Poll::Ready(Ok(None)),
            },
        }
    }
}

/// Accepts a frame. An error closes the connection: the protocol has no other reply to an unknown or
/// unreadable request.
pub(crate) async fn start(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    frame: Frame,
) -> Result<AcceptedRequest, RequestError> {
    let preamble = Preamble::parse(&frame.bytes)?;
    authentication::check(gateway, session, preamble.api_key)?;
    if preamble.api_key == ::operations::API_KEY {
        let (gateway, session) = (Arc::clone(gateway), Arc::clone(session));
        let handling = operations::handle(gateway, session, preamble, frame);
        return Ok(AcceptedRequest::Later(Box::pin(handling)));
    }
    if streams_requests::is_ours(preamble.api_key) {
        return streams_requests::start(gateway, session, &preamble, frame)
            .map(AcceptedRequest::Later);
    }
    let api = ApiKey::try_from(preamble.api_key)
        .map_err(|_| RequestError::UnknownApi(preamble.api_key))?;
    let Some(range) = api_keys::handled(api) else {
        return Err(RequestError::UnknownApi(preamble.api_key));
    };
    if !range.contains(&preamble.version) {
        if api == ApiKey::ApiVersions {
            // ApiVersions may come in an unknown version, because it negotiates versions.
            return versions::answer_unsupported(preamble.correlation)
                .map(AcceptedRequest::Answered);
        }
        let (min, max) = (*range.start(), *range.end());
        return Err(RequestError::UnsupportedVersion { api, version: preamble.version, min, max });
    }
    let caller = Caller::of(gateway, session, api).ok_or(RequestError::UnknownApi(api as i16))?;
    let request = Request::parse(api, &preamble, frame, Arc::clone(session), caller)?;
    match api {
        ApiKey::Produce => {
            produce::start(gateway, session, request).await.map(AcceptedRequest::Produce)
        }
        ApiKey::ApiVersions => {
            versions::answer(gateway, session, request).map(AcceptedRequest::Answered)
        }
        // Completes before the next request, which runs as the authenticated user.
        ApiKey::SaslHandshake => {
            authentication::handshake(gateway, request).map(AcceptedRequest::Answered)
        }
        ApiKey::SaslAuthenticate => Box::pin(authentication::authenticate(gateway, request))
            .await
            .map(AcceptedRequest::Answered),
        // A catalog change completes before the next request is read, because that one may start at once and
        // depend on it.
        ApiKey::CreateTopics | ApiKey::DeleteTopics | ApiKey::CreatePartitions => {
            let handling = handle(Arc::clone(gateway), Arc::clone(session), request);
            // Boxed, as below: a session must not carry room for the largest handler while idle.
            Box::pin(handling).await.map(AcceptedRequest::Answered)
        }
        _ => {
            let handling = handle(Arc::clone(gateway), Arc::clone(session), request);
            Ok(AcceptedRequest::Later(Box::pin(handling)))
        }
    }
}

async fn handle(
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    mut request: Request,
) -> Result<Response, RequestError> {
    if !currency::pass(&gateway, request.head.api).await {
        request.caller.note_old_copy();
    }
    match request.head.api {
        ApiKey::Fetch => fetch::handle(&gateway, &session, request).await,
        ApiKey::ShareFetch => share::fetch(&gateway, &session, request).await,
        ApiKey::ShareAcknowledge => share::acknowledge(&gateway, &session, request).await,
        ApiKey::Metadata => metadata::metadata(&gateway, request).await,
        ApiKey::DescribeCluster => metadata::describe_cluster(&gateway, request),
        ApiKey::DescribeTopicPartitions => metadata::describe_topic_partitions(&gateway, request),
        ApiKey::ListOffsets => offsets::list_offsets(&gateway, request).await,
        ApiKey::OffsetForLeaderEpoch => offsets::offset_for_leader_epoch(&gateway, request).await,
        ApiKey::DeleteRecords => offsets::delete_records(&gateway, request).await,
        ApiKey::CreateTopics => topics::create(&gateway, request).await,
        ApiKey::DeleteTopics => topics::delete(&gateway, request).await,
        ApiKey::CreatePartitions => topics::create_partitions(&gateway, request).await,
        ApiKey::DescribeConfigs => configs::describe::describe(&gateway, request).await,
        ApiKey::AlterConfigs => configs::alter(&gateway, request).await,
        ApiKey::IncrementalAlterConfigs => configs::alter_incrementally(&gateway, request).await,
        ApiKey::ListConfigResources => configs::describe::list_resources(&gateway, request).await,
        ApiKey::InitProducerId => producers::init_producer_id(&gateway, &session, request).await,
        ApiKey::DescribeProducers => producers::describe_producers(&gateway, request).await,
        ApiKey::DescribeQuorum => quorum::describe(&gateway, request).await,
        ApiKey::UpdateFeatures => quorum::update_features(&gateway, request),
        ApiKey::DescribeLogDirs => log_dirs::describe(&gateway, request).await,
        ApiKey::DescribeUserScramCredentials => scram_credentials::describe(&gateway, request),
        ApiKey::AlterUserScramCredentials => scram_credentials::alter(&gateway, request).await,
        ApiKey::DescribeAcls => acls::describe(&gateway, request),
        ApiKey::CreateAcls => acls::create(&gateway, request).await,
        ApiKey::DeleteAcls => acls::delete(&gateway, request).await,
        ApiKey::DescribeClientQuotas => quotas::requests::describe(&gateway, request),
        ApiKey::AlterClientQuotas => quotas::requests::alter(&gateway, request).await,
        ApiKey::ElectLeaders => elections::elect_leaders(&gateway, request).await,
        ApiKey::AlterPartitionReassignments => reassignments::alter(&gateway, request),
        ApiKey::ListPartitionReassignments => reassignments::list(request),
        ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::TxnOffsetCommit
        | ApiKey::EndTxn
        | ApiKey::DescribeTransactions
        | ApiKey::ListTransactions => transactions::handle(&gateway, &session, request).await,
        ApiKey::InitializeShareGroupState
        | ApiKey::ReadShareGroupState
        | ApiKey::WriteShareGroupState
        | ApiKey::DeleteShareGroupState
        | ApiKey::ReadShareGroupStateSummary => unsupported::share_state::handle(request),
        _ => groups::handle(&gateway, &session, request).await,
    }
}
