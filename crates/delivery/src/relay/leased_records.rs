//! Leases of this node's sessions while another node leads. They are presented to the next leader, so that a
//! change of leaders takes no lease from a connected consumer.
//!
//! A lease is kept here from the arrival of its delivery until the leader has replied to its end. The outcome
//! at a leader that is gone may be unknown, so the lease is presented to the next one, and its end is repeated
//! there. A transfer is not repeated: its leases are dropped when it is sent.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{HashMap, LeaseGroupId, Offset};
use dispatch::{Claim, Selection, SessionId, Settlement, Token};
use machine::ALL_PARTITIONS;
use shard::delivery::event::Delivery;
use shard::delivery::options::Settle;

use super::items::RelayCommand;

#[derive(Debug, Default)]
pub(super) struct LeasedRecords {
    of_sessions: HashMap<SessionId, SessionLeases>,
}

#[derive(Debug, Default)]
struct SessionLeases {
    by_place: BTreeMap<(LeaseGroupId, u32, Offset), Lease>,
    by_token: HashMap<(LeaseGroupId, u32, Token), Offset>,
}

/// Settles that each name one lease.
#[derive(Debug, Default)]
pub(super) struct LeaseSettles {
    pub(super) settles: Vec<Settle>,
    /// Number of settles that each of the original ones became.
    pub(super) counts: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    claim: Claim,
    /// Duration for a renewal without one; `i64::MAX`: until the session ends.
    lasts_ms: i64,
}

impl SessionLeases {
    /// The newer of two leases of a record counts. The older one has ended, and need not be presented.
    fn insert(&mut self, group: LeaseGroupId, claim: Claim, now_ms: i64) {
        let (partition, offset) = claim.place();
        let known = self.by_place.get(&(group, partition, offset));
        if known.is_some_and(|known| known.claim.token() > claim.token()) {
            return;
        }
        let lasts_ms = match claim.deadline_ms() {
            i64::MAX => i64::MAX,
            deadline_ms => deadline_ms.saturating_sub(now_ms),
        };
        let former = self.by_place.insert((group, partition, offset), Lease { claim, lasts_ms });
        if let Some(former) = former {
            self.by_token.remove(&(group, partition, former.claim.token()));
        }
        self.by_token.insert((group, partition, claim.token()), offset);
    }

    /// The places that the settle selects, in this session.
    fn places(&self, settle: &Settle) -> Vec<(LeaseGroupId, u32, Offset)> {
        let group = settle.group;
        let between = |partition, first, last: Offset| {
            let range = (
                Bound::Included((group, partition, first)),
                Bound::Included((group, partition, last)),
            );
            self.by_place.range(range).map(|(place, _)| *place).collect()
        };
        match settle.what {
            Selection::Lease { partition, token } | Selection::Held { partition, token, .. } => {
                let offset = self.by_token.get(&(group, partition, token));
                offset.map(|offset| (group, partition, *offset)).into_iter().collect()
            }
            Selection::Range { first, last, .. } if first > last => Vec::new(),
            Selection::Range { partition, first, last } => between(partition, first, last),
            Selection::UpTo { partition, last } => between(partition, 0, last),
        }
    }

    fn remove(&mut self, place: (LeaseGroupId, u32, Offset)) {
        if let Some(lease) = self.by_place.remove(&place) {
            let (group, partition, _) = place;
            self.by_token.remove(&(group, partition, lease.claim.token()));
        }
    }

    fn retain(&mut self, keep: impl Fn(LeaseGroupId, &Lease) -> bool) {
        let Self { by_place, by_token } = self;
        by_place.retain(|(group, partition, _), lease| {
            let kept = keep(*group, lease);
            if !kept {
                by_token.remove(&(*group, *partition, lease.claim.token()));
            }
            kept
        });
    }
}

impl LeasedRecords {
    /// Adds a lease that a former driver of this node left.
    pub(super) fn insert(&mut self, group: LeaseGroupId, claim: Claim, now_ms: i64) {
        self.of_sessions.entry(claim.session()).or_default().insert(group, claim, now_ms);
    }

    /// The deliveries have arrived here.
    pub(super) fn on_deliveries(
        &mut self,
        session: SessionId,
        deliveries: &[Delivery],
        now_ms: i64,
    ) {
        let claims = deliveries
            .iter()
            .filter_map(|delivery| Some((delivery.group, delivery.claim(session)?)));
        for (group, claim) in claims {
            self.insert(group, claim, now_ms);
        }
    }

    /// The message is being sent to the leader.
    pub(super) fn on_sent(&mut self, command: &RelayCommand, now_ms: i64) {
        match command {
            // It is never repeated.
            RelayCommand::Settle { id: None, session, settles } => self.ended(*session, settles),
            RelayCommand::Transfer { session, settles, .. }
            | RelayCommand::TransferWith { session, settles, .. }
            | RelayCommand::Withhold { session, settles, .. } => self.ended(*session, settles),
            RelayCommand::Settle { session, settles, .. } => {
                self.settling(*session, settles, now_ms)
            }
            _ => {}
        }
    }

    fn settling(&mut self, session: SessionId, settles: &[Settle], now_ms: i64) {
        for settle in settles {
            match settle.settlement {
                Settlement::Renew { lease_ms } => self.renew(session, settle, lease_ms, now_ms),
                Settlement::Accept | Settlement::Release { .. } | Settlement::Reject => {}
            }
        }
    }

    /// The same settles with a selection for each lease, since a range may cover newer leases when it is
    /// repeated; with the number that each of them became. `None`: all of them name leases.
    pub(super) fn named(&self, session: SessionId, settles: &[Settle]) -> Option<LeaseSettles> {
        let names = |settle: &Settle| {
            matches!(settle.what, Selection::Lease { .. } | Selection::Held { .. })
                || matches!(settle.settlement, Settlement::Renew { .. })
        };
        if settles.iter().all(names) {
            return None;
        }
        let of_session = self.of_sessions.get(&session);
        let mut named = LeaseSettles::default();
        for settle in settles {
            if names(settle) {
                named.settles.push(*settle);
                named.counts.push(1);
                continue;
            }
            let places = of_session.map(|it| it.places(settle)).unwrap_or_default();
            let leases = places.iter().filter_map(|place| of_session?.by_place.get(place));
            let before = named.settles.len();
            named.settles.extend(leases.map(|lease| {
                let (partition, token) = (lease.claim.place().0, lease.claim.token());
                Settle { what: Selection::Lease { partition, token }, ..*settle }
            }));
            named.counts.push((named.settles.len() - before) as u32);
        }
        Some(named)
    }

    /// The leader has replied, or there will be no repetition: in either case the leases have ended.
    pub(super) fn ended(&mut self, session: SessionId, settles: &[Settle]) {
        for settle in settles {
            if !matches!(settle.settlement, Settlement::Renew { .. }) {
                self.remove(session, settle);
            }
        }
    }

    fn remove(&mut self, session: SessionId, settle: &Settle) {
        let Some(of_session) = self.of_sessions.get_mut(&holder(session, settle)) else { return };
        for place in of_session.places(settle) {
            of_session.remove(place);
        }
        if of_session.by_place.is_empty() {
            self.of_sessions.remove(&holder(session, settle));
        }
    }

    fn renew(&mut self, session: SessionId, settle: &Settle, lease_ms: Option<i64>, now_ms: i64) {
        let Some(of_session) = self.of_sessions.get_mut(&holder(session, settle)) else { return };
        for place in of_session.places(settle) {
            let Some(lease) = of_session.by_place.get_mut(&place) else { continue };
            let deadline_ms = match lease_ms.unwrap_or(lease.lasts_ms) {
                ..=0 | i64::MAX => i64::MAX,
                lasts_ms => now_ms.saturating_add(lasts_ms),
            };
            lease.claim = lease.claim.until(deadline_ms);
        }
    }

    pub(super) fn close(&mut self, session: SessionId) {
        self.of_sessions.remove(&session);
    }

    /// The group is gone, or a partition ([`ALL_PARTITIONS`]: all) was sought.
    pub(super) fn forget(&mut self, moved: LeaseGroupId, partition: u32) {
        self.retain(|group, lease| {
            let is_of = partition == ALL_PARTITIONS || lease.claim.place().0 == partition;
            group != moved || !is_of
        });
    }

    /// Drops expired leases.
    pub(super) fn expire(&mut self, now_ms: i64) {
        self.retain(|_, lease| lease.claim.deadline_ms() > now_ms);
    }

    fn retain(&mut self, keep: impl Fn(LeaseGroupId, &Lease) -> bool) {
        self.of_sessions.retain(|_, of_session| {
            of_session.retain(&keep);
            !of_session.by_place.is_empty()
        });
    }

    /// A session's leases, by group, partition and offset.
    pub(super) fn claims_of(
        &self,
        session: SessionId,
    ) -> impl Iterator<Item = (LeaseGroupId, Claim)> + '_ {
        let of_session = self.of_sessions.get(&session).into_iter();
        of_session
            .flat_map(|it| it.by_place.iter().map(|((group, ..), lease)| (*group, lease.claim)))
    }

    /// All leases.
    pub(super) fn into_claims(self) -> Vec<(LeaseGroupId, Claim)> {
        let of_sessions = self.of_sessions.into_values();
        of_sessions
            .flat_map(|it| it.by_place)
            .map(|((group, ..), lease)| (group, lease.claim))
            .collect()
    }
}

/// The session that holds the lease, which may differ from the one that settles it.
fn holder(session: SessionId, settle: &Settle) -> SessionId {
    match settle.what {
        Selection::Held { session: holder, .. } => holder,
        _ => session,
    }
}
