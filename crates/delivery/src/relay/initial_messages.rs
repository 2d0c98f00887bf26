//! The initial messages to a leader: sessions, consumers, leases, and pending requests.

use crate::limits::LEASES_PRESENTED_TOGETHER;
use dispatch::{Claim, SessionId};

use super::Relay;
use super::items::{RelayCommand, RequestId};
use super::relay_queue::{OutboundItem, RelayQueue};

impl Relay {
    /// Queues the sessions and consumers of this node, and its pending requests.
    pub(super) fn queue_initial_messages(&mut self, queue: &mut RelayQueue) {
        let mut ids: Vec<SessionId> = self.registry.sessions.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            queue.outbound.push_back(OutboundItem::Command(RelayCommand::Open { session: id }));
            let Some(session) = self.registry.sessions.get(&id) else { continue };
            if session.limit.is_some() {
                let command = RelayCommand::Limit { session: id, records: session.limit };
                queue.outbound.push_back(OutboundItem::Command(command));
            }
            self.lend(id, None, queue);
        }
        let unanswered: Vec<RequestId> = self.waiters.all.keys().copied().collect();
        for consumer in self.registry.in_order() {
            let out = self.joining(consumer);
            queue.outbound.extend(out);
            if let Some(member) = self.registry.member(consumer) {
                self.lend(member.session, Some(consumer), queue);
            }
        }
        self.present(queue);
        queue.outbound.extend(unanswered.into_iter().map(OutboundItem::Request));
    }

    /// Queues the leases of sessions here.
    fn present(&self, queue: &mut RelayQueue) {
        let now_ms = self.context.timeline.now_ms();
        let mut ids: Vec<SessionId> = self.registry.sessions.keys().copied().collect();
        ids.sort_unstable();
        for session in ids {
            let claims = self.leases.claims_of(session);
            let claims: Vec<_> = claims.filter(|(_, claim)| claim.deadline_ms() > now_ms).collect();
            for of_group in claims.chunk_by(|(one, _), (next, _)| one == next) {
                for some in of_group.chunks(LEASES_PRESENTED_TOGETHER) {
                    let left = |(_, claim): &(_, Claim)| claim.shifted(now_ms.saturating_neg());
                    let claims = some.iter().map(left).collect();
                    let command = RelayCommand::Present { session, group: of_group[0].0, claims };
                    queue.outbound.push_back(OutboundItem::Command(command));
                }
            }
        }
        queue.outbound.push_back(OutboundItem::Command(RelayCommand::Presented));
    }
}
