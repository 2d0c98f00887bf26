//! Appends of producers: to the shards that this node leads, or to all.

use shard::append::{AppendBatch, AppendReply, Appends, divide};
use shard::request::Request;
use tokio::sync::oneshot;

use crate::broker::Broker;

impl Broker {
    /// Appends one producer's request to shards that this node leads. The call fixes its place in the order of each
    /// shard; the reply comes once the records are as durable as promised. Rows of other shards get
    /// [`Unavailable::NotLeader`].
    pub fn append(&self, batches: Vec<AppendBatch>) -> AppendReply {
        self.append_by(batches, |shard, part| self.append_here(shard, part))
    }

    /// Appends as [`Broker::append`] does, at the leader of each shard, on any node. The appends of one caller to a
    /// partition keep their order there. Where a leader is lost before it replied, the result is
    /// [`Unavailable::Unanswered`].
    pub fn append_at_leaders(&self, batches: Vec<AppendBatch>) -> AppendReply {
        self.append_by(batches, |shard, part| match self.forward_queue(shard) {
            Some(forward_queue) => forward_queue.append(part),
            None => self.append_here(shard, part),
        })
    }

    /// `append` receives the place of a shard among those with rows.
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
        AppendReply::from_parts(places, parts.map(|(shard, part)| (shard, append(shard, part))))
    }

    fn append_here(&self, shard: usize, batches: Vec<AppendBatch>) -> oneshot::Receiver<Appends> {
        let (reply, answer) = oneshot::channel();
        // When the broker is stopping, the request is dropped, and with it the sender of the reply.
        let _ =
            self.shards_with_rows()[shard].request(Request::Append { batches, from: None, reply });
        answer
    }
}
