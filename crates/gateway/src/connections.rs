//! The live connections of a node, whatever their protocol: for operators, who list and close them.
//!
//! Each has a number that no other connection of the node has had since its start: logs, sessions and
//! operators mean the same one by it. A session that is to be closed is told, and ends by itself: its protocol
//! may have a word for that. It looks at a flag, whenever its task runs for whatever reason; so a connection
//! that nobody closes pays one load for this, and no lock. Who wants to know what a session has asks it in the same
//! way ([`Connection::ask`]): nothing is kept of it elsewhere that had to be kept right with each record.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use base::limits::CONNECTION_TEXT_BYTES_MAX;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use world::Instant;

use crate::closed_lines::ClosedLines;
use crate::traffic::{Traffic, TrafficOfAll, TrafficSeen};

/// All of them. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Live>);

#[derive(Debug, Default)]
struct Live {
    last_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Connection>>,
    traffic: TrafficOfAll,
    gate: OnceLock<Arc<dyn Gate>>,
    closed_lines: Arc<ClosedLines>,
}

/// Who may connect, besides how many there may be.
pub trait Gate: Send + Sync + std::fmt::Debug {
    /// Somebody connects from there. `Err`: it is to be closed after so long.
    fn opens(&self, peer: SocketAddr, protocol: &'static str) -> Result<(), Duration>;
}

/// One of them. Clones are the same.
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
    learned: Mutex<Learned>,
}

/// What became known after the connection was accepted.
#[derive(Debug, Default)]
struct Learned {
    client: Box<str>,
    user: Box<str>,
    /// Why an operator wants it closed, if that was said.
    close_reason: Box<str>,
    /// Wakes the session's task.
    task: Option<Waker>,
    asking: Vec<oneshot::Sender<Told>>,
}

/// What a session tells of itself, in a type of its protocol.
pub type Told = Arc<dyn Any + Send + Sync>;

/// While this is held a connection is among the live ones.
#[derive(Debug)]
pub struct Registered {
    connection: Connection,
    connections: Connections,
}

impl Connections {
    /// From now on this one is asked about clients; once.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        let set = self.0.gate.set(gate);
        debug_assert!(set.is_ok(), "there was a gate before");
    }

    pub(crate) fn opens(&self, peer: SocketAddr, protocol: &'static str) -> Result<(), Duration> {
        self.0.gate.get().map_or(Ok(()), |gate| gate.opens(peer, protocol))
    }

    /// Adds one, with a number of its own. `local`: this node's end of it.
    pub fn register(
        &self,
        protocol: &'static str,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Registered {
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
        Registered { connection, connections: self.clone() }
    }

    /// What went through the connections of a protocol.
    pub fn traffic(&self, protocol: &'static str) -> Traffic {
        self.0.traffic.of(protocol)
    }

    /// The same of each protocol that there is.
    pub fn traffic_seen(&self) -> Vec<(&'static str, TrafficSeen)> {
        self.0.traffic.seen()
    }

    /// The first `max` of them after the one of that number, in the order in which they came.
    pub fn list(&self, after: Option<u64>, max: usize) -> Vec<Connection> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let by_id = self.0.by_id.lock();
        by_id.range((from, Bound::Unbounded)).take(max).map(|(_, it)| it.clone()).collect()
    }

    /// Tells the session of this connection to end. False: there is none of that number.
    pub fn close(&self, id: u64) -> bool {
        self.close_because(id, "")
    }

    /// The same, with a reason that the client is told where its protocol has a word for that.
    pub fn close_because(&self, id: u64, reason: &str) -> bool {
        let found = self.0.by_id.lock().get(&id).cloned();
        found.inspect(|connection| connection.close(reason)).is_some()
    }
}

impl Connection {
    /// Whether the log gets a line about a bad end of this connection: with how many such lines were left out before.
    pub fn closed_line(&self) -> Option<u64> {
        self.0.closed_lines.next(self.0.peer.ip(), self.0.protocol, Instant::now())
    }

    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub fn protocol(&self) -> &'static str {
        self.0.protocol
    }

    /// What went through connections of its protocol.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// This node's end of it.
    pub fn local(&self) -> SocketAddr {
        self.0.local
    }

    /// For how long it has been there.
    pub fn age(&self) -> Duration {
        self.0.since.elapsed()
    }

    /// The client's library and its version, once it has told them; else empty.
    pub fn client(&self) -> String {
        self.0.learned.lock().client.to_string()
    }

    pub fn set_client(&self, client: &str) {
        self.0.learned.lock().client = shortened(client).into();
    }

    /// Who has logged in, if somebody has; else empty.
    pub fn user(&self) -> String {
        self.0.learned.lock().user.to_string()
    }

    pub fn set_user(&self, user: &str) {
        self.0.learned.lock().user = shortened(user).into();
    }

    /// Whether an operator wants it closed.
    pub fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    /// Why an operator wants it closed, if that was said.
    pub fn close_reason(&self) -> Option<String> {
        let learned = self.0.learned.lock();
        (!learned.close_reason.is_empty()).then(|| learned.close_reason.to_string())
    }

    /// Returns once an operator wants it closed. Only the task that [`crate::serve`] made for the
    /// connection is woken for that.
    pub async fn closing(&self) {
        poll_fn(|_| if self.is_closing() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// What the session has, as its own task tells it. `None`: it has ended, or tells nothing within this time, as those do
    /// that have nothing to tell.
    pub async fn ask(&self, within: Duration) -> Option<Told> {
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

    /// Whether somebody asks what the session has.
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }

    /// Returns once somebody does. As [`Connection::closing`], from the connection's task.
    pub async fn asked(&self) {
        poll_fn(|_| if self.is_asked() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Answers all who ask.
    pub fn tell(&self, told: &Told) {
        let asking = {
            let mut learned = self.0.learned.lock();
            self.0.asked.store(false, Ordering::Release);
            std::mem::take(&mut learned.asking)
        };
        for one in asking {
            // Who has not waited for it has gone.
            let _ = one.send(Arc::clone(told));
        }
    }

    fn close(&self, reason: &str) {
        let task = {
            // Under the lock, so that a task that begins meanwhile is either woken or sees the flag.
            let mut learned = self.0.learned.lock();
            // The session reads the first reason that there was, once.
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

    /// From within the session's task, before anything else runs in it. A task has the same waker for as long
    /// as it lives.
    pub(crate) async fn enter_task(&self) {
        poll_fn(|context| {
            self.0.learned.lock().task = Some(context.waker().clone());
            Poll::Ready(())
        })
        .await;
    }
}

/// The beginning of what a client says of itself, which may be long.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(CONNECTION_TEXT_BYTES_MAX)]
}

impl Registered {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.0.by_id.lock().remove(&self.connection.id());
        // Nobody tells them any more.
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
    async fn they_are_listed_by_number_a_page_at_a_time_while_they_are_held() {
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
    async fn a_session_tells_what_it_has_to_all_who_ask() {
        let long = Duration::from_secs(60);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let registered = Connections::default().register("amqp", peer, peer);
        let connection = registered.connection().clone();
        let session = tokio::spawn({
            let connection = connection.clone();
            async move {
                connection.enter_task().await;
                for number in 1..=2_u32 {
                    connection.asked().await;
                    connection.tell(&(Arc::new(number) as Told));
                }
            }
        });
        let number =
            async || connection.ask(long).await.and_then(|told| told.downcast::<u32>().ok());
        assert_eq!(number().await.as_deref(), Some(&1));
        assert_eq!(number().await.as_deref(), Some(&2));
        session.await.expect("ends");
        // One that says nothing, and one that has ended.
        assert!(connection.ask(Duration::from_millis(1)).await.is_none());
        let (asked, ()) = tokio::join!(connection.ask(long), async { drop(registered) });
        assert!(asked.is_none());
    }

    #[test]
    fn the_first_reason_to_close_one_is_kept() {
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
    async fn what_a_client_says_of_itself_is_kept_in_part_if_it_is_long() {
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
