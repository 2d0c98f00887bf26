//! Messages that other tasks post to a session: direct replies, and records of streams. They come past the lease
//! sessions, through a channel of bounded size.

use std::sync::Arc;

use broker::Permit;
use bytes::Bytes;
use rabbitmq::Body;
use record::SharedRecord;
use tokio::sync::Semaphore;

/// A message to a session from another task.
#[derive(Debug)]
pub(crate) enum PostedMessage {
    Reply {
        channel: u16,
        generation: u32,
        reply: Reply,
    },
    Stream {
        channel: u16,
        generation: u32,
        records: StreamRecords,
    },
    /// The reader task of a stream consumer of the channel panicked.
    Panicked {
        channel: u16,
        generation: u32,
    },
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) exchange: Arc<str>,
    pub(crate) routing_key: Arc<str>,
    /// In wire encoding.
    pub(crate) properties: Bytes,
    pub(crate) body: Body,
    /// Room in the node's budget while the reply is in flight.
    pub(crate) permit: Option<Permit>,
}

/// Records for one consumer, or the notice that its stream was deleted.
#[derive(Debug)]
pub(crate) struct StreamRecords {
    pub(crate) tag: Arc<str>,
    pub(crate) credit: StreamCredit,
    pub(crate) records: Vec<SharedRecord>,
    /// The stream was deleted.
    pub(crate) gone: bool,
}

/// Number of further unacknowledged records that a consumer may receive.
#[derive(Clone, Debug)]
pub(crate) struct StreamCredit(pub(crate) Arc<Semaphore>);

impl StreamCredit {
    pub(crate) fn give_back(&self) {
        self.0.add_permits(1);
    }
}
