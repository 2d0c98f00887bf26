//! From the driver of one term to that of the next: who is there and what it holds.
//!
//! Nothing that a driver decided outlives its term, but for leases, whose records are with consumers, and for
//! how long records wait that came back from leases. A
//! driver whose term is over hands nothing out any more, waits until all that it asked of the log has come
//! to its end, in the next term where it has to, and leaves its sessions with their leases. The next one
//! begins with what is durable by then, and takes them over where nobody else led in between. Dead letters that
//! had no room in an outbox, and transfers, go over too: nobody is told that they failed.
//!
//! Where another node leads, nothing goes over: consumers hear that they are gone, and whoever asks is refused.

use std::collections::VecDeque;
use std::pin::pin;

use base::{HashMap, HashSet, LeaseGroupId, Offset};
use consensus::{Consensus, Leadership};
use dispatch::{BackOff, Claim, ConsumerId, DeadLetterClaim, Joined, SessionId};

use crate::error::Unavailable;

use super::commit::Unit;
use super::dead_letters::DeadLetters;
use super::event::GoneReason;
use super::group::Group;
use super::handle::{Inbox, Message};
use super::rates::Counts;
use super::sessions::Session;
use super::transfer::Transfer;

#[derive(Default)]
pub(super) struct Handover {
    /// In which it was made; 0: there was no driver yet.
    pub(super) term: u64,
    pub(super) sessions: HashMap<SessionId, Session>,
    pub(super) groups: Vec<Users>,
    pub(super) transfers: Vec<LeftTransfer>,
    pub(super) counts: HashMap<LeaseGroupId, Counts>,
    /// To be handled by the next driver before all others.
    pub(super) messages: VecDeque<Message>,
    /// Another node led since.
    pub(super) led_elsewhere: bool,
}

/// Who uses a group, and what became of their leases.
pub(super) struct Users {
    pub(super) group: LeaseGroupId,
    pub(super) consumers: Vec<(ConsumerId, Joined)>,
    pub(super) claims: Vec<Claim>,
    pub(super) back_offs: Vec<BackOff>,
    /// Its engine, by which those who wait for dead letters know it.
    pub(super) engine: u64,
    pub(super) dead: DeadLetters,
    /// The records of these letters.
    pub(super) dead_letters: Vec<DeadLetterClaim>,
}

/// A transfer that had no room in an outbox: what is to be put into the log.
pub(super) struct LeftTransfer {
    pub(super) groups: Vec<LeaseGroupId>,
    pub(super) unit: Unit,
    pub(super) transfer: Transfer,
}

impl Handover {
    /// `None` when there will be no more.
    pub(super) async fn wait_for_leadership(
        &mut self,
        consensus: &Consensus,
        inbox: &mut Inbox,
    ) -> Option<Leadership> {
        let mut leadership = pin!(consensus.leadership());
        loop {
            tokio::select! {
                biased;
                leadership = &mut leadership => match leadership {
                    Ok(leadership) => return Some(leadership),
                    Err(_) => break,
                },
                _ = consensus.led_elsewhere(), if !self.led_elsewhere => self.give_up(),
                message = inbox.recv() => match message {
                    None | Some(Message::Stop) => return None,
                    Some(message) if self.led_elsewhere => self.refuse(message),
                    Some(message) => self.messages.push_back(message),
                },
            }
        }
        // Consensus is gone. Those who wait for an answer hear that there is no driver.
        self.messages.clear();
        self.groups.clear();
        self.transfers.clear();
        while !matches!(inbox.recv().await, None | Some(Message::Stop)) {}
        None
    }
}

impl Handover {
    /// Another node leads.
    fn give_up(&mut self) {
        self.led_elsewhere = true;
        let why = Unavailable::NotLeader;
        for Users { consumers, mut dead, .. } in std::mem::take(&mut self.groups) {
            dead.fail_waiters(&why);
            for (consumer, joined) in consumers {
                if let Some(session) = self.sessions.get_mut(&joined.session) {
                    session.tell_gone(consumer, GoneReason::LedElsewhere);
                }
            }
        }
        for left in std::mem::take(&mut self.transfers) {
            left.transfer.fail(&why);
        }
        for message in std::mem::take(&mut self.messages) {
            self.refuse(message);
        }
    }

    /// Sessions stay open: this node may lead again before they end.
    fn refuse(&mut self, message: Message) {
        match message {
            Message::Open { .. } => self.messages.push_back(message),
            Message::Close { session: closed } => {
                self.sessions.remove(&closed);
                self.messages.retain(|message| match message {
                    Message::Open { session, .. } => *session != closed,
                    _ => true,
                });
            }
            message => message.refuse(&Unavailable::NotLeader),
        }
    }
}

impl Users {
    /// `None` where nobody uses the group.
    pub(super) fn of(group: &mut Group) -> Option<Self> {
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
