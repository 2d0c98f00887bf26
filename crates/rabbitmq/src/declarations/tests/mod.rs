//! Declarations and the texts of refusals, over a broker on a simulated disk.

mod dead_letters;
mod declared_bindings;
mod declared_exchanges;
mod declared_queues;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use broker::{Broker, BrokerOptions, NewTopic};
use routing::{Headers, Message, NoHeaders};
use topology::{BindingRequest, Destination, OwnerId, Queue, Topology, VirtualHost};
use world::{Entropy, OsEntropy, SimulatedDisk, World};

use super::{ExchangeDeclaration, QueueDeclaration, bindings, exchanges, queues};
use crate::errors::Exception;
use crate::table::{FieldTable, FieldValue};

struct Node {
    disk: SimulatedDisk,
    broker: Broker,
    topology: Topology,
    vhost: VirtualHost,
    /// The client of most tests.
    client: OwnerId,
}

async fn open_on(disk: SimulatedDisk) -> Node {
    let options = BrokerOptions {
        journal: journal::Options {
            segment_bytes: 1 << 20,
            disk_reserve_bytes: 0,
            ..journal::Options::default()
        },
        ..BrokerOptions::default()
    };
    let broker = Broker::open(World::on(Arc::new(disk.clone())), Path::new("/data"), options).await;
    let broker = broker.expect("the broker opens");
    let topology = Topology::open(broker.clone()).await.expect("the topology opens");
    let vhost = topology.vhost("/").expect("the default vhost is there");
    let client = OwnerId(1);
    topology.open_owner(client);
    Node { disk, broker, topology, vhost, client }
}

async fn open() -> Node {
    open_on(SimulatedDisk::default()).await
}

fn table(fields: &[(&str, FieldValue)]) -> FieldTable {
    FieldTable(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn queue_named(name: &str) -> Destination {
    Destination::Queue(name.into())
}

fn exchange_named(name: &str) -> Destination {
    Destination::Exchange(name.into())
}

/// The text of a refusal as the client receives it.
fn text<T: std::fmt::Debug, E: Into<Exception>>(result: Result<T, E>) -> String {
    match result {
        Ok(done) => panic!("it is not refused: {done:?}"),
        Err(refused) => refused.into().reply_text(),
    }
}

impl Node {
    /// Stops and starts the node. Its clients are lost.
    async fn restart(self) -> Self {
        self.broker.shutdown().await;
        drop((self.topology, self.vhost, self.broker));
        open_on(self.disk).await
    }

    async fn queue(&self, name: &str) -> Arc<Queue> {
        self.queue_with(name, &[]).await.expect("the queue is declared")
    }

    async fn queue_with(
        &self,
        name: &str,
        arguments: &[(&str, FieldValue)],
    ) -> Result<Arc<Queue>, Exception> {
        let arguments = table(arguments);
        let declaration = QueueDeclaration {
            name,
            durable: true,
            exclusive: false,
            auto_delete: false,
            arguments: &arguments,
        };
        queues::declare(&self.vhost, self.client, declaration, None).await.map(|it| it.queue)
    }

    async fn transient_queue(&self, name: &str, exclusive: bool, auto_delete: bool) -> Arc<Queue> {
        let arguments = &FieldTable::new();
        let declaration =
            QueueDeclaration { name, durable: false, exclusive, auto_delete, arguments };
        queues::declare(&self.vhost, self.client, declaration, None)
            .await
            .expect("the queue is declared")
            .queue
    }

    async fn exchange(&self, name: &str, kind: &str) {
        self.exchange_with(name, kind, &[]).await.expect("the exchange is declared");
    }

    async fn exchange_with(
        &self,
        name: &str,
        kind: &str,
        arguments: &[(&str, FieldValue)],
    ) -> Result<(), Exception> {
        let arguments = &table(arguments);
        let declaration = ExchangeDeclaration {
            name,
            kind,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments,
        };
        exchanges::declare(&self.vhost, declaration).await
    }

    async fn bind(&self, source: &str, destination: &Destination, key: &str) {
        self.bind_with(source, destination, key, &[]).await.expect("the binding is made");
    }

    async fn bind_with(
        &self,
        source: &str,
        destination: &Destination,
        key: &str,
        arguments: &[(&str, FieldValue)],
    ) -> Result<(), Exception> {
        let arguments = &table(arguments);
        bindings::bind(
            &self.vhost,
            self.client,
            BindingRequest { source, destination, key, arguments },
        )
        .await
    }

    async fn unbind(&self, source: &str, destination: &Destination, key: &str) {
        let arguments = &FieldTable::new();
        let request = BindingRequest { source, destination, key, arguments };
        bindings::unbind(&self.vhost, self.client, request).await.expect("the binding is removed");
    }

    /// Names of the queues that a message reaches.
    fn reached(&self, exchange: &str, key: &str) -> Vec<String> {
        self.reached_with(exchange, key, &NoHeaders).expect("the exchange is there")
    }

    fn reached_with<H: Headers>(
        &self,
        exchange: &str,
        key: &str,
        headers: &H,
    ) -> Result<Vec<String>, Exception> {
        let mut found = Vec::new();
        let message = Message { keys: &[key], headers, deferred: false };
        self.vhost.routes().route(exchange, &message, &mut found)?;
        let mut names: Vec<_> = found.iter().map(|routed| routed.queue.name.to_string()).collect();
        names.sort();
        Ok(names)
    }

    /// Creates a topic as another protocol does.
    async fn topic(&self, name: &str, partitions: u32) {
        let uuid = OsEntropy.uuid();
        let new = NewTopic { name: name.to_owned(), uuid, partitions, config: BTreeMap::new() };
        self.broker.create_topic(new).await.expect("the topic is made");
    }

    fn topic_names(&self) -> Vec<String> {
        self.broker.catalog().topics().map(|topic| topic.name().to_string()).collect()
    }

    fn topic_config(&self, name: &str) -> BTreeMap<String, String> {
        let catalog = self.broker.catalog();
        (**catalog.topic_named(name).expect("the topic is there").overrides()).clone()
    }

    fn lease_config(&self, queue: &Queue) -> BTreeMap<String, String> {
        let group = queue.group().expect("the queue has a lease group");
        let catalog = self.broker.catalog();
        (**catalog.lease_group(group).expect("the lease group is there").overrides()).clone()
    }

    fn documents(&self, space: &str) -> Vec<String> {
        self.broker.catalog().documents(space).map(|(name, _)| name.to_owned()).collect()
    }
}
