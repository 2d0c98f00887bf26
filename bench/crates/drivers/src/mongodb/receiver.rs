use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle, Topology};
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document};
use mongodb::options::ReturnDocument;

use super::documents::{self, Taken};
use super::failure::failure;
use crate::opened::{Opened, by_place, take_settled};

pub(super) struct MongoReceiver {
    collections: Vec<Collection<Document>>,
    ordered: bool,
    lease: Duration,
    poll: Duration,
    /// The collection to look into first, so that none of them starves.
    next: usize,
    /// By delivery: the collection, and the document.
    open: Opened<Bson>,
    deliveries: u64,
}

impl fmt::Debug for MongoReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collections = self.collections.len();
        f.debug_struct("MongoReceiver").field("collections", &collections).finish_non_exhaustive()
    }
}

impl MongoReceiver {
    pub(super) fn new(
        collections: Vec<Collection<Document>>,
        topology: &Topology,
        poll: Duration,
    ) -> Self {
        Self {
            collections,
            ordered: topology.ordered,
            lease: topology.lease,
            poll,
            next: 0,
            open: Opened::new(),
            deliveries: 0,
        }
    }

    async fn take_one(&self, collection: usize) -> Result<Option<Taken>, Failure> {
        let now = DateTime::now();
        let (due, take) = (documents::due(now), documents::take(now, self.lease));
        let asked = self.collections[collection].find_one_and_update(due, take);
        let asked = asked.return_document(ReturnDocument::After);
        let asked = if self.ordered { asked.sort(documents::in_order()) } else { asked };
        let found = asked.await.map_err(|error| failure(&error))?;
        found.map(documents::taken).transpose()
    }

    async fn take(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        for turn in 0..self.collections.len() {
            let index = (self.next + turn) % self.collections.len();
            while received.len() < max {
                let Some(taken) = self.take_one(index).await? else { break };
                self.deliveries += 1;
                self.open.insert(self.deliveries, (index, taken.id));
                received.push(Received {
                    id: DeliveryId(self.deliveries),
                    body: taken.body,
                    redelivered: Some(taken.redelivered),
                });
            }
        }
        self.next += 1;
        Ok(received)
    }

    async fn accept(&self, documents: Vec<(usize, Bson)>) -> Result<(), Failure> {
        for (collection, ids) in by_place(documents) {
            let delete = self.collections[collection].delete_many(documents::these(ids));
            delete.await.map_err(|error| failure(&error))?;
        }
        Ok(())
    }

    async fn release(&self, documents: Vec<(usize, Bson)>) -> Result<(), Failure> {
        for (collection, ids) in by_place(documents) {
            let show = documents::show(DateTime::now());
            let update = self.collections[collection].update_many(documents::these(ids), show);
            update.await.map_err(|error| failure(&error))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for MongoReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let deadline = Instant::now() + RECEIVE_WAIT;
        loop {
            let received = self.take(max).await?;
            if !received.is_empty() || Instant::now() >= deadline {
                return Ok(received);
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let (accepted, released) = take_settled(&mut self.open, settles)?;
        self.accept(accepted).await?;
        self.release(released).await
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.open).into_values().collect();
        self.release(open).await
    }
}
