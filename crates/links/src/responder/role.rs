//! The replying side's role in the task of a connection.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::limits::{LINK_APPENDS_BYTES_MAX, LINK_APPENDS_MAX};
use base::ShardId;
use base::limits::SHARDS_MAX;
use futures_util::future::BoxFuture;
use gateway::Connection;
use tasks::Task;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};
use world::Instant;

use super::requests;
use crate::connection::Role;
use crate::end::{ConnectionEnd, Violation};
use crate::frame::{ABANDONED, FIRST, Frame, Header, Kind, Message, QueuedFrame};
use crate::lane::Lane;
use crate::node_id::NodeId;
use crate::outbox::Outbox;
use crate::refusal::Refusal;
use crate::service::{IncomingAppend, IncomingAppends, Request, Service};
use crate::window::{Bounds, ReceiveWindow};

const APPENDS: Bounds = Bounds { count: LINK_APPENDS_MAX, bytes: LINK_APPENDS_BYTES_MAX };

pub(super) struct Responder {
    from: NodeId,
    lane: Lane,
    service: Arc<dyn Service>,
    outbox: Arc<Outbox>,
    requests: ReceiveWindow,
    /// By shard. Streams that this side has ended stay, for frames that are still in flight.
    streams: BTreeMap<u16, Stream>,
    /// Tasks that compute replies; dropped with the connection.
    tasks: tasks::Set,
    ends: Option<EndSignals>,
}

/// A stream of appends. Dropping it drops its future.
struct Stream {
    id: u32,
    window: ReceiveWindow,
    /// `None`: the peer has ended the stream.
    appends: Option<mpsc::UnboundedSender<IncomingAppend>>,
    _cuts_off: oneshot::Sender<()>,
}

/// Further reasons that end the connection.
struct EndSignals {
    replaced: oneshot::Receiver<()>,
    stopping: BoxFuture<'static, ()>,
    connection: Connection,
}

impl Responder {
    pub(super) fn new(
        from: NodeId,
        lane: Lane,
        service: Arc<dyn Service>,
        outbox: Arc<Outbox>,
    ) -> Self {
        Self {
            from,
            lane,
            service,
            outbox,
            requests: ReceiveWindow::new(lane.requests()),
            streams: BTreeMap::new(),
            tasks: tasks::Set::default(),
            ends: None,
        }
    }

    pub(super) fn ends_when(
        &mut self,
        replaced: oneshot::Receiver<()>,
        stopping: BoxFuture<'static, ()>,
        connection: Connection,
    ) {
        self.ends = Some(EndSignals { replaced, stopping, connection });
    }

    fn allow_append(&self, header: &Header) -> Result<(), Violation> {
        if self.lane != Lane::Replication {
            return Err(header.not_allowed());
        }
        let stream = self.streams.get(&header.shard);
        if header.flags & FIRST != 0 {
            // A new stream has a window of its own. Appends held by an earlier stream of the shard are dropped by
            // now.
            let is_room = stream.is_some() || self.streams.len() < SHARDS_MAX as usize;
            return if is_room { Ok(()) } else { Err(Violation::Stream) };
        }
        let stream = stream.ok_or(Violation::Stream)?;
        // Appends for a stream that this side has ended are discarded.
        let is_over = stream.appends.as_ref().is_none_or(mpsc::UnboundedSender::is_closed);
        if is_over || stream.window.allows(header.length as usize) {
            Ok(())
        } else {
            Err(Violation::Window)
        }
    }

    fn take_request(&mut self, frame: Frame) {
        let Frame { header, within_ms, message } = frame;
        let counting = self.requests.count(header.length as usize);
        let request = Request {
            from: self.from,
            lane: self.lane,
            shard: ShardId(header.shard.into()),
            message,
            within: requests::within(within_ms),
        };
        let outbox = Arc::clone(&self.outbox);
        let answering = requests::answer(&*self.service, request, header.number, outbox, counting);
        self.tasks.spawn(Task::PeerRequest, answering);
    }

    fn take_append(&mut self, frame: Frame) {
        let Frame { header, message, .. } = frame;
        if header.flags & FIRST != 0 {
            self.begin(header.shard, header.number);
        }
        let Some(stream) = self.streams.get(&header.shard) else { return };
        if let Some(appends) = &stream.appends {
            // If the service takes no more appends, the task that ended reports it to the peer.
            let _ = appends.send(IncomingAppend {
                message,
                number: header.number,
                lane: self.lane,
                outbox: Arc::clone(&self.outbox),
                counting: stream.window.count(header.length as usize),
            });
        }
    }

    fn begin(&mut self, shard: u16, id: u32) {
        let (appends, incoming) = mpsc::unbounded_channel();
        let (cuts_off, cut_off) = oneshot::channel::<()>();
        let stream = Stream {
            id,
            window: ReceiveWindow::new(APPENDS),
            appends: Some(appends),
            _cuts_off: cuts_off,
        };
        // Drops an earlier stream first.
        self.streams.insert(shard, stream);
        let incoming =
            IncomingAppends { from: self.from, shard: ShardId(shard.into()), appends: incoming };
        let serving = self.service.appends(incoming);
        let outbox = Arc::clone(&self.outbox);
        self.tasks.spawn(Task::PeerRequest, async move {
            tokio::select! {
                biased;
                _ = cut_off => {}
                () = serving => {
                    let end = QueuedFrame::new(Kind::AppendsEnd, id, Message::default());
                    outbox.push_with_room(QueuedFrame { shard, ..end }).await;
                }
            }
        });
    }

    fn end_stream(&mut self, header: &Header) {
        let Some(stream) = self.streams.get_mut(&header.shard) else { return };
        if stream.id != header.number {
            return;
        }
        if header.flags & ABANDONED != 0 {
            self.streams.remove(&header.shard);
        } else {
            stream.appends = None;
        }
    }
}

impl Role for Responder {
    fn allow(&mut self, header: &Header) -> Result<(), Violation> {
        header.check_length(self.lane.message_bytes_max())?;
        match header.kind {
            Kind::Request if self.requests.allows(header.length as usize) => Ok(()),
            Kind::Request => Err(Violation::Window),
            Kind::Append => self.allow_append(header),
            Kind::AppendsEnd | Kind::Ping | Kind::Close | Kind::Refused => Ok(()),
            Kind::Gossip if self.lane == Lane::Control => Ok(()),
            _ => Err(header.not_allowed()),
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), ConnectionEnd> {
        match frame.header.kind {
            Kind::Request => self.take_request(frame),
            Kind::Append => self.take_append(frame),
            Kind::AppendsEnd => self.end_stream(&frame.header),
            Kind::Gossip => self.service.gossip(self.from, frame.message.head),
            Kind::Refused => {
                // This side had accepted the peer: both operators have to know.
                if let Some(refusal) = Refusal::decode(&frame.message.head) {
                    warn!(node = %self.from, %refusal, "a node refuses this one");
                }
                return Err(ConnectionEnd::Left);
            }
            _ => return Err(ConnectionEnd::Violation(frame.header.not_allowed())),
        }
        Ok(())
    }

    /// Frames of this side have no deadline.
    fn expire(&mut self, _frame: QueuedFrame) {}

    fn tick(&mut self, _now: Instant) -> Result<(), ConnectionEnd> {
        Ok(())
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEnd> {
        while let Poll::Ready(Some(ended)) = pin!(self.tasks.join_next()).poll(context) {
            if let Err(error) = ended
                && error.is_panic()
            {
                error!(node = %self.from, %error, "a request of a node panicked; its connection is closed");
                return Poll::Ready(ConnectionEnd::Here);
            }
        }
        let Some(ends) = &mut self.ends else { return Poll::Pending };
        if Pin::new(&mut ends.replaced).poll(context).is_ready() {
            return Poll::Ready(ConnectionEnd::Replaced);
        }
        if ends.connection.is_closing() || ends.stopping.as_mut().poll(context).is_ready() {
            self.ends = None;
            self.outbox.finish();
        }
        Poll::Pending
    }
}
