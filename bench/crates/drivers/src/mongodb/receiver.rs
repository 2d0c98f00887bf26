use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use driver::{Failure, Topology};
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document};
use mongodb::options::ReturnDocument;

use super::documents;
use super::failure::failure;
use crate::tables::{Table, Taken};

pub(super) struct MongoCollection {
    collection: Collection<Document>,
    ordered: bool,
    lease: Duration,
}

impl fmt::Debug for MongoCollection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.collection.name();
        f.debug_struct("MongoCollection").field("name", &name).finish_non_exhaustive()
    }
}

impl MongoCollection {
    pub(super) fn new(collection: Collection<Document>, topology: &Topology) -> Self {
        Self { collection, ordered: topology.ordered, lease: topology.lease }
    }

    async fn take_one(&self) -> Result<Option<Taken<Bson>>, Failure> {
        let now = DateTime::now();
        let (due, take) = (documents::due(now), documents::take(now, self.lease));
        let asked = self.collection.find_one_and_update(due, take);
        let asked = asked.return_document(ReturnDocument::After);
        let asked = if self.ordered { asked.sort(documents::in_order()) } else { asked };
        let found = asked.await.map_err(|error| failure(&error))?;
        found.map(documents::taken).transpose()
    }
}

#[async_trait]
impl Table for MongoCollection {
    type Key = Bson;

    async fn take(&self, max: usize) -> Result<Vec<Taken<Bson>>, Failure> {
        let mut all = Vec::new();
        while all.len() < max {
            match self.take_one().await {
                Ok(Some(taken)) => all.push(taken),
                Ok(None) => break,
                // Returns the messages taken before; the next call will fail, too.
                Err(_) if !all.is_empty() => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }

    async fn accept(&self, ids: Vec<Bson>) -> Result<(), Failure> {
        let deleted = self.collection.delete_many(documents::these(ids)).await;
        deleted.map(drop).map_err(|error| failure(&error))
    }

    async fn release(&self, ids: Vec<Bson>) -> Result<(), Failure> {
        let show = documents::show(DateTime::now());
        let updated = self.collection.update_many(documents::these(ids), show).await;
        updated.map(drop).map_err(|error| failure(&error))
    }
}
