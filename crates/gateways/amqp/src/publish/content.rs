//! Assembles a message from its frames: `basic.publish`, a header, and the body of the announced length. It is
//! published once it is complete.

use bytes::Bytes;
use tokio::time::Instant;

use crate::channel::content::{Content, unexpected_at};
use crate::codec::frame::{ContentHeader, FrameKind};
use crate::codec::methods::{BasicPublish, MethodId};
use crate::errors::{Exception, ReplyCode};
use crate::failure::{Failure, unknown_frame};
use crate::limits::AMQP_READ_BYTES_MIN;
use crate::session::Session;
use crate::session::operation::CopyFreshness;

impl Session {
    pub(crate) fn begin_content(
        &mut self,
        number: u16,
        publish: &BasicPublish<'_>,
        frame: &Bytes,
    ) -> Result<(), Exception> {
        if publish.immediate {
            return Err(Exception::new(ReplyCode::NotImplemented, "immediate=true"));
        }
        if *self.gateway.alarm.borrow() {
            // As in RabbitMQ: a connection that publishes now is not read until there is room.
            self.is_blocked = true;
        }
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.content = Some(Content::new(frame.clone()));
            self.contents += 1;
        }
        Ok(())
    }

    pub(crate) fn content_header(
        &mut self,
        number: u16,
        frame: &Bytes,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let bytes_max = self.gateway.options.message_bytes_max;
        let method = BasicPublish::ID;
        let channel = self.channels.get_mut(&number).ok_or_else(unexpected_content)?;
        if channel.is_closing {
            return Ok(());
        }
        let Some(header) = ContentHeader::decode(payload) else {
            return Err(unknown_frame(FrameKind::Header, payload));
        };
        let Some(content) = &mut channel.content else { return Err(unexpected_content()) };
        if content.header.is_some() || header.weight != 0 {
            return Err(content.unexpected());
        }
        if header.class != method.class {
            let text = format!(
                "expected content header for class {}, got one for class {} instead",
                method.class, header.class
            );
            return Err(unexpected_at(method, text));
        }
        if header.body_bytes > bytes_max {
            let exception = Exception::precondition_failed(format!(
                "message size {} is larger than configured max size {bytes_max}",
                header.body_bytes
            ));
            return Err(Failure { channel: number, method, exception });
        }
        content.header = Some(frame.clone());
        content.missing = header.body_bytes;
        if header.body_bytes == 0 {
            return self.content_complete(number);
        }
        content.is_large = header.body_bytes > AMQP_READ_BYTES_MIN as u64;
        Ok(())
    }

    pub(crate) fn content_body(
        &mut self,
        number: u16,
        frame: &Bytes,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let method = BasicPublish::ID;
        let channel = self.channels.get_mut(&number).ok_or_else(unexpected_content)?;
        if channel.is_closing {
            return Ok(());
        }
        let Some(content) = &mut channel.content else { return Err(unexpected_content()) };
        if content.header.is_none() {
            return Err(content.unexpected());
        }
        if content.missing < payload.len() as u64 {
            let text = "a content body is longer than its header said";
            return Err(unexpected_at(method, text.to_owned()));
        }
        content.missing -= payload.len() as u64;
        content.arriving.push(frame.slice_ref(payload), content.missing == 0);
        let is_complete = content.missing == 0;
        if content.is_large {
            content.charged += payload.len();
            self.arriving.add(&self.gateway, payload.len());
        }
        if is_complete { self.content_complete(number) } else { Ok(()) }
    }

    fn content_complete(&mut self, number: u16) -> Result<(), Failure> {
        let content = self.channels.get_mut(&number).and_then(|channel| channel.content.take());
        let Some(mut content) = content else { return Ok(()) };
        content.body = std::mem::take(&mut content.arriving).finish();
        self.contents -= 1;
        self.arriving.complete(content.charged);
        self.charge_sent(content.body.bytes());
        self.publish(number, content, CopyFreshness::AsItIs).map_err(|exception| Failure {
            channel: number,
            method: BasicPublish::ID,
            exception,
        })
    }

    /// The oldest incomplete message must arrive in time. This is checked after all buffered input was handled: most
    /// messages are complete by then.
    pub(crate) fn note_content_deadline(&mut self) {
        if self.contents == 0 {
            self.deadline = None;
            return;
        }
        let now = Instant::now();
        let contents = self.channels.values_mut().filter_map(|channel| channel.content.as_mut());
        let began = contents.map(|content| *content.began.get_or_insert(now)).min();
        self.deadline = began.map(|at| at + self.gateway.options.message_arrives_within);
    }
}

/// Failure for a content frame without `basic.publish` before it.
fn unexpected_content() -> Failure {
    let text = "expected method frame, got non method frame instead";
    unexpected_at(MethodId::default(), text.to_owned())
}
