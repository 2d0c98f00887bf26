//! Queries about the rows of a shard, and its leader's replies.

use bytes::Bytes;
use links::{Message, Received};

use super::{Answer, Asked, bytes_of, elsewhere};
use crate::error::{FetchError, Unavailable};
use crate::question::{Answered, Question, Told};

pub(crate) fn ask_rows(question: &Question) -> Message {
    Message { head: bytes_of(&Asked::Rows(question.clone())), body: Vec::new() }
}

pub(crate) fn answer_rows(answered: Answered) -> Message {
    let (told, body) = match answered {
        Ok((told, body)) => (Ok(told), body),
        Err(error) => (Err(error), Vec::new()),
    };
    Message { head: bytes_of(&Answer::Rows(told)), body }
}

/// Decodes the leader's reply.
pub(crate) fn rows_told(reply: Received) -> Result<(Told, Bytes), FetchError> {
    match postcard::from_bytes(&reply.head) {
        Ok(Answer::Rows(Ok(told))) => Ok((told, reply.body)),
        Ok(Answer::Rows(Err(FetchError::Unavailable(why)))) => Err(elsewhere(why).into()),
        Ok(Answer::Rows(Err(error))) => Err(error),
        _ => Err(Unavailable::Unanswered.into()),
    }
}

#[cfg(test)]
mod tests {
    use base::{Offset, PartitionId, TopicId};
    use links::NodeId;

    use super::super::{Decoded, decode};
    use super::*;
    use crate::bounds::Bounds;

    fn received(message: Message) -> Received {
        Received { head: message.head, body: message.body.concat().into() }
    }

    #[test]
    fn what_is_asked_and_told_of_rows_arrives() {
        let partition = PartitionId::new(TopicId(3), 7);
        let question = Question::Read { partition, offset: Offset::from(9_u32), bytes_max: 4 };
        let Some(Decoded::Rows(arrived)) = decode(received(ask_rows(&question)), NodeId(2)) else {
            panic!("it is not understood");
        };
        assert_eq!(arrived, question);
        let told = Told::Read(Bounds { log_start: 1, end: 12 });
        let body = vec![Bytes::from_static(b"a"), Bytes::from_static(b"bc")];
        let reply = received(answer_rows(Ok((told.clone(), body))));
        assert_eq!(rows_told(reply), Ok((told, Bytes::from_static(b"abc"))));
    }

    #[test]
    fn that_a_leader_stops_is_no_reason_to_stop_here() {
        let told = |error: Unavailable| rows_told(received(answer_rows(Err(error.into()))));
        assert_eq!(told(Unavailable::Stopping), Err(Unavailable::Unanswered.into()));
        assert_eq!(told(Unavailable::NotLeader), Err(Unavailable::NotLeader.into()));
        let nonsense = Received { head: Bytes::from_static(b"?"), body: Bytes::new() };
        assert_eq!(rows_told(nonsense), Err(Unavailable::Unanswered.into()));
    }
}
