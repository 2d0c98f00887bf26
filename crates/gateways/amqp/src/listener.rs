//! Accepts connections, keeps their number within bounds, and sees them out.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use broker::Broker;
use tasks::Task;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use crate::catalog::Catalog;
use crate::catalog::users::Users;
use crate::connection;
use crate::gateway::Gateway;
use crate::options::GatewayOptions;
use crate::session::{Session, SessionEnd};

/// When the process has no file descriptors left, accepting fails at once, again and again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves AMQP clients until `shutdown` becomes true, then lets every session finish what it has
/// begun (at most `options.drain_within`) and returns.
pub async fn serve(
    listener: TcpListener,
    broker: Broker,
    catalog: Catalog,
    users: Users,
    options: GatewayOptions,
    mut shutdown: watch::Receiver<bool>,
) {
    let gateway = Arc::new(Gateway::new(broker, catalog, users, options, shutdown.clone()));
    let mut sessions = tasks::Set::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = sessions.join_next() => {
                note_panic(ended);
                continue;
            }
            _ = shutdown.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok((socket, peer)) => {
                if sessions.len() >= gateway.options.sessions_max {
                    // Before a client has spoken the protocol has no word for "full".
                    let max = gateway.options.sessions_max;
                    warn!(%peer, max, "too many connections: closed");
                    continue;
                }
                let session = Session::new(peer, Arc::clone(&gateway));
                sessions.spawn(Task::AmqpSession, serve_session(socket, session));
            }
            Err(error) if is_about_one_connection(&error) => debug!(%error, "accept"),
            Err(error) => {
                error!(%error, "cannot accept connections, trying again");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    drain(sessions, gateway.options.drain_within).await;
}

async fn serve_session(socket: TcpStream, session: Session) {
    let (peer, id) = (session.peer, session.id);
    debug!(%peer, session = id.0, "connected");
    prepare(&socket, peer);
    let (end, client) = connection::run(socket, session).await;
    if matches!(end, SessionEnd::Panicked) {
        error!(%peer, session = id.0, client, reason = %end, "connection closed");
    } else if end.is_ordinary() {
        debug!(%peer, session = id.0, client, reason = %end, "disconnected");
    } else {
        warn!(%peer, session = id.0, client, reason = %end, "connection closed");
    }
}

fn prepare(socket: &TcpStream, peer: SocketAddr) {
    // What is written is written whole; waiting for more to send would only delay it.
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
}

fn is_about_one_connection(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(%error, "a session panicked; its connection is closed");
    }
}

async fn drain(mut sessions: tasks::Set, within: Duration) {
    let open = sessions.len();
    let ended = timeout(within, async {
        while let Some(ended) = sessions.join_next().await {
            note_panic(ended);
        }
    });
    match ended.await {
        Ok(()) => info!(sessions = open, "amqp sessions drained"),
        Err(_) => {
            warn!(sessions = sessions.len(), ?within, "amqp sessions did not finish: cut off");
            sessions.shutdown().await;
        }
    }
}
