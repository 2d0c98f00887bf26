//! Appends outside of units, to the shards of their partitions.

use std::future::Future;
use std::sync::Arc;

use base::ShardId;
use shard::Shard;
use shard::append::{AppendBatch, divide};
use shard::request::Request;
use shard_peers::Peers;
use tokio::sync::oneshot;

pub(crate) struct AppendPlaces {
    own: ShardId,
    shard: Arc<Shard>,
    peers: Arc<Peers>,
}

impl AppendPlaces {
    pub(crate) fn new(shard: Arc<Shard>, peers: Arc<Peers>) -> Self {
        Self { own: shard.role().shard(), shard, peers }
    }

    /// Resolves once every batch is in a log or refused.
    pub(crate) fn append(
        &self,
        batches: Vec<AppendBatch>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let places: Vec<usize> = self.shard.read(|view| {
            let partitions = batches.iter().flat_map(AppendBatch::partitions);
            let shard = |partition| view.elsewhere(partition).unwrap_or(self.own).0 as usize;
            partitions.map(shard).collect()
        });
        let mut answers = Vec::new();
        for (shard, batches) in divide(batches, &places) {
            let (reply, answer) = oneshot::channel();
            let request = Request::Append { batches, from: None, reply };
            self.peers.request(ShardId(shard as u32), request);
            answers.push(answer);
        }
        async move {
            for answer in answers {
                // The caller does not need the results.
                let _ = answer.await;
            }
        }
    }
}
