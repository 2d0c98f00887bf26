//! Connections between nodes of one process: delays by a seed, cuts in both directions or one, streams that are
//! held back, connections that break. Messages sent while a connection is cut arrive when it heals, unless they
//! timed out by then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use consensus::{
    AppendMessage, BulkReply, Consensus, MessageTarget, PeerError, Peers, ReceivedAppend,
};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use crate::random::Random;

/// A connection without traffic for this long is closed.
const SILENCE_MAX: Duration = Duration::from_millis(1_600);

#[derive(Clone)]
pub(crate) struct Network(Arc<State>);

struct State {
    random: Mutex<Random>,
    delay_ms_max: AtomicU64,
    /// Running nodes and their runs: messages to a former run do not arrive.
    nodes: Mutex<BTreeMap<u64, (u64, Consensus)>>,
    lives: AtomicU64,
    /// Cut directions, one way each.
    cut: Mutex<BTreeSet<(u64, u64)>>,
    /// Directions in which replies to appends are held back.
    held: Mutex<BTreeSet<(u64, u64)>>,
    /// Connections with an older number are broken.
    broken_before: AtomicU64,
    /// One of this many pieces of snapshots is damaged in transit; 0: none.
    damaged_one_in: AtomicU64,
    /// Bytes of pieces that were sent.
    fetched_bytes: AtomicU64,
    changed: Notify,
}

impl State {
    fn tamper(&self, fetched: &mut BulkReply) {
        self.fetched_bytes.fetch_add(fetched.piece.len() as u64, Ordering::SeqCst);
        let one_in = self.damaged_one_in.load(Ordering::SeqCst);
        let mut random = self.random.lock();
        if one_in == 0 || fetched.piece.is_empty() || random.below(one_in) > 0 {
            return;
        }
        let mut piece = fetched.piece.to_vec();
        let place = random.below(piece.len() as u64) as usize;
        match random.below(3) {
            0 => piece.truncate(place),
            1 => piece.extend_from_slice(b"more"),
            _ => piece[place] ^= 1,
        }
        fetched.piece = piece.into();
    }
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(State {
            random: Mutex::new(Random(seed)),
            delay_ms_max: AtomicU64::new(3),
            nodes: Mutex::default(),
            lives: AtomicU64::new(1),
            cut: Mutex::default(),
            held: Mutex::default(),
            broken_before: AtomicU64::new(0),
            damaged_one_in: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            changed: Notify::new(),
        }))
    }

    pub(crate) fn set_delay_ms_max(&self, ms: u64) {
        self.0.delay_ms_max.store(ms, Ordering::SeqCst);
    }

    pub(crate) fn damage_pieces(&self, one_in: u64) {
        self.0.damaged_one_in.store(one_in, Ordering::SeqCst);
    }

    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.0.fetched_bytes.load(Ordering::SeqCst)
    }

    /// The outgoing path of a node that is about to start. It ends with the node.
    pub(crate) fn way_of(&self, node: u64) -> Arc<OutgoingPath> {
        let life = self.0.lives.fetch_add(1, Ordering::SeqCst);
        Arc::new(OutgoingPath { network: self.clone(), node, life })
    }

    pub(crate) fn join(&self, way: &OutgoingPath, consensus: Consensus) {
        self.0.nodes.lock().insert(way.node, (way.life, consensus));
    }

    pub(crate) fn leave(&self, node: u64) {
        self.0.nodes.lock().remove(&node);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn cut_one_way(&self, from: u64, to: u64) {
        self.0.cut.lock().insert((from, to));
    }

    /// Cuts a node off from these nodes.
    pub(crate) fn cut_off(&self, node: u64, others: impl IntoIterator<Item = u64>) {
        for other in others.into_iter().filter(|other| *other != node) {
            self.cut_one_way(node, other);
            self.cut_one_way(other, node);
        }
    }

    pub(crate) fn hold_answers(&self, from: u64, to: u64) {
        self.0.held.lock().insert((from, to));
    }

    pub(crate) fn heal(&self) {
        self.0.cut.lock().clear();
        self.0.held.lock().clear();
        self.0.changed.notify_waiters();
    }

    pub(crate) fn break_connections(&self) {
        let now = self.0.lives.fetch_add(1, Ordering::SeqCst);
        self.0.broken_before.store(now, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    fn delay(&self) -> Duration {
        let max = self.0.delay_ms_max.load(Ordering::SeqCst);
        Duration::from_micros(self.0.random.lock().below(max * 1_000 + 1))
    }

    fn life(&self, node: u64) -> Option<u64> {
        self.0.nodes.lock().get(&node).map(|(life, _)| *life)
    }

    fn node(&self, node: u64) -> Option<(u64, Consensus)> {
        self.0.nodes.lock().get(&node).cloned()
    }
}

/// A connection between two runs.
#[derive(Clone)]
struct Connection {
    network: Network,
    number: u64,
    ends: [(u64, u64); 2],
}

impl Connection {
    fn check(&self) -> Result<(), PeerError> {
        let alive = self.ends.iter().all(|(node, life)| self.network.life(*node) == Some(*life));
        let broken = self.number < self.network.0.broken_before.load(Ordering::SeqCst);
        match alive && !broken {
            true => Ok(()),
            false => Err(PeerError::Broken("reset".to_owned())),
        }
    }

    /// Waits as long as a message takes from one to the other.
    async fn pass(&self, from: u64, to: u64, answer: bool) -> Result<(), PeerError> {
        let State { cut, held, changed, .. } = &*self.network.0;
        let passes = async {
            sleep(self.network.delay()).await;
            loop {
                let mended = changed.notified();
                self.check()?;
                let way = (from, to);
                let stays = cut.lock().contains(&way) || answer && held.lock().contains(&way);
                if !stays {
                    return Ok(());
                }
                mended.await;
            }
        };
        let silent = PeerError::Broken("silent".to_owned());
        timeout(SILENCE_MAX, passes).await.unwrap_or(Err(silent))
    }
}

/// A node's outgoing path.
pub(crate) struct OutgoingPath {
    network: Network,
    node: u64,
    life: u64,
}

impl OutgoingPath {
    fn connect(&self, to: u64) -> Result<(Connection, Consensus), PeerError> {
        let unreachable = || PeerError::Unreachable(format!("node {to} is down"));
        let (life, consensus) = self.network.node(to).ok_or_else(unreachable)?;
        if self.network.life(self.node) != Some(self.life) {
            return Err(PeerError::Unreachable("this process is dead".to_owned()));
        }
        let number = self.network.0.lives.fetch_add(1, Ordering::SeqCst);
        let ends = [(self.node, self.life), (to, life)];
        Ok((Connection { network: self.network.clone(), number, ends }, consensus))
    }
}

impl Peers for OutgoingPath {
    fn request(
        &self,
        to: MessageTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, PeerError>> {
        let (connected, here, there) = (self.connect(to.node), self.node, to.node);
        Box::pin(async move {
            let (connection, peer) = connected?;
            let answered = async {
                connection.pass(here, there, false).await?;
                let answer = peer.answer(request).await;
                connection.pass(there, here, false).await?;
                Ok(answer)
            };
            let late = PeerError::Broken("no answer in time".to_owned());
            timeout(within, answered).await.unwrap_or(Err(late))
        })
    }

    fn fetch(
        &self,
        to: MessageTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<BulkReply, PeerError>> {
        let (connected, here, there) = (self.connect(to.node), self.node, to.node);
        let tampering = Arc::clone(&self.network.0);
        Box::pin(async move {
            let (connection, peer) = connected?;
            let fetched = async {
                connection.pass(here, there, false).await?;
                let mut fetched = peer.answer_fetch(request).await;
                connection.pass(there, here, false).await?;
                tampering.tamper(&mut fetched);
                Ok(fetched)
            };
            let late = PeerError::Broken("no answer in time".to_owned());
            timeout(within, fetched).await.unwrap_or(Err(late))
        })
    }

    fn append(
        &self,
        to: MessageTarget,
        appends: BoxStream<'static, AppendMessage>,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<Bytes, PeerError>>, PeerError>> {
        let (connected, here, there) = (self.connect(to.node), self.node, to.node);
        Box::pin(async move {
            let (connection, peer) = connected?;
            let (sender, received) = mpsc::channel(1);
            let sending = tokio::spawn(send(connection.clone(), (here, there), appends, sender));
            let received = stream::unfold(received, |mut received| async {
                Some((received.recv().await?, received))
            });
            let answers = peer.answer_appends(received).boxed();
            let end = SendGuard { sending: Some(sending) };
            let state = Some((answers, connection, end));
            Ok(stream::unfold(state, move |state| answer(state, (there, here))).boxed())
        })
    }
}

/// Stops sending when the receiver of replies is gone.
struct SendGuard {
    sending: Option<tokio::task::JoinHandle<Result<(), PeerError>>>,
}

impl Drop for SendGuard {
    fn drop(&mut self) {
        if let Some(sending) = &self.sending {
            sending.abort();
        }
    }
}

async fn send(
    connection: Connection,
    (from, to): (u64, u64),
    mut appends: BoxStream<'static, AppendMessage>,
    sender: mpsc::Sender<ReceivedAppend>,
) -> Result<(), PeerError> {
    while let Some(AppendMessage { head, entries }) = appends.next().await {
        connection.pass(from, to, false).await?;
        let mut buffer = BytesMut::new();
        entries.iter().for_each(|piece| buffer.extend_from_slice(piece));
        if sender.send(ReceivedAppend { head, entries: buffer.freeze() }).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

type OpenReplyStream = (BoxStream<'static, Bytes>, Connection, SendGuard);

async fn answer(
    state: Option<OpenReplyStream>,
    (from, to): (u64, u64),
) -> Option<(Result<Bytes, PeerError>, Option<OpenReplyStream>)> {
    let (mut answers, connection, mut end) = state?;
    let next = async {
        // A broken connection also ends the wait for a reply.
        loop {
            let changed = connection.network.0.changed.notified();
            connection.check()?;
            tokio::select! {
                biased;
                answer = answers.next() => return Ok(answer),
                () = changed => {}
            }
        }
    };
    match next.await {
        Ok(Some(answer)) => match connection.pass(from, to, true).await {
            Ok(()) => Some((Ok(answer), Some((answers, connection, end)))),
            Err(error) => Some((Err(error), None)),
        },
        // The sender's error is the reason for the end.
        Ok(None) => match end.sending.take()?.await {
            Ok(Err(error)) => Some((Err(error), None)),
            _ => None,
        },
        Err(error) => Some((Err(error), None)),
    }
}
