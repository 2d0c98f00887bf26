//! Partitions: what they hold, and who wrote it.

use base::{HashMap, Offset, PartitionId, TopicId};
use machine::{Command, Outcome, Partition, Refusal, Rows};

use super::ShardClient;
use crate::error::{ExecuteError, Unavailable};
use crate::fetch::Bounds;
use crate::routing::Leaders;

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
        let topics = epochs.iter().map(|(id, _)| id.topic);
        let current: HashMap<TopicId, Leaders> =
            topics.map(|topic| (topic, self.broker.leaders(topic))).collect();
        let end_of = |partition: &Partition, &(id, epoch): &(PartitionId, i32)| {
            let current = current.get(&id.topic).map_or(-1, |current| current.of(id.index).epoch);
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
        let places = self.broker.places_of(partitions.iter().copied());
        let shards = self.broker.shards_with_rows();
        let bytes =
            |(id, place): (&PartitionId, usize)| shards[place].journal().stream_bytes(id.stream());
        Ok(partitions.iter().zip(places).map(bytes).collect())
    }

    /// Deletes what is below these offsets; answers, in their order, the start that holds now.
    pub async fn advance_starts(
        &self,
        starts: Vec<(PartitionId, Offset)>,
    ) -> Result<Vec<Result<Offset, Refusal>>, ExecuteError> {
        let places = self.broker.places_of(starts.iter().map(|(partition, _)| *partition));
        let shards = self.broker.shards_with_rows();
        let mut answers = Vec::with_capacity(shards.len());
        for (place, shard) in shards.iter().enumerate() {
            let here = starts.iter().zip(&places).filter(|(_, at)| **at == place);
            let starts: Vec<_> = here.map(|(start, _)| *start).collect();
            if starts.is_empty() {
                answers.push(Vec::new().into_iter());
                continue;
            }
            match shard.execute(Command::AdvanceStart { starts }).await? {
                Outcome::Starts(starts) => answers.push(starts.into_iter()),
                other => unreachable!("starts are not answered with {other:?}"),
            }
        }
        let next = |place: &usize| answers[*place].next().expect("each start is answered");
        Ok(places.iter().map(next).collect())
    }

    fn of_each<Q, A>(
        self,
        questions: &[Q],
        about: impl Fn(&Q) -> PartitionId,
        answer: impl Fn(&Partition, &Q) -> A,
    ) -> Vec<Option<A>> {
        let answer = |rows: &Rows, question: &Q| {
            let partition = rows.known(about(question))?;
            Some(answer(partition, question))
        };
        self.ask(questions, |question| Some(about(question)), answer)
    }
}
