//! Operations of operators on a running node: lease groups, dead letters, scheduled records, groups that commit offsets,
//! shards and connections.
//!
//! No client protocol has requests for them. The command line and HTTP ask for the same operations, in the documents of
//! the crate [`operations`]; [`Admin`] carries them out for both. The crate knows neither of the two protocols. Each
//! gateway authenticates its caller, and maps [`AdminError`] to its own codes.
//!
//! Operations create users and purge queues, so each needs a right of its own. Each reply is bounded, and says where the
//! next one continues.
//!
//! * `rights`: rights that operations need; `permits`: bounds their concurrency
//! * `queues`, `dead_letters`, `schedule`, `shards`: the operations, thin over the broker
//! * `connections`: the live connections of all gateways
//! * `offset_groups`: groups that commit offsets
//! * `families`: operations of other parts of the node, passed on unread
//! * `browse`: reads records for operators; `find`: finds them; `history`: the history of one
//! * `error`: errors by meaning

mod browse;
mod connections;
mod dead_letters;
mod error;
mod families;
mod find;
mod history;
pub mod limits;
mod offset_groups;
mod permits;
mod queues;
mod rights;
mod schedule;
mod shards;

use std::sync::Arc;

use access::Rights;
use broker::Broker;
use consumer_groups::Groups;
use futures_util::future::{BoxFuture, FutureExt};
use gateway::Connections;
use operations::document::Operation;
use operations::family::NamedFamilies;
use serde::Serialize;

use families::Families;
use offset_groups::Node;
use permits::OperationPermits;

pub use error::{AdminError, ErrorClass};

/// Carries out operations of operators. Clones share the node's permits.
#[derive(Clone, Debug)]
pub struct Admin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    broker: Broker,
    groups: Groups,
    connections: Connections,
    families: Families,
    permits: OperationPermits,
}

/// An operation that its caller may request.
#[derive(Debug)]
#[must_use]
pub struct AuthorizedOperation<'a> {
    node: &'a Inner,
    caller: &'a Rights,
    operation: Operation,
}

/// The document of a reply.
pub type Reply = Result<Vec<u8>, AdminError>;

impl Admin {
    /// `connections`: those of all gateways of the node. `families`: operations of other parts of the node.
    pub fn new(
        broker: Broker,
        groups: Groups,
        connections: Connections,
        families: NamedFamilies,
    ) -> Self {
        let (families, permits) = (Families::new(families), OperationPermits::new());
        Self(Arc::new(Inner { broker, groups, connections, families, permits }))
    }

    /// Carries out an operation with the caller's rights.
    pub async fn carry_out(&self, caller: &Rights, operation: Operation) -> Reply {
        self.authorize(caller, operation)?.carry_out().await
    }

    /// Checks that the caller may request the operation, which is carried out with the same rights.
    pub fn authorize<'a>(
        &'a self,
        caller: &'a Rights,
        operation: Operation,
    ) -> Result<AuthorizedOperation<'a>, AdminError> {
        self.check(caller, &operation)?;
        Ok(AuthorizedOperation { node: &self.0, caller, operation })
    }

    /// Checks that the caller may request the operation.
    pub fn check(&self, caller: &Rights, operation: &Operation) -> Result<(), AdminError> {
        let effect = |family: &str, operation: &_| self.0.families.effect(family, operation);
        rights::check(caller, operation, effect)
    }

    /// The live connections of all gateways.
    pub fn connections(&self) -> &Connections {
        &self.0.connections
    }
}

impl<'a> AuthorizedOperation<'a> {
    /// Boxed like the functions with `#[tasks::boxed]`, which does not know the lifetime of `self`.
    pub fn carry_out(self) -> BoxFuture<'a, Reply> {
        self.run().boxed()
    }

    async fn run(self) -> Reply {
        let Self { node, caller, operation } = self;
        let Inner { broker, groups, connections, families, permits } = node;
        let _permit = permits.wait(families, &operation).await?;
        if reads_the_catalog(&operation) {
            broker.catalog_is_current().await?;
        }
        let node = Node { broker, groups };
        match operation {
            Operation::DeclareQueue { queue, from, config } => {
                document(queues::declare(broker, &queue, from, config).await)
            }
            Operation::ListQueues { after, queues_max } => {
                document(queues::list(broker, caller, after.as_ref(), queues_max).await)
            }
            Operation::DescribeQueue { queue } => document(queues::describe(broker, &queue).await),
            Operation::PeekQueue { queue, partition, from, records_max } => {
                document(queues::peek(broker, &queue, partition, from, records_max).await)
            }
            Operation::PurgeQueue { queue } => document(queues::purge(broker, &queue).await),
            Operation::RemoveRecords { queue, records } => {
                document(queues::remove(broker, &queue, &records).await)
            }
            Operation::PauseQueue { queue, paused } => {
                document(queues::pause(broker, &queue, paused).await)
            }
            Operation::SeekQueue { queue, to } => document(queues::seek(broker, &queue, &to).await),
            Operation::DeleteQueue { queue, force } => {
                document(queues::delete(broker, &queue, force).await)
            }
            Operation::ListDeadLetterTopics {} => {
                document(dead_letters::topics(broker, caller).await)
            }
            Operation::CountDeadLetters { topic, from } => {
                document(dead_letters::count(broker, &topic, from).await)
            }
            Operation::ShowDeadLetters { topic, only, from, records_max } => {
                document(dead_letters::show(broker, &topic, &only, from, records_max).await)
            }
            Operation::RedriveDeadLetters { topic, only, to, span } => document(
                dead_letters::redrive(broker, caller, &topic, &only, to.as_deref(), &span).await,
            ),
            Operation::DeleteDeadLetters { topic, only, span } => {
                document(dead_letters::delete(broker, caller, &topic, &only, &span).await)
            }
            Operation::ListScheduled { queue, after, records_max } => {
                document(schedule::list(broker, &queue, after, records_max).await)
            }
            Operation::CancelScheduled { queue, what } => {
                document(schedule::cancel(broker, &queue, &what).await)
            }
            Operation::ListShards {} => document(Ok(shards::list(broker))),
            Operation::ElectLeader {} => document(shards::elect(broker).await),
            Operation::ListConnections { after, connections_max } => {
                let now_ms = broker.clock().now_ms();
                document(Ok(connections::list(connections, now_ms, after, connections_max)))
            }
            Operation::CloseConnection { connection } => {
                document(connections::close(connections, connection))
            }
            Operation::ListOffsetGroups { after, groups_max } => {
                let after = after.as_deref();
                document(offset_groups::list(node, caller, after, groups_max).await)
            }
            Operation::DescribeOffsetGroup { group, after, members_max } => {
                let after = after.as_deref();
                document(offset_groups::describe(node, caller, &group, after, members_max).await)
            }
            Operation::SeekOffsetGroup { group, to, dry_run } => {
                document(offset_groups::seek(node, &group, &to, dry_run).await)
            }
            Operation::DeleteOffsetGroup { group, dry_run } => {
                document(offset_groups::delete(node, caller, &group, dry_run).await)
            }
            Operation::DescribeRecord { topic, place } => {
                document(history::describe(broker, caller, &topic, place).await)
            }
            Operation::FindRecords { topic, by, from_ms, after, records_max } => {
                let topic = topic.as_deref();
                document(find::find(broker, caller, topic, &by, from_ms, after, records_max).await)
            }
            Operation::Family { family, operation } => {
                families.carry_out(&family, &operation).await
            }
        }
    }
}

/// Whether an operation reads the node's copy of the catalog, which then must be current. Families check that
/// themselves.
fn reads_the_catalog(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::ListShards {}
            | Operation::ElectLeader {}
            | Operation::ListConnections { .. }
            | Operation::CloseConnection { .. }
            | Operation::Family { .. }
    )
}

fn document<T: Serialize>(answer: Result<T, AdminError>) -> Reply {
    serde_json::to_vec(&answer?)
        .map_err(|error| AdminError::Failed(format!("the answer is no JSON: {error}")))
}
