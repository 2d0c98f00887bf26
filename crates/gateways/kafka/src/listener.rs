//! Serves each accepted connection with a session.

use std::sync::Arc;

use broker::Broker;
use gateway::{Connection, ListenerOptions, Ports, Socket};
use tasks::Task;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::options::GatewayOptions;
use crate::session;
use crate::state::login::Login;
use crate::state::{Gateway, PROTOCOL, Session};

/// Serves Kafka clients until `shutdown` becomes true. Then lets every session finish its started requests (for at
/// most `drain_within` of the options) and returns.
#[tasks::boxed]
pub async fn serve(
    ports: Ports,
    broker: Broker,
    options: GatewayOptions,
    shutdown: watch::Receiver<bool>,
) {
    let gateway = Arc::new(Gateway::new(broker, options, shutdown.clone()));
    let options = &gateway.options;
    let accepting = ListenerOptions {
        protocol: PROTOCOL,
        session: Task::KafkaSession,
        sessions_max: options.sessions_max,
        drain_within: options.drain_within,
        connections: options.connections.clone(),
        of_clients: true,
    };
    let serving = move |mut socket: Socket, connection: Connection| {
        let encrypted = socket.is_encrypted();
        let login = Login::of(&gateway.options, &mut socket, &connection);
        let quotas = &gateway.options.quotas;
        let session = Arc::new(Session::new(connection, encrypted, login, quotas));
        serve_session(socket, session, Arc::clone(&gateway))
    };
    gateway::serve_ports(ports, accepting, shutdown, serving).await;
}

async fn serve_session(socket: Socket, session: Arc<Session>, gateway: Arc<Gateway>) {
    let (id, peer) = (session.connection.id(), session.connection.peer());
    debug!(%peer, session = id, "connected");
    let releasing = SessionReleaseGuard(Arc::clone(&session), Arc::clone(&gateway));
    let end = session::run(socket, Arc::clone(&session), gateway).await;
    drop(releasing);
    let client = session.connection.client();
    if end.is_ordinary() {
        debug!(%peer, session = id, client, reason = %end, "disconnected");
    } else if let Some(suppressed) = session.connection.closed_line() {
        warn!(%peer, session = id, client, reason = %end, suppressed, "connection closed");
    } else {
        debug!(%peer, session = id, client, reason = %end, "connection closed");
    }
}

/// Releases a session's resources when it ends, also by a panic.
struct SessionReleaseGuard(Arc<Session>, Arc<Gateway>);

impl Drop for SessionReleaseGuard {
    fn drop(&mut self) {
        self.0.end(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;

    use broker::BrokerOptions;
    use world::{Net, World};

    use super::*;

    /// 10,000 idle connections must not take the memory that busy ones need for records.
    const IDLE_SESSION_BYTES_MAX: usize = 4 << 10;

    #[tokio::test]
    async fn idle_session_stays_within_its_memory_bound() {
        let disk = Arc::new(world::SimulatedDisk::new());
        let broker = Broker::open(World::on(disk), Path::new("/data"), BrokerOptions::default());
        let (_stop, stopping) = watch::channel(false);
        let broker = broker.await.expect("opens");
        let options = GatewayOptions::single_node(&broker);
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        let registered = options.connections.register(PROTOCOL, end, end);
        let gateway = Gateway::new(broker, options, stopping);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound").to_string();
        let stream = Net::Kernel.connect(&address).await.expect("connects");

        let (login, quotas) = (Login::new(false), access::Quotas::default());
        let connection = registered.connection().clone();
        let session = Arc::new(Session::new(connection, false, login, &quotas));
        let serving = serve_session(stream.into(), session, Arc::new(gateway));
        let bytes = size_of_val(&serving);
        assert!(bytes <= IDLE_SESSION_BYTES_MAX, "{bytes} bytes");
    }
}
