//! Handover from the driver of one term to that of the next: sessions, consumers and leases.
//!
//! A driver's decisions end with its term, except leases, whose records are with consumers, and the back-offs
//! of released records. A driver whose term is over delivers nothing more. It waits until all its requests to
//! the log have ended, in the next term if need be, and leaves its sessions with their leases. The next driver
//! begins with the durable state of that time, and takes them over if no other node led in between. Dead
//! letters that had no room in an outbox, and transfers, are handed over too, and do not fail.
//!
//! If another node leads, all requests in flight have failed, except settles. Sessions and their consumers
//! continue at that node, by a [`Relay`], until this one leads again, and present their leases there
//! ([`crate::handover::presenting`]). Settles of this node's sessions that are not durable are repeated there
//! ([`crate::waiter::repeat`]).

mod presenting;

use std::collections::VecDeque;
use std::pin::pin;

use crate::limits::LEASE_MESSAGES_PER_TURN;
use base::{HashMap, HashSet, LeaseGroupId, Offset};
use consensus::{Consensus, Leadership};
use dispatch::{BackOff, Claim, ConsumerId, DeadLetterClaim, PushConsumer, SessionId};
use shard::delivery::handle::{Inbox, Message};
use shard::delivery::rates::Counts;
use shard::error::Unavailable;

use crate::commit::Unit;
use crate::dead_letters::DeadLetters;
use crate::groups::group::Group;
use crate::groups::view::SeenBefore;
use crate::open_session::Session;
use crate::relay::{Relay, RelayContext};
use crate::transfer::Transfer;
use crate::waiter::repeat::UncommittedSettle;

#[derive(Default)]
pub(crate) struct Handover {
    /// The term of the driver that left this; 0: there was none yet.
    pub(crate) term: u64,
    /// Records that may have been delivered without a counted attempt. `None` if another node has led since.
    pub(crate) seen: Option<SeenBefore>,
    pub(crate) sessions: HashMap<SessionId, Session>,
    pub(crate) groups: Vec<Users>,
    pub(crate) transfers: Vec<DeferredTransfer>,
    pub(crate) counts: HashMap<LeaseGroupId, Counts>,
    /// Leases of this node's sessions that another leader granted, and leases whose settle was not durable when
    /// the term ended. One of the messages repeats that settle.
    pub(crate) presented: Vec<(LeaseGroupId, Claim)>,
    /// Nodes that have presented all their sessions and leases.
    pub(crate) presented_by: Vec<u64>,
    /// Messages of other nodes about their sessions that precede all their others.
    pub(crate) introduced: Vec<Message>,
    /// To be handled by the next driver before all others.
    pub(crate) messages: VecDeque<Message>,
}

/// The consumers of a group, and its leases.
pub(crate) struct Users {
    pub(crate) group: LeaseGroupId,
    pub(crate) consumers: Vec<(ConsumerId, PushConsumer)>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) back_offs: Vec<BackOff>,
    /// Its engine, by which waiters for dead letters identify it.
    pub(crate) engine: u64,
    pub(crate) dead: DeadLetters,
    /// The records of these letters.
    pub(crate) dead_letters: Vec<DeadLetterClaim>,
}

/// A transfer that had no room in an outbox, with the unit to propose.
pub(crate) struct DeferredTransfer {
    pub(crate) groups: Vec<LeaseGroupId>,
    pub(crate) unit: Unit,
    pub(crate) transfer: Transfer,
}

impl Handover {
    /// `None` when this node will not lead again. `context`: set in a cluster, where other nodes may lead
    /// meanwhile.
    pub(crate) async fn wait_for_leadership(
        &mut self,
        consensus: &Consensus,
        inbox: &mut Inbox,
        context: Option<&RelayContext>,
    ) -> Option<Leadership> {
        let mut leadership = pin!(consensus.leadership());
        let context = loop {
            tokio::select! {
                biased;
                leadership = &mut leadership => match leadership {
                    Ok(leadership) => return Some(leadership),
                    Err(_) => return self.end(inbox).await,
                },
                _ = consensus.led_elsewhere(), if context.is_some() => match context {
                    Some(context) => break context,
                    None => continue,
                },
                message = inbox.recv() => match message {
                    None | Some(Message::Stop) => return None,
                    Some(message) => self.messages.push_back(message),
                },
            }
        };
        let mut relay = self.start_relay(context);
        loop {
            relay.advance();
            tokio::select! {
                biased;
                leadership = &mut leadership => {
                    self.resume_from_relay(relay);
                    match leadership {
                        Ok(leadership) => return Some(leadership),
                        Err(_) => return self.end(inbox).await,
                    }
                }
                event = relay.next_event() => relay.on(event),
                message = inbox.recv() => match message {
                    None | Some(Message::Stop) => return None,
                    Some(message) => relay.handle(message),
                },
            }
            // Messages received already go with it.
            for _ in 0..LEASE_MESSAGES_PER_TURN {
                match inbox.try_recv() {
                    Ok(Message::Stop) => return None,
                    Ok(message) => relay.handle(message),
                    Err(_) => break,
                }
            }
        }
    }

    /// Another node leads.
    fn start_relay(&mut self, context: &RelayContext) -> Relay {
        let why = Unavailable::NotLeader;
        self.present_leases();
        let users = std::mem::take(&mut self.groups).into_iter();
        let consuming = users.map(|it| (it.group, it.consumers)).collect();
        let leased = std::mem::take(&mut self.presented);
        for left in std::mem::take(&mut self.transfers) {
            left.transfer.fail(&why);
        }
        let sessions = std::mem::take(&mut self.sessions);
        let mut relay = Relay::take_over(context.clone(), sessions, consuming, leased);
        std::mem::take(&mut self.messages).into_iter().for_each(|it| relay.handle(it));
        relay
    }

    /// Another node led meanwhile, or leads: the leases of sessions here are presented, and rejects whose dead
    /// letters are not in the log are repeated.
    pub(crate) fn present_leases(&mut self) {
        for Users { group, claims, dead, .. } in &mut self.groups {
            let lost = dead.take_waiters().filter_map(|it| it.lost(&Unavailable::NotLeader));
            for UncommittedSettle { claims, message } in lost {
                self.presented.extend(claims);
                self.messages.push_back(message);
            }
            self.presented.extend(std::mem::take(claims).into_iter().map(|claim| (*group, claim)));
        }
    }

    /// This node leads again.
    fn resume_from_relay(&mut self, relay: Relay) {
        let handover = relay.hand_over();
        self.sessions = handover.sessions;
        self.groups =
            handover.groups.into_iter().map(|(id, all)| Users::without_leases(id, all)).collect();
        self.presented = handover.leased;
        self.messages.extend(handover.messages);
    }

    async fn end(&mut self, inbox: &mut Inbox) -> Option<Leadership> {
        // Consensus has stopped. The reply channels of waiting callers are dropped.
        self.messages.clear();
        self.groups.clear();
        self.transfers.clear();
        while !matches!(inbox.recv().await, None | Some(Message::Stop)) {}
        None
    }
}

impl Users {
    /// Consumers without leases: another node led.
    pub(crate) fn without_leases(
        group: LeaseGroupId,
        consumers: Vec<(ConsumerId, PushConsumer)>,
    ) -> Self {
        let (claims, back_offs, dead_letters) = (Vec::new(), Vec::new(), Vec::new());
        let (engine, dead) = (0, DeadLetters::default());
        Self { group, consumers, claims, back_offs, engine, dead, dead_letters }
    }

    /// `None` if the group has no users.
    pub(crate) fn of(group: &mut Group) -> Option<Self> {
        let dispatch = &group.dispatch;
        let (consumers, claims) = (dispatch.joined(), dispatch.claims());
        let back_offs = dispatch.back_offs();
        let dead = std::mem::take(&mut group.dead);
        let letters: HashSet<(u32, Offset)> =
            dead.pending().map(|it| (it.letter.partition, it.letter.offset)).collect();
        let mut dead_letters = dispatch.dead_letter_claims();
        dead_letters.retain(|claim| letters.contains(&claim.place()));
        let used = !consumers.is_empty() || !claims.is_empty() || !back_offs.is_empty();
        let (id, engine) = (group.id, group.engine);
        let users = Self { group: id, consumers, claims, back_offs, engine, dead, dead_letters };
        (used || !users.dead.is_empty()).then_some(users)
    }
}
