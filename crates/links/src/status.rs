//! The status of a link: fail-over reads it for proof that a node is dead.

use crate::limits::LINK_UNANSWERED_AFTER;
use world::Instant;

use crate::end::{ConnectError, ConnectionEnd};
use crate::identity::Identity;

/// One lane to one peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub phase: Phase,
    /// The end of the last established connection.
    pub last: Option<EndedConnection>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// The lane was not requested yet. The control lane is never idle.
    #[default]
    Idle,
    Connecting {
        since: Instant,
    },
    Connected {
        since: Instant,
        peer: Identity,
    },
    /// The last attempt failed. The next one is at `until`, or at once if the address changes.
    Waiting {
        until: Instant,
        error: ConnectError,
    },
    /// This node stops.
    Closed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedConnection {
    pub end: ConnectionEnd,
    pub at: Instant,
    /// The run of the peer that the connection led to.
    pub peer: Identity,
}

/// Evidence that the process at the other end is gone. It counts once a majority of voters has evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeathEvidence {
    /// It closed the connection, and its address refuses new ones.
    NobodyListens,
    /// It closed the connection, and does not accept a new one for [`LINK_UNANSWERED_AFTER`].
    Unanswered,
    /// Its node was restarted since.
    NewBoot,
}

impl Status {
    /// Whether the peer's last connected process looks gone: the peer or its system closed the connection, and a
    /// new connection fails. Silence is no evidence.
    pub fn sign_of_death(&self, now: Instant) -> Option<DeathEvidence> {
        let last = self.last.as_ref()?;
        match &self.phase {
            Phase::Connected { peer, .. } => {
                (peer.at.boot > last.peer.at.boot).then_some(DeathEvidence::NewBoot)
            }
            _ if !last.end.is_by_peer() => None,
            Phase::Connecting { since } => {
                let unanswered = now.saturating_duration_since(*since);
                (unanswered >= LINK_UNANSWERED_AFTER).then_some(DeathEvidence::Unanswered)
            }
            Phase::Waiting { error: ConnectError::NobodyListens, .. } => {
                Some(DeathEvidence::NobodyListens)
            }
            Phase::Waiting {
                error: ConnectError::Unreachable(_) | ConnectError::Unanswered,
                ..
            } => Some(DeathEvidence::Unanswered),
            _ => None,
        }
    }

    /// Whether the peer's process of this boot looks gone, or was replaced by a later one.
    pub fn looks_gone(&self, boot: u64, now: Instant) -> bool {
        if let Phase::Connected { peer, .. } = &self.phase {
            return peer.at.boot > boot;
        }
        self.last.as_ref().is_some_and(|last| {
            let last = last.peer.at.boot;
            last > boot || (last == boot && self.sign_of_death(now).is_some())
        })
    }

    /// The boot of the process that the link leads to.
    pub fn connected_boot(&self) -> Option<u64> {
        match &self.phase {
            Phase::Connected { peer, .. } => Some(peer.at.boot),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::identity::DirectoryIdentity;
    use crate::node_id::NodeId;

    fn run(boot: u64) -> Identity {
        let (cluster, directory) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let at = DirectoryIdentity { cluster, node: NodeId(1), directory, boot, epoch: 0 };
        Identity { at, run: Uuid::from_u128(boot.into()), levels: base::Levels::OURS }
    }

    #[test]
    fn restarted_process_looks_gone_in_its_earlier_boots_only() {
        let now = Instant::now();
        let last = Some(EndedConnection { end: ConnectionEnd::Closed, at: now, peer: run(1) });
        let phase = Phase::Connected { since: now, peer: run(2) };
        let again = Status { phase, last };
        assert!(again.looks_gone(1, now) && !again.looks_gone(2, now));
        assert_eq!(again.connected_boot(), Some(2));

        let last = Some(EndedConnection { end: ConnectionEnd::Closed, at: now, peer: run(2) });
        let phase = Phase::Waiting { until: now, error: ConnectError::NobodyListens };
        let gone = Status { phase, last };
        assert!(gone.looks_gone(1, now) && gone.looks_gone(2, now));
        // This node has never seen that process.
        assert!(!gone.looks_gone(3, now));
        assert_eq!(gone.connected_boot(), None);
    }

    #[test]
    fn process_looks_gone_after_it_closed_and_reconnecting_fails() {
        let now = Instant::now();
        let later = now + Duration::from_millis(150);
        let sign = |end: &ConnectionEnd, phase: Phase| {
            let last = Some(EndedConnection { end: end.clone(), at: now, peer: run(1) });
            Status { phase, last }.sign_of_death(later)
        };
        let waiting = |error| Phase::Waiting { until: later, error };
        let refused = || waiting(ConnectError::NobodyListens);
        let reset = ConnectionEnd::Broken(ErrorKind::ConnectionReset);
        for end in [ConnectionEnd::Closed, ConnectionEnd::Left, reset] {
            assert_eq!(sign(&end, refused()), Some(DeathEvidence::NobodyListens));
            let connecting = Phase::Connecting { since: now };
            assert_eq!(sign(&end, connecting), Some(DeathEvidence::Unanswered));
            assert_eq!(sign(&end, Phase::Connecting { since: later }), None);
            let connected = |peer| Phase::Connected { since: later, peer };
            assert_eq!(sign(&end, connected(run(1))), None);
            assert_eq!(sign(&end, connected(run(2))), Some(DeathEvidence::NewBoot));
        }
        // The network may be cut, or this node may have closed it.
        for end in [
            ConnectionEnd::Silent,
            ConnectionEnd::Here,
            ConnectionEnd::Stalled,
            ConnectionEnd::Broken(ErrorKind::TimedOut),
        ] {
            assert_eq!(sign(&end, refused()), None);
        }
        assert_eq!(Status { phase: refused(), last: None }.sign_of_death(later), None);
    }
}
