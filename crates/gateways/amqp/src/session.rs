//! One connection's state, apart from its socket: frames in, frames out.
//!
//! A session runs one asynchronous operation at a time (a declaration, a new consumer, a transaction). Meanwhile the
//! socket is not read, so that the client's later frames take effect later; deliveries, confirms and heartbeats
//! continue. Publishing and settling need no wait: they are collected while frames are handled and passed to the
//! broker together.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{AMQP_HANDSHAKE_FRAME_BYTES_MAX, AMQP_POSTED_MAX};
use access::{CertifiedName, Principal};
use base::HashMap;
use base::limits::{PROPOSAL_BYTES_MAX, REQUESTS_IN_FLIGHT_PER_SESSION_MAX};
use broker::{AppendBatch, Permit};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::SelectAll;
use gateway::Connection;
use tasks::Task;
use tokio::sync::mpsc;
use tokio::time::Instant;
use topology::{OwnerId, VirtualHost};

use crate::channel::{Channel, ChannelEvents};
use crate::codec::frame::{self, FrameKind};
use crate::codec::methods::{BasicAck, BasicNack, BasicPublish, BasicReject, MethodId};
use crate::codec::table::FieldTable;
use crate::errors::Exception;
use crate::failure::{Failure, unexpected_frame, unknown_frame};
use crate::gateway::Gateway;
use crate::in_flight::{InFlightAppend, RetainedMessage};
use crate::incoming_memory::IncomingMemory;
use crate::input::{Input, PeekedFrame};
use crate::operation::{Operation, OperationResult};
use crate::output::Output;
use crate::quotas::{Charges, CountGuard};
use crate::replies::PostedMessage;
use crate::session_end::SessionEnd;
use rabbitmq::publisher::Publisher;
use rabbitmq::rights::{PublishRight, Rights};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The protocol header has not arrived.
    Connecting,
    /// `connection.start` was sent.
    Starting,
    /// `connection.tune` was sent.
    Tuning,
    /// Waiting for `connection.open`.
    Opening,
    Running,
    /// `connection.close` was sent; only `connection.close_ok` is handled.
    Closing,
    /// Both sides have closed the connection. The client closes the socket, and no other input is handled. Some
    /// clients report a failure if the server closes it first.
    Closed,
    /// No input is handled; pending output is still sent.
    Ended,
}

/// Capabilities that the client announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Capabilities {
    pub(crate) consumer_cancel_notify: bool,
    pub(crate) connection_blocked: bool,
    pub(crate) authentication_failure_close: bool,
}

/// Negotiated limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NegotiatedLimits {
    /// Payload of a frame, without its overhead.
    pub(crate) payload_bytes_max: usize,
    pub(crate) channel_max: u16,
    /// Zero: disabled.
    pub(crate) heartbeat: Duration,
}

pub(crate) struct Session {
    pub(crate) gateway: Arc<Gateway>,
    /// The connection's number, which identifies the owner of its exclusive queues.
    pub(crate) id: OwnerId,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Connection,
    pub(crate) encrypted: bool,
    pub(crate) phase: Phase,
    pub(crate) negotiated: NegotiatedLimits,
    pub(crate) capabilities: Capabilities,
    /// The client library, for logs.
    pub(crate) client: String,
    /// The client's `client_properties`.
    pub(crate) client_properties: FieldTable,
    /// The user named by the client's certificate, until the login.
    pub(crate) certified: Option<Box<CertifiedName>>,
    /// The logged-in user.
    pub(crate) principal: Option<Principal>,
    /// The client logged in by a token, and may renew it.
    pub(crate) renews: bool,
    /// Expiry of the certificate or token of the login.
    pub(crate) login_ends: Option<Instant>,
    pub(crate) vhost: Option<VirtualHost>,
    /// The user's rights in the vhost.
    pub(crate) rights: Option<Rights>,
    /// The exchange of the last publish, which the user may write to.
    pub(crate) writable: Option<PublishRight>,
    pub(crate) channels: HashMap<u16, Channel>,
    /// Distinguishes a channel from earlier ones of the same number.
    pub(crate) generation: u32,
    pub(crate) output: Output,
    pub(crate) publisher: Publisher,
    /// Messages in the publisher's batches, in a cluster. They are no larger than the bytes admitted for the batches.
    pub(crate) kept: Vec<RetainedMessage>,
    /// Number of messages of which not all frames have arrived.
    pub(crate) contents: usize,
    /// Scratch buffer for a message's headers.
    pub(crate) table: BytesMut,
    /// Channels with settles not yet passed to the broker.
    pub(crate) settling: Vec<u16>,
    pub(crate) in_flight: VecDeque<InFlightAppend>,
    pub(crate) operation: Option<Operation>,
    /// Events of the lease sessions of all channels.
    pub(crate) events: SelectAll<ChannelEvents>,
    /// Pending admission, and its bytes.
    pub(crate) admission: Option<(BoxFuture<'static, Permit>, usize)>,
    /// Memory of messages that are being received.
    pub(crate) arriving: IncomingMemory,
    /// Admitted memory for messages that are passed to the broker next.
    pub(crate) permits: Vec<Permit>,
    pub(crate) permitted_bytes: usize,
    /// A method waits until all appends in flight are answered.
    pub(crate) awaits_appends: bool,
    /// The node has no room for messages, and this connection publishes.
    pub(crate) is_blocked: bool,
    /// `connection.blocked` was sent.
    pub(crate) told_blocked: bool,
    pub(crate) charges: Charges,
    /// Entries of the connection in the connection counts.
    pub(crate) counted: Vec<CountGuard>,
    /// Boxed, because every session allocates the channel's slots.
    pub(crate) posts: mpsc::Sender<Box<PostedMessage>>,
    pub(crate) posted: mpsc::Receiver<Box<PostedMessage>>,
    /// Deadline of the client's next expected frame.
    pub(crate) deadline: Option<Instant>,
    /// Earliest deadline of an acknowledgement.
    pub(crate) answers_due: Option<Instant>,
    pub(crate) end: Option<SessionEnd>,
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        encrypted: bool,
        certified: Option<CertifiedName>,
        gateway: Arc<Gateway>,
    ) -> Self {
        let id = OwnerId(connection.id());
        gateway.topology.open_owner(id);
        let charges = Charges::new(&gateway.options.quotas);
        let (posts, posted) = mpsc::channel(AMQP_POSTED_MAX);
        let negotiated = NegotiatedLimits {
            // Defaults before negotiation.
            payload_bytes_max: AMQP_HANDSHAKE_FRAME_BYTES_MAX,
            channel_max: gateway.options.channel_max,
            heartbeat: Duration::ZERO,
        };
        Self {
            answers_due: None,
            deadline: Some(Instant::now() + gateway.options.handshake_within),
            id,
            peer: connection.peer(),
            connection,
            encrypted,
            gateway,
            phase: Phase::Connecting,
            negotiated,
            capabilities: Capabilities::default(),
            client: String::new(),
            client_properties: FieldTable::new(),
            certified: certified.map(Box::new),
            principal: None,
            renews: false,
            login_ends: None,
            vhost: None,
            rights: None,
            writable: None,
            channels: HashMap::default(),
            generation: 0,
            output: Output::default(),
            publisher: Publisher::default(),
            kept: Vec::new(),
            contents: 0,
            table: BytesMut::new(),
            settling: Vec::new(),
            in_flight: VecDeque::new(),
            operation: None,
            events: SelectAll::new(),
            admission: None,
            arriving: IncomingMemory::default(),
            permits: Vec::new(),
            permitted_bytes: 0,
            awaits_appends: false,
            is_blocked: false,
            told_blocked: false,
            charges,
            counted: Vec::new(),
            posts,
            posted,
            end: None,
        }
    }

    /// Name of the logged-in user; empty before the login.
    pub(crate) fn user(&self) -> &str {
        self.principal.as_ref().map_or("", |principal| principal.name())
    }

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
        !self.in_flight.is_empty() && crate::operation::depends_on_messages(method)
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

    /// Passes collected work to the broker, messages before settles: a message derived from another is stored when
    /// the other is settled.
    pub(crate) fn hand_over(&mut self) {
        if self.admission.is_some() {
            return;
        }
        if !self.publisher.is_empty() {
            let short = self.publisher.bytes().saturating_sub(self.permitted_bytes);
            if short > 0 && !self.admit(short) {
                return;
            }
            self.append();
        }
        self.arriving.handed_over();
        for number in self.settling.drain(..) {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.hand_over_settles();
            }
        }
    }

    fn append(&mut self) {
        let (batches, confirms) = self.publisher.take();
        if batches.is_empty() && confirms.is_empty() {
            return;
        }
        let (records, bytes) = AppendBatch::amount(&batches);
        self.connection.traffic().received(records, bytes);
        let kept = std::mem::take(&mut self.kept);
        let permits = std::mem::take(&mut self.permits);
        self.permitted_bytes = 0;
        let in_flight = InFlightAppend::begin(self, batches, confirms, kept, permits);
        self.in_flight.push_back(in_flight);
    }

    /// Reserves memory on the node. Returns false if it must be awaited.
    pub(crate) fn admit(&mut self, bytes: usize) -> bool {
        let broker = self.gateway.broker.clone();
        let mut admission = async move { broker.admit(bytes).await }.boxed();
        match (&mut admission).now_or_never() {
            Some(permit) => {
                self.admitted(permit, bytes);
                true
            }
            None => {
                self.admission = Some((admission, bytes));
                false
            }
        }
    }

    pub(crate) fn admitted(&mut self, permit: Permit, bytes: usize) {
        self.permits.push(permit);
        self.permitted_bytes += bytes;
    }

    /// Starts an operation. It runs to its end even if the session ends: half a declaration is worse than one whose
    /// reply is lost.
    pub(crate) fn begin(
        &mut self,
        channel: u16,
        method: MethodId,
        work: impl Future<Output = Result<OperationResult, Exception>> + Send + 'static,
    ) {
        debug_assert!(self.operation.is_none(), "one thing at a time");
        let known = self.channels.get_mut(&channel);
        let generation = known.as_ref().map_or(0, |channel| channel.generation);
        let rejects = known.filter(|_| crate::operation::depends_on_dead_letters(method));
        let rejects = rejects.map(|channel| channel.rejects.take()).unwrap_or_default();
        let work = async move {
            rejects.arrived().await;
            work.await
        };
        let task = tasks::spawn(Task::AmqpOperation, work);
        self.operation = Some(Operation { channel, generation, method, task });
    }
}
