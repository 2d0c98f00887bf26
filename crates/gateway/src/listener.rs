//! Accepts connections, limits their number, and drains them at shutdown.
//!
//! The sessions are tasks of the listener's own set, so that none outlives it: when it returns, every session has
//! ended or was aborted.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tasks::Task;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};
use world::net::{Listener, Stream};

use crate::connections::{Connection, Connections};
use crate::socket::Socket;
use crate::tls::Tls;

/// Retry interval of accepts: without free file descriptors they fail at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Settings of one listener.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Name of the protocol for operators.
    pub protocol: &'static str,
    /// Kind of its sessions in the table of tasks.
    pub session: Task,
    /// Limit of concurrent sessions; a further connection is closed at once.
    pub sessions_max: usize,
    /// Time for sessions to finish their work in flight at shutdown.
    pub drain_within: Duration,
    /// The list of connections, shared with other listeners.
    pub connections: Connections,
    /// Whether the peers are clients, whose connection rate is limited.
    pub of_clients: bool,
}

/// Ports on which clients of a protocol connect.
#[derive(Debug, Default)]
pub struct Ports {
    pub plain: Option<Listener>,
    /// The port for TLS.
    pub tls: Option<(Listener, Tls)>,
}

impl From<Listener> for Ports {
    fn from(plain: Listener) -> Self {
        Self { plain: Some(plain), tls: None }
    }
}

/// Serves the connections of both ports with the same sessions, as [`serve`] does. The limit of sessions applies to
/// each port.
pub async fn serve_ports<F>(
    ports: Ports,
    options: ListenerOptions,
    shutdown: watch::Receiver<bool>,
    session: impl Fn(Socket, Connection) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let plain = ports.plain.map(|listener| {
        let session = |stream, connection| session(Socket::Plain(stream), connection);
        serve(listener, options.clone(), shutdown.clone(), session)
    });
    let encrypted = ports.tls.map(|(listener, tls)| {
        let session = encrypted(options.protocol, tls, session.clone());
        serve(listener, options.clone(), shutdown.clone(), session)
    });
    tokio::join!(OptionFuture::from(plain), OptionFuture::from(encrypted));
}

/// Wraps sessions so that they begin after the TLS handshake.
fn encrypted<F>(
    protocol: &'static str,
    tls: Tls,
    session: impl Fn(Socket, Connection) -> F + Clone + Send + 'static,
) -> impl FnMut(Stream, Connection) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    F: Future<Output = ()> + Send + 'static,
{
    move |stream, connection: Connection| {
        let (tls, session) = (tls.clone(), session.clone());
        Box::pin(async move {
            let accepted = tls.accept(stream).await;
            drop(tls);
            match accepted {
                Ok(socket) => session(socket, connection).await,
                Err(error) => {
                    let (peer, is_tls_error) = (connection.peer(), error.is_tls_error());
                    match is_tls_error.then(|| connection.closed_line()).flatten() {
                        Some(suppressed) => {
                            info!(protocol, %peer, %error, suppressed, "no encrypted connection");
                        }
                        None => debug!(protocol, %peer, %error, "no encrypted connection"),
                    }
                }
            }
        })
    }
}

/// Serves each connection with a session of its own until `shutdown` becomes true. Then lets the sessions finish
/// their work in flight and returns. Sessions themselves watch for the shutdown, and for an operator's close
/// ([`Connection::closing`]).
pub async fn serve<F>(
    listener: Listener,
    options: ListenerOptions,
    mut shutdown: watch::Receiver<bool>,
    mut session: impl FnMut(Stream, Connection) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let ListenerOptions { protocol, sessions_max, .. } = options;
    let mut sessions = tasks::Set::default();
    loop {
        let accepted = tokio::select! {
            // A fixed order, so that a seed determines a simulation.
            biased;
            _ = shutdown.wait_for(|stopping| *stopping) => break,
            Some(ended) = sessions.join_next() => {
                note_panic(protocol, ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((_, peer)) if sessions.len() >= sessions_max => {
                options.connections.traffic(protocol).refused();
                // Dropping the socket closes it: before the client's first bytes no protocol has a message for
                // "full".
                warn!(protocol, %peer, max = sessions_max, "too many connections: closed");
            }
            Ok((stream, peer))
                if options.of_clients
                    && let Err(wait) = options.connections.opens(peer, protocol) =>
            {
                options.connections.traffic(protocol).refused();
                debug!(protocol, %peer, ?wait, "too many connections from this address: closed");
                // Closed after a delay, so that the client does not reconnect immediately.
                sessions.spawn(options.session, async move {
                    sleep(wait).await;
                    drop(stream);
                });
            }
            Ok((stream, peer)) => {
                // Sessions write complete replies, which must not be delayed.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(protocol, %peer, %error, "cannot set TCP_NODELAY");
                }
                // The client has closed a socket without a local address; its session finds that out.
                let local = stream.local_addr().or_else(|_| listener.local_addr()).unwrap_or(peer);
                let registered = options.connections.register(protocol, peer, local);
                let serving = session(stream, registered.connection().clone());
                sessions.spawn(options.session, async move {
                    registered.connection().enter_task().await;
                    serving.await;
                    drop(registered);
                });
            }
            Err(error) if is_about_one_connection(&error) => debug!(protocol, %error, "accept"),
            Err(error) => {
                error!(protocol, %error, "cannot accept connections, trying again");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    drain(protocol, sessions, options.drain_within).await;
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

fn note_panic(protocol: &'static str, ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(protocol, %error, "a session panicked; its connection is closed");
    }
}

async fn drain(protocol: &'static str, mut sessions: tasks::Set, within: Duration) {
    let open = sessions.len();
    let ended = timeout(within, async {
        while let Some(ended) = sessions.join_next().await {
            note_panic(protocol, ended);
        }
    });
    match ended.await {
        Ok(()) => info!(protocol, sessions = open, "sessions drained"),
        Err(_) => {
            let left = sessions.len();
            warn!(protocol, sessions = left, ?within, "sessions did not finish: cut off");
            sessions.shutdown().await;
        }
    }
}
