use std::fmt;

use async_trait::async_trait;
use driver::{Failure, Message};
use redis::aio::MultiplexedConnection;

use super::refused;
use crate::batching::BatchWriter;

/// The only field of each entry.
pub(super) const FIELD: &str = "b";

pub(super) struct Writer {
    pub(super) connection: MultiplexedConnection,
    /// By destination, then by part.
    pub(super) streams: Vec<Vec<String>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("streams", &self.streams).finish_non_exhaustive()
    }
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(
        &mut self,
        batch: &[(u32, Message)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let mut pipe = redis::pipe();
        for (destination, message) in batch {
            let streams = self.streams.get(*destination as usize);
            let streams =
                streams.ok_or_else(|| Failure::refused("there is no such destination"))?;
            let stream = &streams[message.lane as usize % streams.len()];
            let add = pipe.cmd("XADD").arg(stream).arg("NOMKSTREAM").arg("*").arg(FIELD);
            add.arg(&message.body[..]);
        }
        let ids: Vec<Option<String>> =
            pipe.query_async(&mut self.connection).await.map_err(refused)?;
        let sent = |id: Option<String>| match id {
            Some(_) => Ok(()),
            None => Err(Failure::refused("the stream is not there")),
        };
        Ok(ids.into_iter().map(sent).collect())
    }
}
