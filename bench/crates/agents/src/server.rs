//! An agent: carries out a coordinator's requests, for one coordinator at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use driver::{Driver, Failure, Target};
use load::clock::Clock;
use load::{Crew, Ended, Tasks};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::assignment::Assignment;
use crate::wire::{
    FRAME_BYTES_MAX, Farewell, Hello, Line, PROTOCOL, Reply, Request, STRANGER_BYTES_MAX, VERSION,
    Welcome, WireError,
};

/// Time limit for a new connection's hello.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Time limit for the previous coordinator's connection to end.
const TURN_MAX: Duration = Duration::from_secs(3);
/// Limit between two requests before and after the load: other agents may take that long to
/// connect, or to end.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// Limit between two requests during the load: the coordinator sends ten a second.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Time limit for all connections to the system under test.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(120);
/// Largest lead time of a start.
const START_WITHIN: Duration = Duration::from_secs(30);
const CONNECTIONS_MAX: usize = 16;
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Reads the settings of a target. The first call on the driver shows whether the server is up.
pub type Connect = fn(&Target) -> Result<Arc<dyn Driver>, Failure>;

/// Reasons that the agent cannot listen.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("{address}: {why}")]
    Listen { address: String, why: std::io::Error },
    #[error("{0} can be reached from other machines, so it needs a token: --token-file FILE")]
    NeedsToken(SocketAddr),
}

#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    place: Arc<Place>,
}

/// State shared by the agent's connections.
#[derive(Debug)]
struct Place {
    token: Option<String>,
    connect: Connect,
    /// Permit to work for a coordinator.
    turn: Semaphore,
    /// Address of the current coordinator.
    taken: Mutex<Option<SocketAddr>>,
}

impl Server {
    /// Listens on the address. Without a token it must be a loopback address.
    pub async fn bind(
        address: &str,
        token: Option<String>,
        connect: Connect,
    ) -> Result<Self, ServeError> {
        let failed = |why| ServeError::Listen { address: address.to_owned(), why };
        let resolved: Vec<SocketAddr> = lookup_host(address).await.map_err(failed)?.collect();
        if let Some(open) = resolved.iter().find(|it| !it.ip().is_loopback())
            && token.is_none()
        {
            return Err(ServeError::NeedsToken(*open));
        }
        let listener = TcpListener::bind(&resolved[..]).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let place =
            Arc::new(Place { token, connect, turn: Semaphore::new(1), taken: Mutex::new(None) });
        Ok(Self { listener, address, place })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Works until it is dropped.
    pub async fn serve(self) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    continue;
                }
            };
            // A connection over the limit is closed without a reply.
            let Ok(room) = Arc::clone(&room).try_acquire_owned() else { continue };
            let place = Arc::clone(&self.place);
            connections.spawn(async move {
                match place.attend(stream, peer).await {
                    Ok(()) | Err(WireError::Closed) => tracing::info!(%peer, "is done"),
                    Err(why) => tracing::warn!(%peer, %why, "is given up"),
                }
                drop(room);
            });
        }
    }
}

impl Place {
    async fn attend(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), WireError> {
        let mut line = Line::new(stream)?;
        let (hello, _) = line.receive::<Hello>(STRANGER_BYTES_MAX, HELLO_MAX).await?;
        let work = match self.refused(&hello) {
            Some(why) => Err(why),
            None => self.take(peer).await,
        };
        let _work = match work {
            Ok(work) => work,
            Err(why) => {
                tracing::warn!(%peer, why, "is refused");
                return line.send(&Welcome::Refused { why }, &[], ANSWER_MAX).await;
            }
        };
        let (version, host) = (VERSION.to_owned(), Box::new(load::host::machine()));
        line.send(&Welcome::Come { protocol: PROTOCOL, version, host }, &[], ANSWER_MAX).await?;
        tracing::info!(%peer, "coordinates");
        self.converse(&mut line).await
    }

    fn refused(&self, hello: &Hello) -> Option<String> {
        match (&self.token, &hello.token) {
            (None, _) => {}
            (Some(_), None) => return Some("it asks for a token: --token-file FILE".to_owned()),
            (Some(wanted), Some(said)) if same(wanted, said) => {}
            (Some(_), Some(_)) => return Some("the token is not the one that it has".to_owned()),
        }
        ((hello.protocol, hello.version.as_str()) != (PROTOCOL, VERSION)).then(|| {
            format!(
                "it is postroad-bench {VERSION} (protocol {PROTOCOL}), the coordinator is {} \
                 (protocol {}): all machines need the same",
                hello.version, hello.protocol
            )
        })
    }

    async fn take(&self, peer: SocketAddr) -> Result<Taken<'_>, String> {
        // The previous load's connection may be about to end.
        let Ok(Ok(turn)) = timeout(TURN_MAX, self.turn.acquire()).await else {
            let other = self.taken.lock().map_or(String::new(), |other| format!(" at {other}"));
            return Err(format!("it works for another coordinator{other}"));
        };
        *self.taken.lock() = Some(peer);
        Ok(Taken { place: self, _turn: turn })
    }

    async fn converse(&self, line: &mut Line) -> Result<(), WireError> {
        let mut work = None;
        let mut silence = IDLE_MAX;
        loop {
            let (request, _) = line.receive::<Request>(FRAME_BYTES_MAX, silence).await?;
            match request {
                Request::Start { .. } => silence = SILENCE_MAX,
                Request::End { .. } => silence = IDLE_MAX,
                _ => {}
            }
            let (reply, bytes) = self.answer(request, &mut work).await;
            line.send(&reply, &bytes, ANSWER_MAX).await?;
        }
    }

    async fn answer(&self, request: Request, work: &mut Option<Work>) -> (Reply, Vec<u8>) {
        let done = match (request, work.as_mut()) {
            (Request::Clock, _) => {
                return (Reply::Clock { now_ns: Clock::default().now_ns() }, Vec::new());
            }
            (Request::Prepare(assignment), None) => {
                self.prepare(*assignment).await.map(|prepared| *work = Some(prepared))
            }
            (Request::Start { at_ns }, Some(work)) => work.start(at_ns).await,
            (Request::Look { latencies }, Some(work)) => match work.tasks.report(latencies) {
                Ok(mut report) => {
                    let journal = std::mem::take(&mut report.journal);
                    return (Reply::Report(Box::new(report)), journal);
                }
                Err(overflow) => Err(overflow.to_string()),
            },
            (Request::Receivers(receivers), Some(work)) => {
                work.tasks.receivers(receivers).await.map_err(|gone| gone.to_string())
            }
            (Request::StopSenders, Some(work)) => {
                work.tasks.stop_senders().await.map_err(|gone| gone.to_string())
            }
            (Request::End { at_once }, Some(work)) => {
                let Ended { errors, processes, .. } = work.tasks.end(at_once).await;
                return (Reply::Ended(Farewell { errors, processes }), Vec::new());
            }
            (Request::Prepare(_), Some(_)) => Err("it has a load already".to_owned()),
            (_, None) => Err("it has no load".to_owned()),
        };
        (done.map_or_else(|why| Reply::Failed { why }, |()| Reply::Done), Vec::new())
    }

    async fn prepare(&self, assignment: Assignment) -> Result<Work, String> {
        if let Some(what) = assignment.refused() {
            return Err(format!("it does not take {what} like these"));
        }
        let clock = assignment.clock();
        let Assignment { target, plan, share, receivers, .. } = assignment;
        let driver = (self.connect)(&target).map_err(|failure| failure.to_string())?;
        let tasks = Tasks::for_agent(Arc::new(plan), driver, share, clock);
        let mut tasks = tasks.map_err(|error| error.to_string())?;
        let connected = timeout(CONNECT_MAX, tasks.connect(receivers)).await;
        let seconds = CONNECT_MAX.as_secs();
        let connected = connected.map_err(|_| format!("not connected after {seconds} s"))?;
        connected.map_err(|error| error.to_string())?;
        Ok(Work { tasks, clock })
    }
}

/// The agent's work for one coordinator; ends when it is dropped.
#[derive(Debug)]
struct Work {
    tasks: Tasks,
    clock: Clock,
}

impl Work {
    async fn start(&mut self, at_ns: u64) -> Result<(), String> {
        if self.clock.until(at_ns) > START_WITHIN {
            return Err("the start is too far ahead".to_owned());
        }
        self.tasks.start_at(at_ns).await.map_err(|error| error.to_string())
    }
}

/// Frees the agent for the next coordinator.
struct Taken<'a> {
    place: &'a Place,
    _turn: SemaphorePermit<'a>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.place.taken.lock() = None;
    }
}

/// Compares in constant time, so that a token cannot be guessed byte by byte.
fn same(wanted: &str, said: &str) -> bool {
    let differs = wanted.bytes().zip(said.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    wanted.len() == said.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_matches() {
        assert!(same("secret", "secret"));
        for wrong in ["", "secre", "secrets", "Secret", "secreT"] {
            assert!(!same("secret", wrong), "{wrong}");
        }
    }

    #[tokio::test]
    async fn without_a_token_only_loopback_addresses_are_accepted() {
        let connect: Connect = |_| Err(Failure::refused("not asked for"));
        let open = Server::bind("0.0.0.0:0", None, connect).await;
        assert!(matches!(open, Err(ServeError::NeedsToken(_))));
        let own = Server::bind("127.0.0.1:0", None, connect).await.expect("listens");
        assert!(own.address().port() > 0);
        let taken = Server::bind(&own.address().to_string(), None, connect).await;
        assert!(matches!(taken, Err(ServeError::Listen { .. })));
    }
}
