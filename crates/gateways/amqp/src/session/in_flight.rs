//! Batches in flight to the broker, and the messages in them that may have to be rerouted ([`rabbitmq::rerouting`]).

use std::task::{Context, Poll, ready};

use base::TopicId;
use broker::{AppendBatch, AppendError, AppendReply, AppendedBatch, Permit};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rabbitmq::publisher::Confirms;
use rabbitmq::rerouting::{self, RerouteOutcome, View, lost, route_again};

use crate::channel::content::Content;
use crate::codec::properties::{Properties, WireProperties};
use crate::gateway::replies::REPLY_TO;
use crate::session::Session;

pub(crate) type AppendResults = Vec<Result<AppendedBatch, AppendError>>;

/// A message kept until its queues have replied: in a cluster one of them may be deleted.
#[derive(Debug)]
pub(crate) struct RetainedMessage {
    pub(crate) channel: u16,
    pub(crate) generation: u32,
    /// Its publisher-confirm number.
    pub(crate) number: Option<u64>,
    pub(crate) content: Content,
    /// Replaces `amq.rabbitmq.reply-to`.
    pub(crate) reply_name: Option<String>,
}

/// Batches in flight, and the confirms that depend on them.
pub(crate) struct InFlightAppend {
    /// `None`: there was nothing to append, and the entry only keeps the order of confirms.
    reply: Option<AppendReply>,
    pub(crate) confirms: Confirms,
    kept: Vec<RetainedMessage>,
    /// Topic of each reply; set only if messages are kept.
    topics: Vec<TopicId>,
    rerouting: Option<ReroutedAppend>,
    /// Released once the append is answered.
    _permits: Vec<Permit>,
}

/// Messages of an append that are being rerouted.
struct ReroutedAppend {
    answers: AppendResults,
    fates: BoxFuture<'static, Vec<(RetainedMessage, RerouteOutcome)>>,
}

impl InFlightAppend {
    /// Passes the batches to the broker.
    fn begin(
        session: &Session,
        batches: Vec<AppendBatch>,
        confirms: Confirms,
        kept: Vec<RetainedMessage>,
        permits: Vec<Permit>,
    ) -> Self {
        let topics = match kept.is_empty() {
            true => Vec::new(),
            false => {
                let partitions = batches.iter().flat_map(AppendBatch::partitions);
                partitions.map(|partition| partition.topic).collect()
            }
        };
        let broker = &session.gateway.broker;
        let reply = (!batches.is_empty()).then(|| broker.append_at_leaders(batches));
        Self { reply, confirms, kept, topics, rerouting: None, _permits: permits }
    }
}

impl Session {
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

    pub(crate) fn poll_in_flight(
        &self,
        front: &mut InFlightAppend,
        context: &mut Context<'_>,
    ) -> Poll<(AppendResults, Vec<(RetainedMessage, RerouteOutcome)>)> {
        if front.rerouting.is_none() {
            let answers = match &mut front.reply {
                None => Vec::new(),
                Some(reply) => ready!(reply.poll_unpin(context)),
            };
            let kept = std::mem::take(&mut front.kept);
            let lost = lost(&front.confirms, &front.topics, kept, &answers);
            let (Some(vhost), Some(rights)) = (&self.vhost, &self.rights) else {
                return Poll::Ready((answers, Vec::new()));
            };
            if lost.is_empty() {
                return Poll::Ready((answers, Vec::new()));
            }
            let (broker, vhost) = (self.gateway.broker.clone(), vhost.clone());
            let rights = rights.clone();
            let fates = async move { route_again(&broker, &vhost, &rights, lost).await }.boxed();
            front.rerouting = Some(ReroutedAppend { answers, fates });
        }
        let Some(rerouting) = &mut front.rerouting else {
            return Poll::Ready((Vec::new(), Vec::new()));
        };
        let fates = ready!(rerouting.fates.poll_unpin(context));
        Poll::Ready((std::mem::take(&mut rerouting.answers), fates))
    }
}

impl rerouting::ReroutableMessage for RetainedMessage {
    fn view<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> Option<R> {
        let (publish, encoded) = self.content.read()?;
        let mut properties = Properties::decode(encoded).ok()?;
        if let Some(name) = &self.reply_name
            && properties.reply_to == Some(REPLY_TO.as_bytes())
        {
            properties.reply_to = Some(name.as_bytes());
        }
        Some(look(&View {
            exchange: publish.exchange,
            routing_key: publish.routing_key,
            properties: &properties,
            body: &self.content.body,
        }))
    }
}
