//! The topology on three nodes: a change of one node applies to all, and each change is based on current state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use routing::{Message, NoHeaders};
use test_cluster::{NodeSetup, TestNode, start_three};
use tokio::time::{sleep, timeout};
use topology::arguments::QUEUE_TYPE;
use topology::{
    BindingRequest, ChangeError, Destination, NewQueue, OwnerId, Queue, Topology, TopologyOptions,
    VirtualHost,
};
use values::Table;

/// The client at each node in most tests.
const CLIENT: OwnerId = OwnerId(1);
const SOON: Duration = Duration::from_secs(30);
/// Time after which a disconnected node counts as lost.
const GONE_AFTER: Duration = Duration::from_secs(5);

struct Node {
    node: TestNode,
    topology: Topology,
    vhost: VirtualHost,
}

async fn open(node: TestNode) -> Node {
    let options = TopologyOptions { gone_after: GONE_AFTER };
    let topology = Topology::open_with(node.broker.clone(), options).await.expect("it opens");
    let vhost = topology.vhost("/").expect("the default vhost is there");
    topology.open_owner(CLIENT);
    Node { node, topology, vhost }
}

async fn three() -> Vec<Node> {
    let started = timeout(SOON, start_three()).await.expect("they start");
    let nodes = join_all(started.into_iter().map(open)).await;
    for node in &nodes {
        node.node.broker.ready().await.expect("each shard is led");
    }
    nodes
}

/// Outcome of a declaration that was rejected.
#[derive(Debug)]
enum RejectedDeclaration {
    Different,
    Otherwise,
}

impl From<ChangeError> for RejectedDeclaration {
    fn from(_: ChangeError) -> Self {
        Self::Otherwise
    }
}

impl Node {
    async fn declare(
        &self,
        name: &str,
        durable: bool,
        auto_delete: bool,
        owner: Option<OwnerId>,
    ) -> Result<Arc<Queue>, RejectedDeclaration> {
        let mut arguments = Table::new();
        arguments.set(QUEUE_TYPE, "classic");
        let new = NewQueue { name, durable, auto_delete, owner, arguments: &arguments };
        let same = |present: Option<&Queue>| match present {
            Some(present) if present.durable != new.is_durable() => {
                Err(RejectedDeclaration::Different)
            }
            _ => Ok(()),
        };
        self.vhost.declare_queue(new, same).await
    }

    async fn bind(&self, queue: &str) -> Result<(), ChangeError> {
        let (destination, arguments) = (&Destination::Queue(queue.into()), &Table::new());
        let request = BindingRequest { source: "amq.fanout", destination, key: "", arguments };
        self.vhost.bind(CLIENT, request).await
    }

    fn reached(&self) -> Vec<String> {
        let mut found = Vec::new();
        let message = Message { keys: &[""], headers: &NoHeaders, deferred: false };
        let routed = self.vhost.routes().route("amq.fanout", &message, &mut found);
        routed.expect("the exchange is there");
        found.iter().map(|routed| routed.queue.name.to_string()).collect()
    }

    fn documents(&self, space: &str) -> usize {
        self.node.broker.catalog().documents(space).count()
    }

    async fn end(self) -> NodeSetup {
        let Self { node, topology, vhost } = self;
        drop((topology, vhost));
        node.end().await
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waited = timeout(SOON, async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_one_node_is_visible_on_another_at_once() {
    let nodes = three().await;
    for round in 0..5 {
        let (a, b) = (&nodes[round % 3], &nodes[(round + 1) % 3]);
        let name = &format!("q{round}");
        a.declare(name, true, false, None).await.expect("it is declared");
        let queue = b.vhost.queue(CLIENT, name).await.expect("it is there at once");
        assert!(queue.group().is_some());
        b.bind(name).await.expect("it is bound");
        a.vhost.refresh().await.expect("the catalog is led");
        assert_eq!(a.reached(), [name.as_str()]);
        assert_eq!(a.vhost.delete_queue(CLIENT, name, false, false).await, Ok(0));
        assert!(
            matches!(b.vhost.queue(CLIENT, name).await, Err(ChangeError::NotFound(_))) || {
                // The stale copy is corrected by a refresh.
                b.vhost.refresh().await.expect("the catalog is led");
                b.vhost.find_queue(name).is_none()
            }
        );
    }
    eventually("nothing is left", || nodes.iter().all(|node| node.documents("amqp.bindings") == 0))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_declaration_is_compared_with_the_one_committed_first() {
    let nodes = three().await;
    for round in 0..10 {
        let name = &format!("q{round}");
        let (one, other) = tokio::join!(
            nodes[1].declare(name, true, false, None),
            nodes[2].declare(name, false, false, None),
        );
        let durable = match (one, other) {
            (Ok(one), Err(RejectedDeclaration::Different)) => one,
            (Err(RejectedDeclaration::Different), Ok(other)) => other,
            both => panic!("one is made: {both:?}"),
        };
        let found = nodes[0].vhost.queue(CLIENT, name).await.expect("it is there");
        assert_eq!((found.topic, found.durable), (durable.topic, durable.durable));
    }
}

/// The loss of the catalog's leader is hidden from a change in progress: the node finds out whether it was committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_survive_the_loss_of_the_catalogs_leader() {
    let mut nodes = three().await;
    let leads = nodes.iter().position(|it| it.node.broker.leads_catalog());
    let leader = nodes.remove(leads.expect("the catalog is led"));
    let over = AtomicBool::new(false);
    let changes = async {
        let (node, mut rounds_after) = (&nodes[0], 0);
        for round in 0.. {
            let (kept, own) = (&format!("kept-{round}"), &format!("own-{round}"));
            node.declare(kept, true, false, None).await.expect("it is declared");
            node.bind(kept).await.expect("it is bound");
            node.declare(own, false, false, Some(CLIENT)).await.expect("it is declared");
            node.vhost.delete_queue(CLIENT, kept, false, false).await.expect("it is deleted");
            rounds_after += u32::from(over.load(Ordering::Relaxed));
            if rounds_after > 5 {
                break;
            }
        }
    };
    let ended = async {
        sleep(Duration::from_millis(100)).await;
        // The links close first, so that pending requests get no reply.
        leader.node.member.close().await;
        leader.end().await;
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(changes, ended);
    nodes[0].topology.close_owner(CLIENT).await.expect("they are deleted");
    let left = || nodes[0].documents("amqp.queues") + nodes[0].documents("amqp.bindings");
    eventually("what was made goes with its connection", || left() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_deleted_during_a_bind_leaves_no_binding() {
    let nodes = three().await;
    for round in 0..10 {
        let name = &format!("q{round}");
        nodes[1].declare(name, true, false, None).await.expect("it is declared");
        nodes[2].vhost.refresh().await.expect("the catalog is led");
        let (deleted, bound) = tokio::join!(
            nodes[1].vhost.delete_queue(CLIENT, name, false, false),
            nodes[2].bind(name),
        );
        deleted.expect("it is deleted");
        assert!(matches!(bound, Ok(()) | Err(ChangeError::NotFound(_))), "{bound:?}");
        // A new queue of the same name is another queue.
        nodes[1].declare(name, true, false, None).await.expect("it is declared");
        nodes[2].vhost.refresh().await.expect("the catalog is led");
        assert!(nodes.iter().all(|node| !node.reached().contains(name)));
    }
    eventually("stale bindings go", || nodes[0].documents("amqp.bindings") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclusive_queue_is_locked_on_other_nodes_and_deleted_with_its_node() {
    let mut nodes = three().await;
    nodes[2].declare("mine", false, false, Some(CLIENT)).await.expect("it is declared");
    nodes[2].declare("transient", false, false, None).await.expect("it is declared");
    nodes[1].declare("others", false, false, Some(CLIENT)).await.expect("it is declared");
    nodes[1].declare("kept", true, false, None).await.expect("it is declared");
    // The number of a connection is meaningless on another node.
    let locked = nodes[0].vhost.queue(CLIENT, "mine").await;
    assert!(matches!(locked, Err(ChangeError::Locked(_))));
    let place = nodes.pop().expect("there are three").end().await;
    let gone = |name: &str| nodes.iter().all(|node| node.vhost.find_queue(name).is_none());
    eventually("what went with the node is gone", || gone("mine") && gone("transient")).await;
    assert!(nodes[1].vhost.find_queue("others").is_some());
    let restarted = open(test_cluster::start(place).await).await;
    sleep(GONE_AFTER).await;
    for node in nodes.iter().chain([&restarted]) {
        node.vhost.refresh().await.expect("the catalog is led");
        assert!(node.vhost.find_queue("others").is_some(), "a start deletes nothing of others");
        assert!(node.vhost.find_queue("kept").is_some());
        assert!(node.vhost.find_queue("mine").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_node_deletes_its_exclusive_queues() {
    let mut nodes = three().await;
    nodes[2].declare("mine", false, false, Some(CLIENT)).await.expect("it is declared");
    let place = nodes.pop().expect("there are three").end().await;
    let _restarted = open(test_cluster::start(place).await).await;
    let gone = || nodes.iter().all(|node| node.vhost.find_queue("mine").is_none());
    eventually("it is gone", gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_delete_queue_is_deleted_with_the_last_consumer_on_any_node() {
    let nodes = three().await;
    nodes[0].declare("q", true, true, None).await.expect("it is declared");
    let consume = async |node: &Node| {
        let queue = node.vhost.queue(CLIENT, "q").await.expect("it is there");
        node.vhost.begin_use(&queue).await.expect("it does not go");
        queue.consumer_came();
        queue
    };
    let (here, there) = (consume(&nodes[1]).await, consume(&nodes[2]).await);
    nodes[1].vhost.consumer_left(&here).await.expect("it leaves");
    nodes[2].vhost.refresh().await.expect("the catalog is led");
    assert!(!here.is_deleted() && !there.is_deleted(), "another node has a consumer");
    nodes[2].vhost.consumer_left(&there).await.expect("it leaves");
    assert!(there.is_deleted());
    nodes[0].vhost.refresh().await.expect("the catalog is led");
    assert!(nodes[0].vhost.find_queue("q").is_none());
    assert_eq!(nodes[0].documents("amqp.queue-uses"), 0);
}
