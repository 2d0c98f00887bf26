//! Queries about the rows of a shard, and its leader's replies.

use bytes::Bytes;
use links::{Message, ReceivedMessage};
use shard::error::{FetchError, Unavailable};

use super::{RemoteReply, RemoteRequest, bytes_of, elsewhere};
use crate::shard_query::{QueryResult, ShardQuery, ShardQueryReply};

pub(crate) fn encode_rows_request(question: &ShardQuery) -> Message {
    Message { head: bytes_of(&RemoteRequest::Rows(question.clone())), body: Vec::new() }
}

pub fn encode_rows_reply(answered: QueryResult) -> Message {
    let (told, body) = match answered {
        Ok((told, body)) => (Ok(told), body),
        Err(error) => (Err(error), Vec::new()),
    };
    Message { head: bytes_of(&RemoteReply::Rows(told)), body }
}

/// Decodes the leader's reply.
pub(crate) fn decode_rows_reply(
    reply: ReceivedMessage,
) -> Result<(ShardQueryReply, Bytes), FetchError> {
    match postcard::from_bytes(&reply.head) {
        Ok(RemoteReply::Rows(Ok(told))) => Ok((told, reply.body)),
        Ok(RemoteReply::Rows(Err(FetchError::Unavailable(why)))) => Err(elsewhere(why).into()),
        Ok(RemoteReply::Rows(Err(error))) => Err(error),
        _ => Err(Unavailable::Unanswered.into()),
    }
}

#[cfg(test)]
mod tests {
    use base::{Offset, PartitionId, TopicId};
    use links::NodeId;
    use machine::rows::transactions::partition::AbortedRange;

    use super::super::{DecodedRequest, decode};
    use super::*;
    use crate::bounds::{Bounds, LogRange};

    fn received(message: Message) -> ReceivedMessage {
        ReceivedMessage { head: message.head, body: message.body.concat().into() }
    }

    #[test]
    fn query_and_reply_about_rows_survive_encoding() {
        let partition = PartitionId::new(TopicId(3), 7);
        let question = ShardQuery::Read { partition, offset: Offset::from(9_u32), bytes_max: 4 };
        let Some(DecodedRequest::Rows(arrived)) =
            decode(received(encode_rows_request(&question)), NodeId(2))
        else {
            panic!("it is not understood");
        };
        assert_eq!(arrived, question);
        let aborted = vec![AbortedRange { producer: 5, first: 3, last: 7 }];
        let bounds = Bounds { log_start: 1, stable: 9, end: 12 };
        let told =
            [ShardQueryReply::Read(bounds.into()), ShardQueryReply::ReadStable { bounds, aborted }];
        for told in told {
            let body = vec![Bytes::from_static(b"a"), Bytes::from_static(b"bc")];
            let reply = received(encode_rows_reply(Ok((told.clone(), body))));
            assert_eq!(decode_rows_reply(reply), Ok((told, Bytes::from_static(b"abc"))));
        }
    }

    #[test]
    fn replies_below_the_level_of_transactions_keep_their_form() {
        let range = LogRange { log_start: 1, end: 12 };
        let encoded = |reply: ShardQueryReply| postcard::to_stdvec(&reply).expect("it has a form");
        assert_eq!(encoded(ShardQueryReply::Bounds(vec![Some(range), None])), [0, 2, 1, 1, 12, 0]);
        assert_eq!(encoded(ShardQueryReply::Read(range)), [14, 1, 12]);
        let partition = PartitionId::new(TopicId(3), 7);
        let changed = ShardQuery::Changed(vec![(partition, Some(range))]);
        let encoded = postcard::to_stdvec(&changed).expect("it has a form");
        assert_eq!(encoded, [17, 1, 3, 7, 1, 1, 12]);
    }

    #[test]
    fn stop_of_a_leader_is_mapped_to_unanswered() {
        let told =
            |error: Unavailable| decode_rows_reply(received(encode_rows_reply(Err(error.into()))));
        assert_eq!(told(Unavailable::Stopping), Err(Unavailable::Unanswered.into()));
        assert_eq!(told(Unavailable::NotLeader), Err(Unavailable::NotLeader.into()));
        let nonsense = ReceivedMessage { head: Bytes::from_static(b"?"), body: Bytes::new() };
        assert_eq!(decode_rows_reply(nonsense), Err(Unavailable::Unanswered.into()));
    }
}
