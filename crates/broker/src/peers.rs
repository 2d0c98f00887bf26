//! How the shards of a node reach one another: by requests to each other's logs, and by nothing else. A shard
//! that another node leads will be reached by the same requests.

use std::collections::BTreeMap;

use base::ShardId;
use parking_lot::RwLock;
use tokio::sync::mpsc;

use crate::error::Unavailable;
use crate::request::Request;

/// Holds no shard open: its log takes no more requests once everybody else is gone who could make some.
#[derive(Debug, Default)]
pub(crate) struct Peers(RwLock<BTreeMap<ShardId, mpsc::WeakUnboundedSender<Request>>>);

impl Peers {
    pub(crate) fn add(&self, shard: ShardId, requests: &mpsc::UnboundedSender<Request>) {
        self.0.write().insert(shard, requests.downgrade());
    }

    /// Nobody reaches the shard, as while nobody leads it. What [`Self::restore`] takes.
    #[cfg(test)]
    pub(crate) fn cut_off(&self, shard: ShardId) -> mpsc::WeakUnboundedSender<Request> {
        self.0.write().remove(&shard).expect("it was reached until now")
    }

    #[cfg(test)]
    pub(crate) fn restore(&self, shard: ShardId, requests: mpsc::WeakUnboundedSender<Request>) {
        self.0.write().insert(shard, requests);
    }

    /// Answered as unavailable where the shard is not there, or not yet.
    pub(crate) fn request(&self, shard: ShardId, request: Request) {
        let requests = self.0.read().get(&shard).and_then(mpsc::WeakUnboundedSender::upgrade);
        match requests {
            Some(requests) => {
                if let Err(mpsc::error::SendError(request)) = requests.send(request) {
                    request.refuse(&Unavailable::Stopping);
                }
            }
            None => request.refuse(&Unavailable::NotLeader),
        }
    }
}
