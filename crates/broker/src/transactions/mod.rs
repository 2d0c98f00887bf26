//! Transactions of Kafka's producers: the requests of a coordinator, for gateways.
//!
//! The home of a transactional id is a shard, whose leader coordinates the id's transactions. The shard of a partition,
//! or of a group, takes part once the home has it in the transaction. `machine::rows::transactions` has the rules.

use std::time::Duration;

use base::{Level, PartitionId, ShardId};
use machine::rows::transactions::ids::TransactionPhase;
use machine::{
    Command, CommitOffset, EndCause, Outcome, ProducerKey, Refusal, TransactionCommand,
    TransactionRefusal,
};
use shard::LocalShard;
use shard::error::{ExecuteError, Unavailable};
use tokio::time::{Instant, sleep, timeout};

use crate::broker::Broker;

mod listing;

pub use listing::{KnownTransaction, TransactionState};

/// Time for a request to be repeated while something of the producer is still in flight.
const REPEATED_WITHIN: Duration = Duration::from_secs(2);
const REPEAT_DELAY: Duration = Duration::from_millis(2);
/// Time in which the other shards usually have an end. Beyond it the request is answered all the same: the decision
/// stands.
const ENDED_EVERYWHERE_WITHIN: Duration = Duration::from_secs(1);

impl Broker {
    /// Whether the cluster has reached the feature level of transactions.
    pub fn has_transactions(&self) -> bool {
        self.level().now() >= Level::TRANSACTIONS
    }

    /// Returns the node that coordinates the transactions of an id, if it is known.
    pub fn transaction_coordinator(&self, id: &str) -> Option<u32> {
        self.coordinator(id)
    }

    /// Returns the next producer of a transactional id, and ends a transaction that is open (InitProducerId).
    pub async fn initialize_producer(
        &self,
        id: &str,
        expect: Option<ProducerKey>,
        timeout_ms: u32,
    ) -> Result<ProducerKey, ExecuteError> {
        let home = self.coordinating(id)?;
        let mut fresh = -1;
        let begun = Instant::now();
        loop {
            let id = id.to_owned();
            let initialize =
                TransactionCommand::Initialize { id: id.clone(), expect, fresh, timeout_ms };
            let refusal = match self.execute_transaction(home, initialize).await {
                Ok(Outcome::Producer { producer }) => {
                    self.ended_everywhere(home, &id).await;
                    return Ok(producer);
                }
                Err(ExecuteError::Refused(Refusal::Transaction(refusal))) => refusal,
                other => return Err(unexpected(other)),
            };
            let refusal = match refusal {
                TransactionRefusal::Concurrent => {
                    let cause = EndCause::Initialized { expect, timeout_ms };
                    let producer = ProducerKey { id: -1, epoch: -1 };
                    match self.decide(home, &id, producer, false, cause).await {
                        Err(ExecuteError::Refused(Refusal::Transaction(refusal))) => refusal,
                        ended => return ended,
                    }
                }
                other => other,
            };
            match refusal {
                TransactionRefusal::NeedsProducerId => {
                    fresh = self.allocate_producer_id().await?.id;
                }
                // Another request has ended it meanwhile, or is about to.
                TransactionRefusal::InvalidState | TransactionRefusal::Concurrent
                    if begun.elapsed() < REPEATED_WITHIN => {}
                refusal => return Err(ExecuteError::Refused(refusal.into())),
            }
        }
    }

    /// Registers partitions, and begins the transaction (AddPartitionsToTxn).
    pub async fn add_partitions(
        &self,
        id: &str,
        producer: ProducerKey,
        added: Vec<PartitionId>,
    ) -> Result<(), ExecuteError> {
        let home = self.coordinating(id)?;
        let (id, shard, requires) = (id.to_owned(), None, None);
        let join = TransactionCommand::Join { id, producer, shard, added, requires };
        self.execute_transaction(home, join).await.map(drop)
    }

    /// Whether a partition is registered in the producer's open transaction (AddPartitionsToTxn, `verify_only`).
    pub fn is_registered(
        &self,
        id: &str,
        producer: ProducerKey,
        partition: PartitionId,
    ) -> Result<bool, ExecuteError> {
        let home = self.coordinating(id)?;
        let rows = home.shard.rows();
        let known = rows.transactions().ids().get(id).filter(|it| it.producer == producer);
        let open = known.and_then(|it| it.ongoing());
        Ok(open.is_some_and(|open| open.added.contains(&partition)))
    }

    /// Adds a group's home to the transaction (AddOffsetsToTxn).
    pub async fn add_offsets(
        &self,
        id: &str,
        producer: ProducerKey,
        group: &str,
    ) -> Result<(), ExecuteError> {
        self.coordinating(id)?;
        let shard = self.home_of(group).id();
        let home = self.home_of(id);
        let (id, added, requires) = (id.to_owned(), vec![offsets_of(shard)], None);
        let shard = Some(shard);
        let join = TransactionCommand::Join { id, producer, shard, added, requires };
        self.execute_transaction(home, join).await.map(drop)
    }

    /// Opens the producer's transaction in a partition's shard, which this node leads, if it is not open there.
    /// `is_registered`: the client registers partitions first, so that only a registered one may be written.
    pub async fn open_transaction(
        &self,
        id: &str,
        producer: ProducerKey,
        partition: PartitionId,
        is_registered: bool,
    ) -> Result<(), ExecuteError> {
        let requires = is_registered.then_some(partition);
        self.open_in(self.shard_of(partition), id, producer, requires).await
    }

    /// Whether [`Self::open_transaction`] has nothing to do, as this node knows.
    pub fn is_transaction_open(
        &self,
        producer: ProducerKey,
        partition: PartitionId,
        is_registered: bool,
    ) -> bool {
        let rows = self.shard_of(partition).shard.rows();
        let known = rows.transactions().participation(producer.id);
        known.is_some_and(|it| {
            it.is_open
                && it.epoch == producer.epoch
                && (!is_registered || it.partitions.contains(&partition))
        })
    }

    /// Adds offsets that the end of the transaction commits (TxnOffsetCommit). Returns those that were rejected.
    /// `is_registered`: the client adds the group first, by [`Self::add_offsets`].
    pub async fn add_pending_offsets(
        &self,
        id: &str,
        producer: ProducerKey,
        group: &str,
        offsets: Vec<CommitOffset>,
        is_registered: bool,
    ) -> Result<Vec<(PartitionId, Refusal)>, ExecuteError> {
        let shard = self.home_of(group);
        let requires = is_registered.then(|| offsets_of(shard.id()));
        self.open_in(shard, id, producer, requires).await?;
        let group = group.to_owned();
        let pending = TransactionCommand::Pending { producer, group, offsets };
        match self.execute_transaction(shard, pending).await? {
            Outcome::Committed { refused } => Ok(refused),
            other => Err(unexpected(Ok(other))),
        }
    }

    /// Whether an open transaction may change a group's offset of a partition, as the group's home on this node knows.
    pub fn has_pending_offset(&self, group: &str, partition: PartitionId) -> bool {
        let rows = self.home_of(group).shard.rows();
        rows.transactions().participations().has_pending(group, partition)
    }

    /// Ends a transaction (EndTxn). Returns the producer from now on: with `changes_epoch` it has the next epoch.
    pub async fn end_transaction(
        &self,
        id: &str,
        producer: ProducerKey,
        commit: bool,
        changes_epoch: bool,
    ) -> Result<ProducerKey, ExecuteError> {
        let home = self.coordinating(id)?;
        let cause = match changes_epoch {
            true => EndCause::ClientWithNextEpoch,
            false => EndCause::Client,
        };
        match self.decide(home, id, producer, commit, cause).await {
            Err(ExecuteError::Refused(Refusal::Transaction(TransactionRefusal::Ended {
                commit: ended_by_commit,
                producer,
            }))) if ended_by_commit == commit => {
                self.ended_everywhere(home, id).await;
                Ok(producer)
            }
            ended => ended,
        }
    }

    /// Returns the id's home if this node leads it and has applied all that was acknowledged.
    fn coordinating(&self, id: &str) -> Result<&LocalShard, ExecuteError> {
        let home = self.home_of(id);
        match home.serves_in() {
            Some(_) => Ok(home),
            None => Err(Unavailable::NotLeader.into()),
        }
    }

    async fn open_in(
        &self,
        shard: &LocalShard,
        id: &str,
        producer: ProducerKey,
        requires: Option<PartitionId>,
    ) -> Result<(), ExecuteError> {
        let begun = Instant::now();
        loop {
            let opened = self.try_open_in(shard, id, producer, requires).await;
            match opened {
                Err(ExecuteError::Refused(Refusal::Transaction(
                    TransactionRefusal::Concurrent,
                ))) if begun.elapsed() < REPEATED_WITHIN => {
                    sleep(REPEAT_DELAY).await;
                }
                opened => return opened,
            }
        }
    }

    async fn try_open_in(
        &self,
        shard: &LocalShard,
        id: &str,
        producer: ProducerKey,
        requires: Option<PartitionId>,
    ) -> Result<(), ExecuteError> {
        let home = self.home_of(id);
        let (id, added) = (id.to_owned(), Vec::new());
        let to = Some(shard.id());
        let join = TransactionCommand::Join { id, producer, shard: to, added, requires };
        let number = match self.execute_transaction(home, join).await? {
            Outcome::Joined { number } => number,
            other => return Err(unexpected(Ok(other))),
        };
        if home.id() != shard.id() {
            let open = TransactionCommand::Open { producer, number, home: home.id() };
            self.execute_transaction(shard, open).await?;
        }
        Ok(())
    }

    /// Ends the id's open transaction, and waits until the other shards have the end.
    async fn decide(
        &self,
        home: &LocalShard,
        id: &str,
        producer: ProducerKey,
        commit: bool,
        cause: EndCause,
    ) -> Result<ProducerKey, ExecuteError> {
        let mut fresh = -1;
        let begun = Instant::now();
        loop {
            let end = TransactionCommand::End { id: id.to_owned(), producer, commit, cause, fresh };
            match self.execute_transaction(home, end).await {
                Ok(Outcome::Producer { producer }) => {
                    self.ended_everywhere(home, id).await;
                    return Ok(producer);
                }
                Err(ExecuteError::Refused(Refusal::Transaction(
                    TransactionRefusal::NeedsProducerId,
                ))) => fresh = self.allocate_producer_id().await?.id,
                // Something of the producer is in flight, or a shard has just joined.
                Err(ExecuteError::Refused(
                    Refusal::Transaction(TransactionRefusal::Markers) | Refusal::OutboxFull { .. },
                )) if begun.elapsed() < REPEATED_WITHIN => sleep(REPEAT_DELAY).await,
                Err(ExecuteError::Refused(Refusal::UnitRefused | Refusal::OutboxFull { .. })) => {
                    return Err(ExecuteError::Refused(TransactionRefusal::Concurrent.into()));
                }
                other => return Err(unexpected(other)),
            }
        }
    }

    /// Waits, for a while, until the other shards have the end of the id's last transaction.
    async fn ended_everywhere(&self, home: &LocalShard, id: &str) {
        let messages = {
            let rows = home.shard.rows();
            let phase = rows.transactions().ids().get(id).map(|it| &it.phase);
            let Some(TransactionPhase::Ended(ended)) = phase else { return };
            let messages = ended.messages.iter().copied();
            messages.filter(|message| listing::is_missing(&rows, *message)).collect::<Vec<_>>()
        };
        let outgoing = &home.shard.outgoing;
        let arrived = async {
            for (to, number) in messages {
                outgoing.arrived(to, number).await;
            }
        };
        let _ = timeout(ENDED_EVERYWHERE_WITHIN, arrived).await;
    }

    async fn execute_transaction(
        &self,
        shard: &LocalShard,
        command: TransactionCommand,
    ) -> Result<Outcome, ExecuteError> {
        let (needed, at) = (Level::TRANSACTIONS, self.level().now());
        if at < needed {
            return Err(ExecuteError::Refused(Refusal::LevelTooLow { needed, at }));
        }
        self.execute_in(shard, Command::Transaction(command)).await
    }
}

/// Stands for the offsets of a shard's groups among the registered partitions.
fn offsets_of(shard: ShardId) -> PartitionId {
    PartitionId::channel_to(shard)
}

/// The machine answers each command with the outcome of its kind.
fn unexpected(other: Result<Outcome, ExecuteError>) -> ExecuteError {
    match other {
        Err(error) => error,
        Ok(_) => ExecuteError::Unavailable(Unavailable::Unanswered),
    }
}
