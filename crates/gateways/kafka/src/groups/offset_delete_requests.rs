//! Deleting committed offsets: OffsetDelete.

use base::HashSet;
use coordinator::Group;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse, TopicName};

use crate::authorization::Caller;
use crate::errors::Fault;
use crate::groups::committed::has_offsets;
use crate::groups::offset_requests::forget_offsets;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: OffsetDeleteRequest = request.decode()?;
    let deleted = match request.caller.group(&message.group_id) {
        Ok(()) => delete_offsets(gateway, &request.caller, &message).await,
        Err(error) => Err(error),
    };
    let response = match deleted {
        Ok(topics) => OffsetDeleteResponse::default().with_topics(topics),
        Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
    };
    Response::encode(&request.head, &response)
}

async fn delete_offsets(
    gateway: &Gateway,
    caller: &Caller,
    message: &OffsetDeleteRequest,
) -> Result<Vec<OffsetDeleteResponseTopic>, ResponseError> {
    let subscribed = subscribed_topics(gateway, message).await?;
    let mut partitions = Vec::new();
    let topics = {
        let catalog = gateway.broker.catalog();
        let topics = message.topics.iter().map(|topic| {
            let known = catalog.topic_named(&topic.name);
            let refused = caller.topic(&topic.name).err();
            let is_subscribed = subscribed.contains(&topic.name);
            let results = topic.partitions.iter().map(|partition| {
                let found = known.and_then(|it| it.partition(partition.partition_index));
                let code = match found {
                    _ if refused.is_some() => ResponseError::TopicAuthorizationFailed.code(),
                    None => caller.missing(Fault::unknown_partition()).code(),
                    Some(_) if is_subscribed => ResponseError::GroupSubscribedToTopic.code(),
                    Some(id) => {
                        partitions.push(id);
                        0
                    }
                };
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(code)
            });
            OffsetDeleteResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(results.collect())
        });
        topics.collect()
    };
    if !partitions.is_empty() {
        forget_offsets(gateway, &message.group_id, partitions).await?;
    }
    Ok(topics)
}

/// Topics of the request that members may be consuming, whose offsets must stay.
async fn subscribed_topics(
    gateway: &Gateway,
    message: &OffsetDeleteRequest,
) -> Result<HashSet<TopicName>, ResponseError> {
    let has_offsets = has_offsets(gateway, &message.group_id).await?;
    gateway.coordinator(&message.group_id)?.visit(&message.group_id, |visit| {
        let topics = message.topics.iter().map(|topic| &topic.name);
        match visit.group {
            Some(Group::Classic(group)) if !group.is_empty() && !group.is_of_consumers() => {
                Err(ResponseError::NonEmptyGroup)
            }
            Some(Group::Share(_)) | None if has_offsets => Ok(HashSet::default()),
            Some(Group::Share(_)) | None => Err(ResponseError::GroupIdNotFound),
            Some(group) => {
                Ok(topics.filter(|topic| group.is_subscribed_to(topic)).cloned().collect())
            }
        }
    })
}
