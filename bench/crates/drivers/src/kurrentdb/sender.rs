use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use driver::{Failure, Message};
use kurrentdb::{AppendToStreamOptions, Client, EventData};

use super::failure;
use crate::batching::BatchWriter;

const EVENT_TYPE: &str = "bench";

/// Appends the messages of each stream in one call.
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) streams: Vec<String>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Writer {
    async fn append(&self, destination: u32, events: Vec<EventData>) -> Result<(), Failure> {
        let stream = self.streams.get(destination as usize);
        let stream = stream.ok_or_else(|| Failure::refused("there is no such destination"))?;
        let options = AppendToStreamOptions::default();
        let appended = self.client.append_to_stream(stream.as_str(), &options, events).await;
        appended.map(drop).map_err(failure)
    }
}

/// Indexes of each destination's messages, in their order.
fn by_destination(batch: &[(u32, Message)]) -> BTreeMap<u32, Vec<usize>> {
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, (destination, _)) in batch.iter().enumerate() {
        places.entry(*destination).or_default().push(place);
    }
    places
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(
        &mut self,
        batch: &[(u32, Message)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let mut sent = vec![Ok(()); batch.len()];
        for (destination, places) in by_destination(batch) {
            let event = |&place: &usize| EventData::binary(EVENT_TYPE, batch[place].1.body.clone());
            let events = places.iter().map(event).collect();
            let appended = self.append(destination, events).await;
            for place in places {
                sent[place].clone_from(&appended);
            }
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn each_destination_has_one_append_in_order() {
        let message = |lane| Message { lane, body: Bytes::new() };
        let batch = [(1, message(0)), (0, message(1)), (1, message(2))];
        let places = by_destination(&batch);
        assert_eq!(places.into_iter().collect::<Vec<_>>(), [(0, vec![1]), (1, vec![0, 2])]);
    }
}
