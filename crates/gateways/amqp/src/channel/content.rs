//! A message whose frames are being received.

use bytes::Bytes;
use rabbitmq::{ArrivingBody, Body};
use tokio::time::Instant;

use crate::codec::frame::{self, ContentHeader};
use crate::codec::methods::{BasicPublish, Method, MethodId};
use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;

#[derive(Debug)]
pub(crate) struct Content {
    /// The `basic.publish` frame.
    publish: Bytes,
    /// The header frame.
    pub(crate) header: Option<Bytes>,
    pub(crate) arriving: ArrivingBody,
    /// Set once the message is complete.
    pub(crate) body: Body,
    /// Bytes of the body that are still missing.
    pub(crate) missing: u64,
    /// Bytes of the body that are charged; those of small messages are not.
    pub(crate) charged: usize,
    pub(crate) is_large: bool,
    /// Start of the wait for the rest; unknown while more input is buffered.
    pub(crate) began: Option<Instant>,
}

impl Content {
    pub(crate) fn new(publish: Bytes) -> Self {
        let (arriving, body) = (ArrivingBody::default(), Body::Empty);
        Self {
            publish,
            header: None,
            arriving,
            body,
            missing: 0,
            charged: 0,
            is_large: false,
            began: None,
        }
    }

    pub(crate) fn read(&self) -> Option<(BasicPublish<'_>, &[u8])> {
        let publish = Method::decode(frame::read(&self.publish)?.payload).ok()?;
        let Method::BasicPublish(publish) = publish else { return None };
        let header = ContentHeader::decode(frame::read(self.header.as_deref()?)?.payload)?;
        Some((publish, header.properties))
    }

    /// Failure for a frame that does not continue this message.
    pub(crate) fn unexpected(&self) -> Failure {
        let text = match self.header {
            None => {
                let class = BasicPublish::ID.class;
                format!(
                    "expected content header for class {class}, got non content header frame instead"
                )
            }
            Some(_) => "expected content body, got non content body frame instead".to_owned(),
        };
        unexpected_at(BasicPublish::ID, text)
    }
}

pub(crate) fn unexpected_at(method: MethodId, text: String) -> Failure {
    Failure { channel: 0, method, exception: Exception::new(ReplyCode::UnexpectedFrame, text) }
}
