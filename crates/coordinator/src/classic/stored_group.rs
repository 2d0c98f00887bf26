//! The stored form of a classic group. A group is stored when it becomes stable, and during a rebalance when a
//! member leaves: that member's partitions have no consumer, so the next coordinator has to continue the
//! rebalance. A rebalance without a departure changes nothing that is stored.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use world::Instant;

use super::{ClassicGroup, JoinDeadline, Member, Phase, Protocol};
use crate::client::Client;
use crate::stored_fields::{KeptError, Stamp, millis, own};
use crate::{Text, text};

#[derive(Serialize, Deserialize)]
pub(crate) struct ClassicV1<'a> {
    generation: i32,
    protocol_type: Option<&'a str>,
    protocol: Option<&'a str>,
    leader: Option<&'a str>,
    #[serde(borrow)]
    members: Vec<MemberV1<'a>>,
}

#[derive(Serialize, Deserialize)]
struct MemberV1<'a> {
    id: &'a str,
    instance_id: Option<&'a str>,
    client: &'a str,
    host: &'a str,
    session_timeout_ms: u32,
    rebalance_timeout_ms: u32,
    #[serde(borrow)]
    protocols: Vec<(&'a str, &'a [u8])>,
    assignment: &'a [u8],
}

impl Member {
    fn to_keep(&self) -> MemberV1<'_> {
        let protocols = self.protocols.iter().map(|known| (&*known.name, &*known.metadata));
        MemberV1 {
            id: &self.id,
            instance_id: self.instance_id.as_deref(),
            client: &self.client.id,
            host: &self.client.host,
            session_timeout_ms: millis(self.session_timeout),
            rebalance_timeout_ms: millis(self.rebalance_timeout),
            protocols: protocols.collect(),
            assignment: &self.assignment,
        }
    }
}

impl MemberV1<'_> {
    fn restored(&self, now: Instant) -> Member {
        let session_timeout = Duration::from_millis(self.session_timeout_ms.into());
        let protocol = |(name, metadata): &(&str, &[u8])| Protocol {
            name: text(name),
            metadata: Bytes::copy_from_slice(metadata),
        };
        Member {
            id: text(self.id),
            instance_id: own(self.instance_id),
            client: Client { id: text(self.client), host: text(self.host) },
            session_timeout,
            rebalance_timeout: Duration::from_millis(self.rebalance_timeout_ms.into()),
            protocols: self.protocols.iter().map(protocol).collect(),
            assignment: Bytes::copy_from_slice(self.assignment),
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            owes_sync: false,
            heartbeat_deadline: Some(now + session_timeout),
        }
    }
}

impl ClassicGroup {
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match self.phase {
            Phase::Empty => Some(Stamp::Nothing),
            Phase::CompletingRebalance => None,
            Phase::PreparingRebalance if !self.has_lost_members => None,
            Phase::PreparingRebalance if self.members.values().all(|member| member.is_new) => {
                Some(Stamp::Nothing)
            }
            Phase::PreparingRebalance | Phase::Stable => {
                Some(Stamp::Of(u64::from(self.generation as u32) << 32 | u64::from(self.revision)))
            }
        }
    }

    /// New members, which were in no generation yet, are not stored: they have to rejoin at the next coordinator.
    pub(crate) fn to_keep(&self) -> ClassicV1<'_> {
        let known = self.members.values().filter(|member| !member.is_new);
        ClassicV1 {
            generation: self.generation,
            protocol_type: self.protocol_type.as_deref(),
            protocol: self.protocol.as_deref(),
            leader: self.leader.as_deref(),
            members: known.map(Member::to_keep).collect(),
        }
    }
}

impl ClassicV1<'_> {
    /// Restores a group that was stable.
    pub(crate) fn stable(&self, name: Text, now: Instant) -> Result<ClassicGroup, KeptError> {
        let mut group = self.restored(name, now)?;
        let is_known_to_all =
            |protocol: &str| group.supporters.get(protocol) == Some(&group.members.len());
        if !self.leader.is_some_and(|leader| group.members.contains_key(leader))
            || !self.protocol.is_some_and(is_known_to_all)
        {
            return Err(KeptError::Inconsistent("it is no group that was stable"));
        }
        group.phase = Phase::Stable;
        Ok(group)
    }

    /// Restores a group in a rebalance: a member had left it, and the others have to rejoin.
    pub(crate) fn rebalancing(&self, name: Text, now: Instant) -> Result<ClassicGroup, KeptError> {
        let mut group = self.restored(name, now)?;
        if group.members.is_empty() {
            return Err(KeptError::Inconsistent("it has no members"));
        }
        group.phase = Phase::PreparingRebalance;
        group.has_lost_members = true;
        group.await_joins(JoinDeadline::Rebalance(now + group.rebalance_timeout()));
        Ok(group)
    }

    fn restored(&self, name: Text, now: Instant) -> Result<ClassicGroup, KeptError> {
        let mut group = ClassicGroup::new(name);
        for kept in &self.members {
            let member = kept.restored(now);
            let is_known = group.members.contains_key(&member.id)
                || kept.instance_id.is_some_and(|instance| group.instances.contains_key(instance));
            if is_known {
                return Err(KeptError::Inconsistent("two members are the same"));
            }
            group.check_by(now + member.session_timeout);
            group.insert(member);
        }
        group.protocol_type = own(self.protocol_type);
        group.protocol = own(self.protocol);
        group.leader = own(self.leader);
        if self.generation < 1 || self.protocol_type.is_none_or(str::is_empty) {
            return Err(KeptError::Inconsistent("it is no group that has had a generation"));
        }
        group.generation = self.generation;
        group.subscribed = group.subscribed_topics();
        Ok(group)
    }
}
