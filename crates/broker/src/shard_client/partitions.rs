//! Partitions: what they hold, and who wrote it.

use base::{Offset, PartitionId};
use machine::{Command, Outcome, Partition, Refusal};

use super::ShardClient;
use crate::error::{ExecuteError, Unavailable};
use crate::fetch::Bounds;

/// The largest leader epoch not above the one asked for that wrote anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    pub epoch: i32,
    /// The offset after its last record.
    pub end: Offset,
}

/// What a partition remembers of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    pub last_sequence: i32,
    /// When its last batch was taken, ms since the epoch.
    pub last_ms: i64,
}

impl ShardClient<'_> {
    /// Where each partition begins and ends.
    pub async fn bounds(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Bounds>>, Unavailable> {
        Ok(self.of_each(partitions, |id| *id, |partition, _| Bounds::of(partition)))
    }

    /// The leader epoch in which each offset was, or will be, written; -1 before the first record.
    pub async fn epochs_at(
        &self,
        places: &[(PartitionId, Offset)],
    ) -> Result<Vec<Option<i32>>, Unavailable> {
        let epoch_at = |partition: &Partition, &(_, offset): &(_, Offset)| {
            let mut epochs = partition.epochs().iter().rev();
            epochs.find(|epoch| epoch.start <= offset).map_or(-1, |epoch| epoch.epoch)
        };
        Ok(self.of_each(places, |(id, _)| *id, epoch_at))
    }

    /// Where each leader epoch ends: nowhere if it is above all that wrote.
    pub async fn epoch_ends(
        &self,
        epochs: &[(PartitionId, i32)],
    ) -> Result<Vec<Option<Option<EpochEnd>>>, Unavailable> {
        let current = self.broker.leader_epoch();
        let end_of = |partition: &Partition, &(_, epoch): &(_, i32)| {
            // The current epoch may not have written anything yet.
            let found = match epoch == current {
                true => Some((current, partition.next_offset())),
                false => partition.epoch_end(epoch),
            };
            found.map(|(epoch, end)| EpochEnd { epoch, end })
        };
        Ok(self.of_each(epochs, |(id, _)| *id, end_of))
    }

    /// The producers that each partition remembers, ascending by id.
    pub async fn producers(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Vec<Producer>>>, Unavailable> {
        let producers_of = |partition: &Partition, _: &PartitionId| {
            let known = partition.producers().iter().map(|(id, state)| Producer {
                id: *id,
                epoch: state.epoch(),
                last_sequence: state.last_sequence(),
                last_ms: state.last_ms(),
            });
            known.collect()
        };
        Ok(self.of_each(partitions, |id| *id, producers_of))
    }

    /// When a batch was last taken, ms since the epoch; `None` also where none ever was.
    pub async fn last_appends_ms(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<i64>>, Unavailable> {
        let last = self.of_each(partitions, |id| *id, |partition, _| partition.last_append_ms());
        Ok(last.into_iter().map(Option::flatten).collect())
    }

    /// Live bytes of each partition in the journal; 0 of one that is not there.
    pub async fn live_bytes(&self, partitions: &[PartitionId]) -> Result<Vec<u64>, Unavailable> {
        let journal = self.broker.journal();
        Ok(partitions.iter().map(|id| journal.stream_bytes(id.stream())).collect())
    }

    /// Deletes what is below these offsets; answers, in their order, the start that holds now.
    pub async fn advance_starts(
        &self,
        starts: Vec<(PartitionId, Offset)>,
    ) -> Result<Vec<Result<Offset, Refusal>>, ExecuteError> {
        let starts_of = |outcome| match outcome {
            Outcome::Starts(starts) => Some(starts),
            _ => None,
        };
        self.broker.execute_for(Command::AdvanceStart { starts }, starts_of).await
    }

    fn of_each<Q, A>(
        self,
        questions: &[Q],
        about: impl Fn(&Q) -> PartitionId,
        answer: impl Fn(&Partition, &Q) -> A,
    ) -> Vec<Option<A>> {
        let rows = self.rows();
        let answers = questions.iter().map(|question| {
            let partition = rows.partition(about(question))?;
            Some(answer(partition, question))
        });
        answers.collect()
    }
}
