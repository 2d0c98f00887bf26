//! One connection's state, apart from its socket: frames go in, frames come out.
//!
//! A session does one thing at a time that waits (an operation: a declaration, a consumer that is
//! made, a transaction). While it waits the socket is not read, so that what a client sent after it
//! happens after it; deliveries, confirms and heartbeats go on. What does not wait, publishing and
//! settling, is collected while there are frames and handed over in one go.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{Certified, Principal};
use base::HashMap;
use base::limits::{
    AMQP_HANDSHAKE_FRAME_BYTES_MAX, AMQP_POSTED_MAX, PROPOSAL_BYTES_MAX,
    REQUESTS_IN_FLIGHT_PER_SESSION_MAX,
};
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
use crate::in_flight::{InFlight, Kept};
use crate::input::{Input, Peeked};
use crate::operation::{Done, Operation};
use crate::output::Output;
use crate::quotas::{Charges, Entered};
use crate::replies::Posted;
use crate::session_end::SessionEnd;
use rabbitmq::publisher::Publisher;
use rabbitmq::rights::{Rights, Writable};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The protocol header has not come.
    Connecting,
    /// `connection.start` was sent.
    Starting,
    /// `connection.tune` was sent.
    Tuning,
    /// `connection.open` is to come.
    Opening,
    Running,
    /// The client was told to close; only `connection.close_ok` is listened to.
    Closing,
    /// Both sides said that they close: the client closes the socket, and nothing else is listened
    /// to. Some clients take it for a failure if the server is the first.
    Closed,
    /// Nothing is listened to; what is still to be said is said.
    Ended,
}

/// What a client said that it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Capabilities {
    pub(crate) consumer_cancel_notify: bool,
    pub(crate) connection_blocked: bool,
    pub(crate) authentication_failure_close: bool,
}

/// What was negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Negotiated {
    /// Of a frame, without its overhead.
    pub(crate) payload_bytes_max: usize,
    pub(crate) channel_max: u16,
    /// Zero: none.
    pub(crate) heartbeat: Duration,
}

pub(crate) struct Session {
    pub(crate) gateway: Arc<Gateway>,
    /// The connection's number, by which its exclusive queues are its own.
    pub(crate) id: OwnerId,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Connection,
    pub(crate) encrypted: bool,
    pub(crate) phase: Phase,
    pub(crate) negotiated: Negotiated,
    pub(crate) capabilities: Capabilities,
    /// The client library, for logs.
    pub(crate) client: String,
    /// What the client says of itself.
    pub(crate) client_properties: FieldTable,
    /// Whom the client's certificate names, until it has logged in.
    pub(crate) certified: Option<Box<Certified>>,
    /// Who is logged in.
    pub(crate) principal: Option<Principal>,
    /// It logged in by a token, and may bring a new one.
    pub(crate) renews: bool,
    /// When what it logged in by ends.
    pub(crate) login_ends: Option<Instant>,
    pub(crate) vhost: Option<VirtualHost>,
    /// What the user may do in it.
    pub(crate) rights: Option<Rights>,
    /// The exchange that was published to last, which the user may.
    pub(crate) writable: Option<Writable>,
    pub(crate) channels: HashMap<u16, Channel>,
    /// Tells a channel from one that had its number before.
    pub(crate) generation: u32,
    pub(crate) output: Output,
    pub(crate) publisher: Publisher,
    /// Messages in the publisher's batches, in a cluster. They are no larger than what is admitted for the batches.
    pub(crate) kept: Vec<Kept>,
    /// Messages whose frames have not all come.
    pub(crate) contents: usize,
    /// Room to write a message's headers in.
    pub(crate) table: BytesMut,
    /// Channels that have settles to hand over.
    pub(crate) settling: Vec<u16>,
    pub(crate) in_flight: VecDeque<InFlight>,
    pub(crate) operation: Option<Operation>,
    /// What the lease sessions of all channels tell.
    pub(crate) events: SelectAll<ChannelEvents>,
    /// Room that is waited for, with how many bytes it is.
    pub(crate) admission: Option<(BoxFuture<'static, Permit>, usize)>,
    /// Room that is held for what is being received.
    pub(crate) permits: Vec<Permit>,
    pub(crate) permitted_bytes: usize,
    /// A method waits until all that is in flight is answered.
    pub(crate) awaits_appends: bool,
    /// The node has no room for messages, and this connection publishes.
    pub(crate) is_blocked: bool,
    /// The client was told of it.
    pub(crate) told_blocked: bool,
    pub(crate) charges: Charges,
    /// Where its connection is counted.
    pub(crate) counted: Vec<Entered>,
    /// Boxed, because room for some is made with every session.
    pub(crate) posts: mpsc::Sender<Box<Posted>>,
    pub(crate) posted: mpsc::Receiver<Box<Posted>>,
    /// When the client must have said what is expected of it.
    pub(crate) deadline: Option<Instant>,
    /// When the first delivery must be answered that must be at all.
    pub(crate) answers_due: Option<Instant>,
    pub(crate) end: Option<SessionEnd>,
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        encrypted: bool,
        certified: Option<Certified>,
        gateway: Arc<Gateway>,
    ) -> Self {
        let id = OwnerId(connection.id());
        gateway.topology.open_owner(id);
        let charges = Charges::new(&gateway.options.quotas);
        let (posts, posted) = mpsc::channel(AMQP_POSTED_MAX);
        let negotiated = Negotiated {
            // Until something else is negotiated.
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

    /// The name of who is logged in; empty before.
    pub(crate) fn user(&self) -> &str {
        self.principal.as_ref().map_or("", |principal| principal.name())
    }

    /// Whether frames may be handled now, and so the socket read.
    pub(crate) fn listens(&self) -> bool {
        // For the end of the stream, whatever else there is.
        self.phase == Phase::Closed || self.handles_frames()
    }

    fn handles_frames(&self) -> bool {
        self.operation.is_none()
            && self.admission.is_none()
            && !self.awaits_appends
            && !self.is_blocked
            && (self.charges.is_heard() || self.phase != Phase::Running)
            && !matches!(self.phase, Phase::Closed | Phase::Ended)
            && self.in_flight.len() < REQUESTS_IN_FLIGHT_PER_SESSION_MAX
    }

    /// Handles what has come, until there is no whole frame or something must be waited for, and
    /// hands over what was collected.
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
            // A read brings little, but each message of it may go to thousands of queues.
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

    /// Whether what was collected must be on its way, or even durable, before this frame is
    /// handled. Then the order in which a client says things is the order in which they happen.
    fn ends_turn(&self, peeked: Peeked) -> bool {
        let Some(method) = peeked.method else { return false };
        if [BasicPublish::ID, BasicAck::ID, BasicNack::ID, BasicReject::ID].contains(&method) {
            return false;
        }
        if !self.publisher.is_empty() || !self.settling.is_empty() {
            return true;
        }
        !self.in_flight.is_empty() && crate::operation::looks_at_messages(method)
    }

    /// One frame.
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

    /// Gives what was collected to the broker, messages before settles: a message that was made of
    /// another is there when the other is settled.
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
        // What is still being received keeps its room.
        let mut permits = Vec::new();
        if self.contents == 0 {
            permits = std::mem::take(&mut self.permits);
            self.permitted_bytes = 0;
        }
        let in_flight = InFlight::begin(self, batches, confirms, kept, permits);
        self.in_flight.push_back(in_flight);
    }

    /// Asks the node for room; false if it must be waited for.
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

    /// Begins something that waits. It comes to its end whatever becomes of the session: half a
    /// declaration is worse than one that nobody hears of.
    pub(crate) fn begin(
        &mut self,
        channel: u16,
        method: MethodId,
        work: impl Future<Output = Result<Done, Exception>> + Send + 'static,
    ) {
        debug_assert!(self.operation.is_none(), "one thing at a time");
        let known = self.channels.get_mut(&channel);
        let generation = known.as_ref().map_or(0, |channel| channel.generation);
        let rejects = known.filter(|_| crate::operation::looks_at_dead_letters(method));
        let rejects = rejects.map(|channel| channel.rejects.take()).unwrap_or_default();
        let work = async move {
            rejects.arrived().await;
            work.await
        };
        let task = tasks::spawn(Task::AmqpOperation, work);
        self.operation = Some(Operation { channel, generation, method, task });
    }
}
