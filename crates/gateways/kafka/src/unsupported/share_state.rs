//! Requests for share group state, which Kafka's brokers exchange and clients never send. Here the state is
//! in the log, and no other broker needs it. Each gets Kafka's response to a caller that is not a broker.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiKey, DeleteShareGroupStateRequest, DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest, ReadShareGroupStateResponse, ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse, WriteShareGroupStateRequest, WriteShareGroupStateResponse,
    delete_share_group_state_response as deleted,
    initialize_share_group_state_response as initialized, read_share_group_state_response as read,
    read_share_group_state_summary_response as summary,
    write_share_group_state_response as written,
};

use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::request::Request;

fn no_broker() -> Fault {
    Fault::new(
        ResponseError::ClusterAuthorizationFailed,
        "only brokers may ask for the state of share groups",
    )
}

/// The five requests differ only in their names: topics with partitions, each of which is refused.
macro_rules! refuse {
    ($request:expr, $asked:ty, $answered:ty, $topic:ty, $partition:ty) => {{
        let message: $asked = $request.decode()?;
        let results = message.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                <$partition>::default()
                    .with_partition(partition.partition)
                    .with_error_code(no_broker().code())
                    .with_error_message(no_broker().message_bytes())
            });
            <$topic>::default().with_topic_id(topic.topic_id).with_partitions(partitions.collect())
        });
        let response = <$answered>::default().with_results(results.collect());
        Response::encode(&$request.head, &response)
    }};
}

pub(crate) fn handle(mut request: Request) -> Result<Response, RequestError> {
    match request.head.api {
        ApiKey::InitializeShareGroupState => refuse!(
            request,
            InitializeShareGroupStateRequest,
            InitializeShareGroupStateResponse,
            initialized::InitializeStateResult,
            initialized::PartitionResult
        ),
        ApiKey::ReadShareGroupState => refuse!(
            request,
            ReadShareGroupStateRequest,
            ReadShareGroupStateResponse,
            read::ReadStateResult,
            read::PartitionResult
        ),
        ApiKey::WriteShareGroupState => refuse!(
            request,
            WriteShareGroupStateRequest,
            WriteShareGroupStateResponse,
            written::WriteStateResult,
            written::PartitionResult
        ),
        ApiKey::DeleteShareGroupState => refuse!(
            request,
            DeleteShareGroupStateRequest,
            DeleteShareGroupStateResponse,
            deleted::DeleteStateResult,
            deleted::PartitionResult
        ),
        ApiKey::ReadShareGroupStateSummary => refuse!(
            request,
            ReadShareGroupStateSummaryRequest,
            ReadShareGroupStateSummaryResponse,
            summary::ReadStateSummaryResult,
            summary::PartitionResult
        ),
        other => Err(RequestError::UnknownApi(other as i16)),
    }
}
