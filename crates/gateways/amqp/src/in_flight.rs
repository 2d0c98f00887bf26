//! Batches in flight to the broker, and the messages in them that may have to be rerouted ([`rabbitmq::rerouting`]).

use std::task::{Context, Poll, ready};

use base::TopicId;
use broker::{AppendBatch, AppendError, AppendReply, AppendedBatch, Permit};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rabbitmq::publisher::Confirms;
use rabbitmq::rerouting::{self, RerouteOutcome, View, lost, route_again};

use crate::codec::properties::{Properties, WireProperties};
use crate::content::Content;
use crate::replies::REPLY_TO;
use crate::session::Session;

type AppendResults = Vec<Result<AppendedBatch, AppendError>>;

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
    confirms: Confirms,
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
    pub(crate) fn begin(
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
    /// Completes the oldest appends in flight that are answered.
    pub(crate) fn poll_appended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut any = false;
        while let Some(mut front) = self.in_flight.pop_front() {
            let Poll::Ready((answers, fates)) = self.poll_in_flight(&mut front, context) else {
                self.in_flight.push_front(front);
                break;
            };
            any = true;
            let refused = self.settle_rerouted(fates);
            self.confirm(&front.confirms, &answers, &refused);
        }
        if self.in_flight.is_empty() {
            self.awaits_appends = false;
        }
        if any { Poll::Ready(()) } else { Poll::Pending }
    }

    fn poll_in_flight(
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

    /// Returns unroutable mandatory messages to their publishers. Returns channel and number of messages that were
    /// rejected.
    fn settle_rerouted(
        &mut self,
        fates: Vec<(RetainedMessage, RerouteOutcome)>,
    ) -> Vec<(u16, u64)> {
        let mut refused = Vec::new();
        for (kept, fate) in fates {
            let known = self.channels.get(&kept.channel);
            if known.is_none_or(|it| it.generation != kept.generation || it.is_closing) {
                continue;
            }
            match (fate, kept.number) {
                (RerouteOutcome::Taken, _) | (RerouteOutcome::Refused, None) => {}
                (RerouteOutcome::Refused, Some(number)) => refused.push((kept.channel, number)),
                (RerouteOutcome::Unroutable, _) => self.return_kept(&kept),
            }
        }
        refused
    }

    fn return_kept(&mut self, kept: &RetainedMessage) {
        let Some((publish, encoded)) = kept.content.read() else { return };
        let Ok(properties) = Properties::decode(encoded) else { return };
        if publish.mandatory {
            self.give_back(kept.channel, &publish, &properties, &kept.content.body);
        }
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
