//! The topology over a broker on a simulated disk: persistence over restarts, and routing.

mod model;
mod policies;
mod restart;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use broker::{Broker, BrokerOptions, NewTopic};
use operations::amqp::{ApplyTo, PolicyDefinition};
use routing::{Message, NoHeaders};
use values::{Table, Value};
use world::{Entropy, OsEntropy, SimulatedDisk, World};

use super::*;
use crate::arguments::QUEUE_TYPE;

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

fn queue_named(name: &str) -> Destination {
    Destination::Queue(name.into())
}

fn exchange_named(name: &str) -> Destination {
    Destination::Exchange(name.into())
}

/// Accepts any existing entity.
fn any<T>(_: Option<&T>) -> Result<(), ChangeError> {
    Ok(())
}

impl Node {
    /// Stops and starts the node. Its clients are lost.
    async fn restart(self) -> Self {
        self.broker.shutdown().await;
        drop((self.topology, self.vhost, self.broker));
        open_on(self.disk).await
    }

    async fn queue(&self, name: &str) -> Arc<Queue> {
        self.queue_with(name, &[]).await
    }

    async fn queue_with(&self, name: &str, arguments: &[(&str, Value)]) -> Arc<Queue> {
        let mut table = Table::new();
        table.set(QUEUE_TYPE, "classic");
        arguments.iter().for_each(|(name, value)| table.set(name, value.clone()));
        let (durable, auto_delete, owner) = (true, false, None);
        let new = NewQueue { name, durable, auto_delete, owner, arguments: &table };
        self.vhost.declare_queue(new, any).await.expect("the queue is declared")
    }

    async fn transient_queue(&self, name: &str, owner: Option<OwnerId>) -> Arc<Queue> {
        let arguments = &Table::new();
        let new = NewQueue { name, durable: false, auto_delete: false, owner, arguments };
        self.vhost.declare_queue(new, any).await.expect("the queue is declared")
    }

    async fn exchange(&self, name: &str, kind: ExchangeKind, durable: bool) {
        let (auto_delete, internal, arguments) = (false, false, &Table::new());
        let new = NewExchange { name, kind, durable, auto_delete, internal, arguments };
        self.vhost.declare_exchange(new, any).await.expect("the exchange is declared");
    }

    async fn bind(
        &self,
        source: &str,
        destination: &Destination,
        key: &str,
    ) -> Result<(), ChangeError> {
        let arguments = &Table::new();
        self.vhost.bind(self.client, BindingRequest { source, destination, key, arguments }).await
    }

    async fn unbind(&self, source: &str, destination: &Destination, key: &str) {
        let arguments = &Table::new();
        let request = BindingRequest { source, destination, key, arguments };
        self.vhost.unbind(self.client, request).await.expect("the binding is removed");
    }

    /// Names of the queues that a message reaches.
    fn reached(&self, exchange: &str, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        let message = Message { keys: &[key], headers: &NoHeaders, deferred: false };
        let routed = self.vhost.routes().route(exchange, &message, &mut found);
        routed.expect("the exchange is there");
        let mut names: Vec<_> = found.iter().map(|routed| routed.queue.name.to_string()).collect();
        names.sort();
        names
    }

    /// Creates a topic as another protocol does.
    async fn topic(&self, name: &str, partitions: u32) {
        let uuid = OsEntropy.uuid();
        let new = NewTopic { name: name.to_owned(), uuid, partitions, config: BTreeMap::new() };
        self.broker.create_topic(new).await.expect("the topic is new");
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
