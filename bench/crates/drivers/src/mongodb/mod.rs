//! MongoDB as a queue: a collection for each destination and subscription, `findOneAndUpdate`.
//!
//! *Sent* means: `insertMany` returned, with the tier's write concern: `w: 1` without the journal
//! is T0 (it is in the server's memory), with the journal T3; `w: majority` with the journal is T4,
//! and `create` rejects it without a replica set. MongoDB has none of the tiers between, which
//! concern page caches.
//!
//! *Hiding*: a document has the time of its next delivery, by the clock of its sender or last
//! receiver. A receiver moves it by the lease. A release, and the end of a receiver, move it to
//! now. Settling deletes, with the same write concern, and waits for it. Documents are taken one by
//! one, as in the published test: ten messages take ten requests.
//!
//! They are taken in no order, unless the test requires it: then by `_id`, which grows with each
//! message of a sender, so that one receiver gets them as they were sent.
//!
//! The package registries have no server, so this is tested against a small one that speaks the
//! wire protocol and supports the commands that are used here.
//!
//! Settings: `window`, `batch` (largest number of documents in one insert, 500), `database`,
//! `poll-ms` (pause when there is no message, 10).

mod documents;
mod failure;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use mongodb::bson::{Document, doc};
use mongodb::options::{
    Acknowledgment, ClientOptions, CollectionOptions, Credential, ServerAddress, WriteConcern,
};
use mongodb::{Client, Collection, Database, IndexModel};

use crate::batching::BatchingSender;
use crate::pending::WINDOW;
use crate::tables::{TableReceiver, all_tables, table, tables_of};
use crate::told::{ms, named_values};
use failure::{failure, unreached};

const SYSTEM: &str = "mongodb";
const ENDPOINT: &str = "127.0.0.1:27017";
const DATABASE: &str = "postroad_bench";
const PATIENCE: Duration = Duration::from_secs(5);
/// So large that no sender or receiver waits for a connection.
const CONNECTIONS_MAX: u32 = 10_000;

#[derive(Debug)]
struct Mongo {
    options: ClientOptions,
    /// Created at first use, because it starts tasks.
    client: OnceLock<Client>,
    endpoint: String,
    user: String,
    database: String,
    window: u32,
    batch: usize,
    poll: Duration,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    let batch = settings.take("batch", 500)?;
    let poll = Duration::from_millis(settings.take("poll-ms", 10)?);
    let database = settings.take("database", DATABASE.to_owned())?;
    settings.done()?;
    let places = match &target.endpoints[..] {
        [] => vec![ENDPOINT.to_owned()],
        places => places.to_vec(),
    };
    let endpoint = places.join(",");
    let parse = |place: &String| {
        let place = place.trim_start_matches("mongodb://").trim_end_matches('/');
        ServerAddress::parse(place)
            .map_err(|why| Failure::Unreachable { endpoint: place.into(), why: why.to_string() })
    };
    let hosts = places.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let mut options = ClientOptions::builder()
        .hosts(hosts)
        .app_name("postroad-bench".to_owned())
        .connect_timeout(PATIENCE)
        .server_selection_timeout(PATIENCE)
        .max_pool_size(CONNECTIONS_MAX)
        .build();
    let user = target.user.clone().unwrap_or_default();
    if let Some(password) = &target.password {
        let who = Credential::builder().username(user.clone()).password(password.clone());
        options.credential = Some(who.build());
    }
    let client = OnceLock::new();
    Ok(Arc::new(Mongo { options, client, endpoint, user, database, window, batch, poll }))
}

fn write_concern(tier: Tier) -> WriteConcern {
    let copies = if tier == Tier::T4 { Acknowledgment::Majority } else { Acknowledgment::Nodes(1) };
    WriteConcern::builder().w(copies).journal(tier.is_synced()).build()
}

impl Mongo {
    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::with_options(self.options.clone()).map_err(|error| failure(&error))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn database(&self) -> Result<Database, Failure> {
        Ok(self.client()?.database(&self.database))
    }

    fn collection(&self, name: &str, tier: Tier) -> Result<Collection<Document>, Failure> {
        let options = CollectionOptions::builder().write_concern(write_concern(tier)).build();
        Ok(self.database()?.collection_with_options(name, options))
    }

    async fn check(&self, tier: Tier) -> Result<(), Failure> {
        if tier != Tier::T4 {
            return Ok(());
        }
        let hello = self.database()?.run_command(doc! { "hello": 1 }).await;
        let hello = hello.map_err(|error| failure(&error))?;
        let members = hello.get_array("hosts").map_or(0, Vec::len);
        if members < 2 {
            return Err(Failure::refused(format!(
                "{tier} was asked for, and the server is not one of a replica set of several"
            )));
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for Mongo {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "MongoDB, findOneAndUpdate",
            client: "mongodb 3.9",
            sent_means: "insertMany was answered, with the tier's write concern",
            hidden_means: "by the time of its next delivery, which taking it moves by the lease",
            tiers: &[Tier::T0, Tier::T3, Tier::T4],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::LeaseOrConnection,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: true,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let concern = write_concern(topology.tier);
        let copies = if topology.tier == Tier::T4 { "majority" } else { "1" };
        named_values(&[
            ("window", &self.window),
            ("batch", &self.batch),
            ("poll-ms", &self.poll.as_millis()),
            ("connectTimeout", &ms(PATIENCE)),
            ("serverSelectionTimeout", &ms(PATIENCE)),
            ("maxPoolSize", &CONNECTIONS_MAX),
            ("writeConcern.w", &copies),
            ("writeConcern.j", &concern.journal.unwrap_or_default()),
        ])
    }

    async fn version(&self) -> Result<String, Failure> {
        let told = self.database()?.run_command(doc! { "buildInfo": 1 }).await;
        let told = told.map_err(|error| unreached(&error, &self.endpoint, &self.user))?;
        let version = told.get_str("version").map_err(Failure::unknown)?;
        Ok(version.to_owned())
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.version().await?;
        self.check(topology.tier).await?;
        self.remove(topology).await?;
        for name in all_tables(topology) {
            let collection = self.collection(&name, topology.tier)?;
            let index = IndexModel::builder().keys(documents::index()).build();
            collection.create_index(index).await.map_err(|error| failure(&error))?;
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        for name in all_tables(topology) {
            let collection = self.collection(&name, topology.tier)?;
            collection.drop().await.map_err(|error| failure(&error))?;
        }
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let collections = (0..topology.destinations).map(|destination| {
            let names = tables_of(topology, destination);
            names.map(|name| self.collection(&name, topology.tier)).collect::<Result<Vec<_>, _>>()
        });
        let writer = sender::Writer::new(collections.collect::<Result<_, _>>()?);
        Ok(Box::new(BatchingSender::spawn(writer, self.window, self.batch)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let collections = destinations.iter().map(|&destination| {
            let name = table(topology, destination, subscription);
            let collection = self.collection(&name, topology.tier)?;
            Ok(receiver::MongoCollection::new(collection, topology))
        });
        let collections = collections.collect::<Result<_, Failure>>()?;
        Ok(Box::new(TableReceiver::new(collections, self.poll)))
    }
}
