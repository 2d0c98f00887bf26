//! Appending what a producer hands in: in the shards that this node leads, or in all of them.

use tokio::sync::oneshot;

use crate::append::{AppendBatch, AppendReply, Appends, divide};
use crate::broker::Broker;
use crate::request::Request;

impl Broker {
    /// Appends one producer's request to shards that this node leads: its place in the order of each shard is
    /// taken when this is called, the answer comes when the records are as durable as promised. What is for
    /// other shards is answered with [`Unavailable::NotLeader`].
    pub fn append(&self, batches: Vec<AppendBatch>) -> AppendReply {
        self.append_by(batches, |shard, part| self.append_here(shard, part))
    }

    /// Appends as [`Broker::append`] does, at whichever nodes lead: what one caller appends to a partition has
    /// its order there. Where a leader is lost before it answered, the answer is [`Unavailable::Unanswered`].
    pub fn append_at_leaders(&self, batches: Vec<AppendBatch>) -> AppendReply {
        self.append_by(batches, |shard, part| match self.line(shard) {
            Some(line) => line.append(part),
            None => self.append_here(shard, part),
        })
    }

    /// `append` is told the place of a shard among those with rows.
    fn append_by(
        &self,
        batches: Vec<AppendBatch>,
        append: impl Fn(usize, Vec<AppendBatch>) -> oneshot::Receiver<Appends>,
    ) -> AppendReply {
        if self.shards_with_rows().len() == 1 {
            let rows = batches.iter().map(AppendBatch::rows).sum();
            return AppendReply::new(rows, append(0, batches));
        }
        let partitions = batches.iter().flat_map(AppendBatch::partitions);
        let places = self.places_of(partitions);
        let parts = divide(batches, &places).into_iter();
        AppendReply::of_parts(places, parts.map(|(shard, part)| (shard, append(shard, part))))
    }

    fn append_here(&self, shard: usize, batches: Vec<AppendBatch>) -> oneshot::Receiver<Appends> {
        let (reply, answer) = oneshot::channel();
        // When the broker is stopping the request is dropped, and with it the sender of the answer.
        let _ =
            self.shards_with_rows()[shard].request(Request::Append { batches, from: None, reply });
        answer
    }
}
