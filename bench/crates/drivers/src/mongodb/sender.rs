use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use driver::{Failure, Message};
use futures_util::future::join_all;
use mongodb::Collection;
use mongodb::bson::{DateTime, Document};

use super::documents;
use super::failure::outcomes;
use crate::batching::BatchWriter;

/// Inserts the documents of a batch in order.
pub(super) struct Writer {
    /// By destination: one for each subscription.
    collections: Vec<Vec<Collection<Document>>>,
    /// Unique to this sender.
    number: u64,
    latest_ns: u64,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let destinations = self.collections.len();
        f.debug_struct("Writer").field("destinations", &destinations).finish_non_exhaustive()
    }
}

type Outcomes = Vec<Result<(), Failure>>;

impl Writer {
    pub(super) fn new(collections: Vec<Vec<Collection<Document>>>) -> Self {
        Self { collections, number: rand::random(), latest_ns: 0 }
    }

    /// The current time, increased so that it always grows.
    fn next_ns(&mut self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = since.map_or(0, |since| since.as_nanos() as u64);
        self.latest_ns = now_ns.max(self.latest_ns + 1);
        self.latest_ns
    }
}

async fn insert(collection: &Collection<Document>, documents: &[Document]) -> Outcomes {
    let inserted = collection.insert_many(documents).ordered(true).await;
    outcomes(documents.len(), inserted.err().as_ref())
}

/// A message is sent once every subscription has it.
async fn insert_all(collections: &[Collection<Document>], documents: &[Document]) -> Outcomes {
    let each = collections.iter().map(|collection| insert(collection, documents));
    let each = join_all(each).await.into_iter();
    let both = |one: Outcomes, other: Outcomes| -> Outcomes {
        one.into_iter().zip(other).map(|(one, other)| one.and(other)).collect()
    };
    each.reduce(both).unwrap_or_default()
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(&mut self, batch: &[(u32, Message)]) -> Result<Outcomes, Failure> {
        let now = DateTime::now();
        // By destination: the documents, and their indexes in the batch.
        let mut documents: Vec<(Vec<Document>, Vec<usize>)> = Vec::new();
        documents.resize_with(self.collections.len(), Default::default);
        for (index, (destination, message)) in batch.iter().enumerate() {
            let id = documents::id(self.next_ns(), self.number);
            let of_destination = documents.get_mut(*destination as usize);
            let (documents, indexes) =
                of_destination.ok_or_else(|| Failure::refused("there is no such destination"))?;
            documents.push(documents::message(&id, &message.body, now));
            indexes.push(index);
        }
        let inserts = self.collections.iter().zip(&documents);
        let inserts = inserts.filter(|(_, (documents, _))| !documents.is_empty());
        let inserts = inserts.map(|(collections, (documents, indexes))| async move {
            indexes.iter().copied().zip(insert_all(collections, documents).await)
        });
        let mut outcomes: Vec<_> = join_all(inserts).await.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }
}
