//! The initial messages to a leader: sessions, consumers, leases, and pending requests.

use crate::limits::LEASES_PRESENTED_TOGETHER;
use dispatch::{Claim, SessionId};

use super::Relay;
use super::items::{AskId, RelayCommand};
use super::relay_queue::{OutboundItem, RelayQueue};

impl Relay {
    /// Queues the sessions and consumers of this node, and its pending requests.
    pub(super) fn introduce(&mut self, line: &mut RelayQueue) {
        let mut ids: Vec<SessionId> = self.roster.sessions.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            line.queue.push_back(OutboundItem::Said(RelayCommand::Open { session: id }));
            let Some(session) = self.roster.sessions.get(&id) else { continue };
            if session.limit.is_some() {
                let said = RelayCommand::Limit { session: id, records: session.limit };
                line.queue.push_back(OutboundItem::Said(said));
            }
            self.lend(id, None, line);
        }
        let unanswered: Vec<AskId> = self.waiters.all.keys().copied().collect();
        for consumer in self.roster.in_order() {
            let out = self.joining(consumer);
            line.queue.extend(out);
            if let Some(member) = self.roster.member(consumer) {
                self.lend(member.session, Some(consumer), line);
            }
        }
        self.present(line);
        line.queue.extend(unanswered.into_iter().map(OutboundItem::Ask));
    }

    /// Queues the leases of sessions here.
    fn present(&self, line: &mut RelayQueue) {
        let now_ms = self.ground.timeline.now_ms();
        let mut ids: Vec<SessionId> = self.roster.sessions.keys().copied().collect();
        ids.sort_unstable();
        for session in ids {
            let held = self.held.claims_of(session);
            let held: Vec<_> = held.filter(|(_, claim)| claim.deadline_ms() > now_ms).collect();
            for of_group in held.chunk_by(|(one, _), (next, _)| one == next) {
                for some in of_group.chunks(LEASES_PRESENTED_TOGETHER) {
                    let left = |(_, claim): &(_, Claim)| claim.shifted(now_ms.saturating_neg());
                    let claims = some.iter().map(left).collect();
                    let said = RelayCommand::Present { session, group: of_group[0].0, claims };
                    line.queue.push_back(OutboundItem::Said(said));
                }
            }
        }
        line.queue.push_back(OutboundItem::Said(RelayCommand::Presented));
    }
}
