//! The state of one connection, apart from its socket, and the steps that all methods share: operations, appends, flow
//! control, rights, and the end. It knows no method of a client.
//!
//! A session runs one asynchronous operation at a time (a declaration, a new consumer, a transaction). Publishing and
//! settling need no wait: they are collected while frames are handled and passed to the broker together.

mod channels;
pub(crate) mod end;
pub(crate) mod flow_control;
pub(crate) mod in_flight;
mod incoming_memory;
pub(crate) mod operation;
mod rights;
mod snapshot;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{CertifiedName, Principal};
use base::HashMap;
use broker::Permit;
use bytes::BytesMut;
use futures_util::future::BoxFuture;
use futures_util::stream::SelectAll;
use gateway::Connection;
use rabbitmq::publisher::Publisher;
use rabbitmq::rights::{PublishRight, Rights};
use tokio::sync::mpsc;
use tokio::time::Instant;
use topology::{OwnerId, VirtualHost};

use crate::channel::{Channel, ChannelEvents};
use crate::codec::table::FieldTable;
use crate::errors::{Exception, ReplyCode};
use crate::gateway::Gateway;
use crate::gateway::counts::CountGuard;
use crate::limits::{AMQP_HANDSHAKE_FRAME_BYTES_MAX, AMQP_POSTED_MAX};
use crate::output::Output;
use crate::posted::PostedMessage;
use crate::session::end::SessionEnd;
use crate::session::flow_control::Charges;
use crate::session::in_flight::{InFlightAppend, RetainedMessage};
use crate::session::incoming_memory::IncomingMemory;
use crate::session::operation::Operation;

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

    /// Parts of the session that an operation needs.
    pub(crate) fn at_hand(&self) -> Result<(Arc<Gateway>, VirtualHost, OwnerId), Exception> {
        let closed = || Exception::new(ReplyCode::InternalError, "no vhost is open");
        let vhost = self.vhost.clone().ok_or_else(closed)?;
        Ok((Arc::clone(&self.gateway), vhost, self.id))
    }

    pub(crate) fn queue_name(&self, number: u16, name: &str) -> Result<String, Exception> {
        match self.channels.get(&number) {
            Some(channel) => channel.queue_name(name).map(str::to_owned),
            None => Ok(name.to_owned()),
        }
    }
}
