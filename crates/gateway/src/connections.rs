//! The live connections of a node, of all protocols, which operators list and close.
//!
//! Each has a number that is unique since the node's start, by which logs, sessions and operators refer to it. A
//! session to be closed is notified and ends by itself, because its protocol may have a message for that. It checks a
//! flag whenever its task runs, so a connection that is not closed pays one load for this, and no lock. A session's
//! snapshot is requested in the same way ([`Connection::request_snapshot`]): no copy of its state has to be updated
//! with each record.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::limits::CONNECTION_TEXT_BYTES_MAX;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use world::Instant;

use crate::closed_lines::ClosedLines;
use crate::traffic::{Traffic, TrafficOfAll, TrafficSeen};

/// All live connections. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<ConnectionTable>);

#[derive(Debug, Default)]
struct ConnectionTable {
    last_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Connection>>,
    traffic: TrafficOfAll,
    gate: OnceLock<Arc<dyn Gate>>,
    closed_lines: Arc<ClosedLines>,
}

/// Admission of new connections, beyond the limit of their number.
pub trait Gate: Send + Sync + std::fmt::Debug {
    /// Called for each new connection. `Err`: the connection is closed after this delay.
    fn opens(&self, peer: SocketAddr, protocol: &'static str) -> Result<(), Duration>;
}

/// A live connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Connection(Arc<State>);

#[derive(Debug)]
struct State {
    id: u64,
    protocol: &'static str,
    traffic: Traffic,
    closed_lines: Arc<ClosedLines>,
    peer: SocketAddr,
    local: SocketAddr,
    since: Instant,
    closing: AtomicBool,
    asked: AtomicBool,
    learned: Mutex<SessionFacts>,
}

/// Facts learned after the connection was accepted.
#[derive(Debug, Default)]
struct SessionFacts {
    client: Box<str>,
    user: Box<str>,
    /// The operator's reason for the close, if given.
    close_reason: Box<str>,
    /// Wakes the session's task.
    task: Option<Waker>,
    asking: Vec<oneshot::Sender<SessionSnapshot>>,
}

/// A session's snapshot, in a type of its protocol.
pub type SessionSnapshot = Arc<dyn Any + Send + Sync>;

/// Keeps a connection among the live ones until it is dropped.
#[derive(Debug)]
pub struct RegisteredConnection {
    connection: Connection,
    connections: Connections,
}

impl Connections {
    /// Sets the gate for new clients; may be called once.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        let set = self.0.gate.set(gate);
        debug_assert!(set.is_ok(), "there was a gate before");
    }

    pub(crate) fn opens(&self, peer: SocketAddr, protocol: &'static str) -> Result<(), Duration> {
        self.0.gate.get().map_or(Ok(()), |gate| gate.opens(peer, protocol))
    }

    /// Registers a connection under a new number. `local`: this node's address.
    pub fn register(
        &self,
        protocol: &'static str,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> RegisteredConnection {
        let id = self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Connection(Arc::new(State {
            id,
            protocol,
            traffic: self.traffic(protocol),
            closed_lines: Arc::clone(&self.0.closed_lines),
            peer,
            local,
            since: Instant::now(),
            closing: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            learned: Mutex::default(),
        }));
        connection.traffic().opened();
        self.0.by_id.lock().insert(id, connection.clone());
        RegisteredConnection { connection, connections: self.clone() }
    }

    /// Traffic of the connections of a protocol.
    pub fn traffic(&self, protocol: &'static str) -> Traffic {
        self.0.traffic.of(protocol)
    }

    /// Traffic of each protocol.
    pub fn traffic_seen(&self) -> Vec<(&'static str, TrafficSeen)> {
        self.0.traffic.seen()
    }

    /// The first `max` connections after the given number, in the order of their numbers.
    pub fn list(&self, after: Option<u64>, max: usize) -> Vec<Connection> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let by_id = self.0.by_id.lock();
        by_id.range((from, Bound::Unbounded)).take(max).map(|(_, it)| it.clone()).collect()
    }

    /// Makes the session of this connection end. False: there is no such connection.
    pub fn close(&self, id: u64) -> bool {
        self.close_because(id, "")
    }

    /// Like [`Self::close`], with a reason that is sent to the client where its protocol supports that.
    pub fn close_because(&self, id: u64, reason: &str) -> bool {
        let found = self.0.by_id.lock().get(&id).cloned();
        found.inspect(|connection| connection.close(reason)).is_some()
    }
}

impl Connection {
    /// Decides whether a bad end of this connection is logged. `Some`: with the number of such lines suppressed
    /// before.
    pub fn closed_line(&self) -> Option<u64> {
        self.0.closed_lines.next(self.0.peer.ip(), self.0.protocol, Instant::now())
    }

    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub fn protocol(&self) -> &'static str {
        self.0.protocol
    }

    /// Traffic of its protocol.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// This node's address of the connection.
    pub fn local(&self) -> SocketAddr {
        self.0.local
    }

    /// Time since the connection was accepted.
    pub fn age(&self) -> Duration {
        self.0.since.elapsed()
    }

    /// The client's library and its version; empty until known.
    pub fn client(&self) -> String {
        self.0.learned.lock().client.to_string()
    }

    pub fn set_client(&self, client: &str) {
        self.0.learned.lock().client = shortened(client).into();
    }

    /// The logged-in user; empty before the login.
    pub fn user(&self) -> String {
        self.0.learned.lock().user.to_string()
    }

    pub fn set_user(&self, user: &str) {
        self.0.learned.lock().user = shortened(user).into();
    }

    /// Whether an operator has closed it.
    pub fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    /// The operator's reason for the close, if given.
    pub fn close_reason(&self) -> Option<String> {
        let learned = self.0.learned.lock();
        (!learned.close_reason.is_empty()).then(|| learned.close_reason.to_string())
    }

    /// Waits until an operator closes the connection. Only the task that [`crate::serve`] started for the connection
    /// is woken for that.
    pub async fn closing(&self) {
        poll_fn(|_| if self.is_closing() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Requests the session's snapshot from its task. `None`: the session has ended, or sends none within this time,
    /// as sessions of some protocols never do.
    pub async fn request_snapshot(&self, within: Duration) -> Option<SessionSnapshot> {
        let (telling, told) = oneshot::channel();
        let task = {
            let mut learned = self.0.learned.lock();
            learned.asking.retain(|asking| !asking.is_closed());
            learned.asking.push(telling);
            self.0.asked.store(true, Ordering::Release);
            learned.task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
        timeout(within, told).await.ok()?.ok()
    }

    /// Whether a snapshot is requested.
    pub fn is_snapshot_requested(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }

    /// Waits until a snapshot is requested, from the connection's task like [`Connection::closing`].
    pub async fn snapshot_requested(&self) {
        poll_fn(|_| if self.is_snapshot_requested() { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    /// Sends the snapshot to all pending requests.
    pub fn send_snapshot(&self, told: &SessionSnapshot) {
        let asking = {
            let mut learned = self.0.learned.lock();
            self.0.asked.store(false, Ordering::Release);
            std::mem::take(&mut learned.asking)
        };
        for one in asking {
            // The requester has stopped waiting.
            let _ = one.send(Arc::clone(told));
        }
    }

    fn close(&self, reason: &str) {
        let task = {
            // Under the lock, so that a starting task is either woken or sees the flag.
            let mut learned = self.0.learned.lock();
            // The session reads the reason once, so the first one is kept.
            if !self.is_closing() {
                learned.close_reason = shortened(reason).into();
            }
            self.0.closing.store(true, Ordering::Release);
            learned.task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Registers the waker of the session's task, before anything else runs in it. A task keeps its waker for life.
    pub(crate) async fn enter_task(&self) {
        poll_fn(|context| {
            self.0.learned.lock().task = Some(context.waker().clone());
            Poll::Ready(())
        })
        .await;
    }
}

/// The beginning of a text sent by the client, which may be long.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(CONNECTION_TEXT_BYTES_MAX)]
}

impl RegisteredConnection {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.connections.0.by_id.lock().remove(&self.connection.id());
        // These requests would never be answered.
        self.connection.0.learned.lock().asking.clear();
        self.connection.traffic().closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(connections: &[Connection]) -> Vec<u64> {
        connections.iter().map(Connection::id).collect()
    }

    #[tokio::test]
    async fn live_connections_are_listed_by_number_in_pages() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let connections = Connections::default();
        let mut held: Vec<_> = (0..5).map(|_| connections.register("kafka", peer, peer)).collect();
        drop(held.remove(1));
        assert_eq!(ids(&connections.list(None, 2)), [1, 3]);
        assert_eq!(ids(&connections.list(Some(3), 2)), [4, 5]);
        assert_eq!(ids(&connections.list(Some(2), 1)), [3]);
        assert!(connections.list(Some(5), 2).is_empty());
        // A number is not used again.
        drop(held);
        assert_eq!(connections.register("amqp", peer, peer).connection().id(), 6);
        assert!(connections.list(None, 10).is_empty());
    }

    #[tokio::test]
    async fn session_sends_its_snapshot_to_all_requesters() {
        let long = Duration::from_secs(60);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let registered = Connections::default().register("amqp", peer, peer);
        let connection = registered.connection().clone();
        let session = tokio::spawn({
            let connection = connection.clone();
            async move {
                connection.enter_task().await;
                for number in 1..=2_u32 {
                    connection.snapshot_requested().await;
                    connection.send_snapshot(&(Arc::new(number) as SessionSnapshot));
                }
            }
        });
        let number = async || {
            connection.request_snapshot(long).await.and_then(|told| told.downcast::<u32>().ok())
        };
        assert_eq!(number().await.as_deref(), Some(&1));
        assert_eq!(number().await.as_deref(), Some(&2));
        session.await.expect("ends");
        // A session that does not reply, and one that has ended.
        assert!(connection.request_snapshot(Duration::from_millis(1)).await.is_none());
        let (asked, ()) =
            tokio::join!(connection.request_snapshot(long), async { drop(registered) });
        assert!(asked.is_none());
    }

    #[test]
    fn first_close_reason_is_kept() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let local = SocketAddr::from(([127, 0, 0, 1], 2));
        let connections = Connections::default();
        let held = connections.register("amqp", peer, local);
        let connection = held.connection();
        assert_eq!((connection.peer(), connection.local()), (peer, local));
        assert_eq!((connection.is_closing(), connection.close_reason()), (false, None));
        assert!(connections.close_because(1, &"x".repeat(CONNECTION_TEXT_BYTES_MAX + 1)));
        assert!(connections.close_because(1, "another"));
        let reason = connection.close_reason().expect("a reason");
        assert_eq!((connection.is_closing(), reason.len()), (true, CONNECTION_TEXT_BYTES_MAX));
        let other = connections.register("amqp", peer, local);
        assert!(connections.close(2));
        assert_eq!(other.connection().close_reason(), None);
    }

    #[tokio::test]
    async fn long_client_name_is_truncated() {
        let peer = SocketAddr::from(([0; 4], 1));
        let registered = Connections::default().register("amqp", peer, peer);
        let connection = registered.connection();
        assert_eq!((connection.client(), connection.user()), (String::new(), String::new()));
        connection.set_user("guest");
        // Two bytes each, after one.
        connection.set_client(&format!("a{}", "ß".repeat(CONNECTION_TEXT_BYTES_MAX)));
        assert_eq!(connection.user(), "guest");
        assert_eq!(connection.client().len(), CONNECTION_TEXT_BYTES_MAX - 1);
    }
}
