//! Requests for the backup steps of another node, and a member's replies.

use bytes::Bytes;
use links::{Message, ReceivedMessage};
use shard::error::Unavailable;

use super::{RemoteReply, RemoteRequest, bytes_of, elsewhere};
use crate::backup_parts::{BackupError, BackupPart, BackupStep};

pub(crate) fn encode_backup_request(backup: u64, step: &BackupStep) -> Message {
    let asked = RemoteRequest::BackUp { backup, step: step.clone() };
    Message { head: bytes_of(&asked), body: Vec::new() }
}

pub fn encode_backup_reply(done: Result<(BackupPart, Bytes), BackupError>) -> Message {
    let (part, body) = match done {
        Ok((part, bytes)) => (Ok(part), vec![bytes]),
        Err(error) => (Err(error), Vec::new()),
    };
    Message { head: bytes_of(&RemoteReply::BackedUp(part)), body }
}

/// Decodes the member's reply.
pub(crate) fn backed_up(reply: ReceivedMessage) -> Result<(BackupPart, Bytes), BackupError> {
    match postcard::from_bytes(&reply.head) {
        Ok(RemoteReply::BackedUp(Ok(part))) => Ok((part, reply.body)),
        Ok(RemoteReply::BackedUp(Err(BackupError::Unavailable(why)))) => Err(elsewhere(why).into()),
        Ok(RemoteReply::BackedUp(Err(error))) => Err(error),
        _ => Err(Unavailable::Unanswered.into()),
    }
}
