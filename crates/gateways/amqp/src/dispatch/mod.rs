//! Frames to the methods that handle them, and results of operations to the replies of these methods. It uses the
//! modules of all methods, and only the socket's task uses it.
//!
//! While an operation is in flight, the socket is not read, so that the client's later frames take effect later;
//! deliveries, confirms and heartbeats continue.

mod channel_methods;
mod completion;

use base::limits::{PROPOSAL_BYTES_MAX, REQUESTS_IN_FLIGHT_PER_SESSION_MAX};
use bytes::Bytes;

use crate::codec::frame::{self, FrameKind};
use crate::codec::methods::{BasicAck, BasicNack, BasicPublish, BasicReject};
use crate::failure::{Failure, unexpected_frame, unknown_frame};
use crate::input::{Input, PeekedFrame};
use crate::session::operation::depends_on_messages;
use crate::session::{Phase, Session};

impl Session {
    /// Returns whether the socket may be read now.
    pub(crate) fn listens(&self) -> bool {
        // After the close only the end of the stream is expected.
        self.phase == Phase::Closed || self.handles_frames()
    }

    fn handles_frames(&self) -> bool {
        self.operation.is_none()
            && self.admission.is_none()
            && !self.arriving.waits()
            && !self.awaits_appends
            && !self.is_blocked
            && (self.charges.may_send() || self.phase != Phase::Running)
            && !matches!(self.phase, Phase::Closed | Phase::Ended)
            && self.in_flight.len() < REQUESTS_IN_FLIGHT_PER_SESSION_MAX
    }

    /// Handles buffered frames until none is complete or an operation must be awaited. Then passes the collected
    /// messages and settles to the broker.
    pub(crate) fn work(&mut self, input: &mut Input) {
        while self.handles_frames() {
            if self.phase == Phase::Connecting {
                match input.take_protocol_header() {
                    Some(header) => self.protocol_header(header),
                    None => break,
                }
                continue;
            }
            let peeked = match input.peek(self.negotiated.payload_bytes_max) {
                Ok(Some(peeked)) => peeked,
                Ok(None) => break,
                Err(error) => {
                    input.discard();
                    self.fail_frame(&error);
                    break;
                }
            };
            if self.ends_turn(peeked) {
                if self.publisher.is_empty() && self.settling.is_empty() {
                    self.awaits_appends = true;
                    break;
                }
                self.hand_over();
                continue;
            }
            let frame = input.take(peeked);
            if let Err(failure) = self.frame(&frame) {
                self.fail(failure);
            }
            // A read brings few bytes, but each message of it may go to thousands of queues.
            if self.publisher.bytes() > PROPOSAL_BYTES_MAX {
                self.hand_over();
            }
        }
        self.hand_over();
        match self.phase {
            Phase::Running => self.note_content_deadline(),
            Phase::Closed | Phase::Ended => input.discard(),
            _ => {}
        }
    }

    /// Returns whether collected work must be passed to the broker, or even be durable, before this frame is handled.
    /// So a client's frames take effect in their order.
    fn ends_turn(&self, peeked: PeekedFrame) -> bool {
        let Some(method) = peeked.method else { return false };
        if [BasicPublish::ID, BasicAck::ID, BasicNack::ID, BasicReject::ID].contains(&method) {
            return false;
        }
        if !self.publisher.is_empty() || !self.settling.is_empty() {
            return true;
        }
        !self.in_flight.is_empty() && depends_on_messages(method)
    }

    /// Handles one frame.
    fn frame(&mut self, bytes: &Bytes) -> Result<(), Failure> {
        let Some(read) = frame::read(bytes) else { return Ok(()) };
        if self.phase == Phase::Closing {
            return self.closing_frame(read.channel, read.kind, read.payload);
        }
        match (read.kind, read.channel) {
            (FrameKind::Heartbeat, 0) if read.payload.is_empty() => Ok(()),
            (FrameKind::Heartbeat, 0) => Err(unknown_frame(read.kind, read.payload)),
            (FrameKind::Method, 0) => self.connection_method(read.payload),
            (FrameKind::Method, channel) if self.phase == Phase::Running => {
                self.channel_method(channel, bytes, read.payload)
            }
            (FrameKind::Header, channel) if self.phase == Phase::Running && channel != 0 => {
                self.content_header(channel, bytes, read.payload)
            }
            (FrameKind::Body, channel) if self.phase == Phase::Running && channel != 0 => {
                self.content_body(channel, bytes, read.payload)
            }
            (kind, _) => Err(unexpected_frame(kind, read.payload)),
        }
    }
}
