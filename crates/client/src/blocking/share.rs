//! A member of a share group (KIP-932) for a checker, which knows for every settle whether the broker confirmed it.
//! It has no coordinator: its caller names the partitions to fetch, so that after a restart of the broker it only has
//! to reconnect.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use uuid::Uuid;

use super::{Connection, FETCH_BYTES};
use crate::error::{CallError, accepted};
use crate::share::session::{SHARE_ACKNOWLEDGE, SHARE_FETCH, acknowledged, leased};
use crate::share::{LeasedRecord, Settle, ShareLimits, SharePartition, ShareSession};

/// One member with its share session, on its own connection.
#[derive(Debug)]
pub struct ShareMember {
    connection: Connection,
    session: ShareSession,
    /// In the order in which they were named.
    topics: Vec<Uuid>,
    partitions: BTreeSet<SharePartition>,
}

impl ShareMember {
    /// Connects and looks up the topics; all their partitions are fetched. The group must already have its position
    /// in each topic. `member` is its random id within the group.
    pub fn open(
        address: SocketAddr,
        patience: Duration,
        group: &str,
        topics: &[String],
        member: Uuid,
    ) -> Result<ShareMember, CallError> {
        Self::over(Connection::open(address, patience)?, group, topics, member)
    }

    /// The same on an existing connection.
    pub fn over(
        mut connection: Connection,
        group: &str,
        topics: &[String],
        member: Uuid,
    ) -> Result<ShareMember, CallError> {
        let metadata = connection.metadata(topics)?;
        let (mut ids, mut partitions) = (Vec::with_capacity(topics.len()), BTreeSet::new());
        for topic in topics {
            let named = |name: &str| name == topic;
            let mut known = metadata.topics.iter();
            let known = known.find(|it| it.name.as_ref().is_some_and(|name| named(&name.0)));
            let known = known.ok_or_else(|| CallError::Unfitting {
                api: ApiKey::Metadata.into(),
                reason: format!("topic {topic} was not described"),
            })?;
            accepted(known.error_code, None, || format!("metadata of topic {topic}"))?;
            let topic = known.topic_id;
            ids.push(topic);
            let indexes = known.partitions.iter().map(|it| it.partition_index);
            partitions.extend(indexes.map(|partition| SharePartition { topic, partition }));
        }
        let session = ShareSession::new(group, member);
        Ok(ShareMember { connection, session, topics: ids, partitions })
    }

    /// The topic's index in the list that the member was created with.
    pub fn place_of(&self, topic: Uuid) -> Option<usize> {
        self.topics.iter().position(|known| *known == topic)
    }

    /// Leases up to `records_max` records, and waits up to `wait` for the first. `settles` are settled before; all of
    /// them are confirmed when this returns without an error.
    pub fn fetch(
        &mut self,
        records_max: usize,
        wait: Duration,
        settles: &[Settle],
    ) -> Result<Vec<LeasedRecord>, CallError> {
        let limits = ShareLimits { records_max, bytes_max: FETCH_BYTES, wait };
        let request = self.session.fetch(&self.partitions, limits, settles);
        leased(self.connection.call(SHARE_FETCH, &request)?)
    }

    /// Settles records. All are confirmed when this returns without an error.
    pub fn acknowledge(&mut self, settles: &[Settle]) -> Result<(), CallError> {
        let request = self.session.acknowledge(settles);
        acknowledged(&self.connection.call(SHARE_ACKNOWLEDGE, &request)?)
    }
}
