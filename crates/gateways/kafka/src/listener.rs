//! Accepts connections, keeps their number within bounds, and sees them out.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use broker::Broker;
use tasks::Task;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use crate::gateway::{Gateway, Session};
use crate::options::GatewayOptions;
use crate::session;

/// When the process has no file descriptors left, accepting fails at once, again and again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves Kafka clients until `shutdown` becomes true, then lets every session finish what it has
/// begun (at most `options.drain_within`) and returns.
pub async fn serve(
    listener: TcpListener,
    broker: Broker,
    options: GatewayOptions,
    mut shutdown: watch::Receiver<bool>,
) {
    let gateway = Arc::new(Gateway::new(broker, options, shutdown.clone()));
    let mut sessions = tasks::Set::default();
    let mut last_id = 0;
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
                    // Dropping the socket closes it: the protocol has no word for "full".
                    warn!(%peer, max = gateway.options.sessions_max, "too many connections: closed");
                    continue;
                }
                last_id += 1;
                let session = Arc::new(Session::new(last_id, peer));
                let serving = serve_session(socket, session, Arc::clone(&gateway));
                sessions.spawn(Task::KafkaSession, serving);
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

async fn serve_session(socket: TcpStream, session: Arc<Session>, gateway: Arc<Gateway>) {
    // Responses are written whole; waiting for more to send would only delay them.
    if let Err(error) = socket.set_nodelay(true) {
        debug!(peer = %session.peer, %error, "cannot set TCP_NODELAY");
    }
    debug!(peer = %session.peer, session = session.id, "connected");
    let releasing = Releasing(Arc::clone(&session), Arc::clone(&gateway));
    let end = session::run(socket, Arc::clone(&session), gateway).await;
    drop(releasing);
    let client = session.software_name();
    if end.is_ordinary() {
        debug!(peer = %session.peer, session = session.id, client, reason = %end, "disconnected");
    } else {
        warn!(peer = %session.peer, session = session.id, client, reason = %end, "connection closed");
    }
}

/// Releases what a session holds when it ends, by a panic too.
struct Releasing(Arc<Session>, Arc<Gateway>);

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.end(&self.1);
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
        Ok(()) => info!(sessions = open, "kafka sessions drained"),
        Err(_) => {
            warn!(sessions = sessions.len(), ?within, "kafka sessions did not finish: cut off");
            sessions.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::BrokerOptions;
    use world::World;

    use super::*;

    /// 10,000 idle connections must not cost what the records of the busy ones are needed for.
    const IDLE_SESSION_BYTES_MAX: usize = 4 << 10;

    #[tokio::test]
    async fn an_idle_session_is_small() {
        let disk = Arc::new(world::SimulatedDisk::new());
        let broker = Broker::open(World::on(disk), Path::new("/data"), BrokerOptions::default());
        let (_stop, stopping) = watch::channel(false);
        let options = GatewayOptions::new("127.0.0.1", 9092);
        let gateway = Gateway::new(broker.await.expect("opens"), options, stopping);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let socket = TcpStream::connect(address).await.expect("connects");

        let session = Arc::new(Session::new(1, address));
        let serving = serve_session(socket, session, Arc::new(gateway));
        let bytes = size_of_val(&serving);
        assert!(bytes <= IDLE_SESSION_BYTES_MAX, "{bytes} bytes");
    }
}
