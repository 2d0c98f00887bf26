//! A gate in front of a node: a relay that can block the bytes that other nodes send to it.

use std::io;
use std::net::SocketAddr;

use futures_util::future::join;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use world::Net;
use world::net::{Listener, Stream};

/// Size of the relay buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Listens at the peer address of a node. While it is closed, connections stay open and no request of another node
/// arrives. The node's own requests and their replies use other connections, and pass.
#[derive(Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
    relay: JoinHandle<()>,
}

impl Gate {
    /// Starts an open gate at `address`, in front of a node that listens at `node`.
    pub(crate) async fn start(address: SocketAddr, node: SocketAddr) -> io::Result<Self> {
        let listener = Net::Kernel.listen(address).await?;
        let (open, opened) = watch::channel(true);
        let relay = tokio::spawn(relay(listener, node, opened));
        Ok(Self { open, relay })
    }

    pub fn close(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

async fn relay(listener: Listener, node: SocketAddr, opened: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(connect(client, node, opened.clone()));
    }
}

/// Relays one connection until both directions have ended.
async fn connect(mut client: Stream, node: SocketAddr, opened: watch::Receiver<bool>) {
    let Ok(mut server) = Net::Kernel.connect(&node.to_string()).await else { return };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    join(pass(from_client, to_server, Some(opened)), pass(from_server, to_client, None)).await;
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: Option<watch::Receiver<bool>>,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if let Some(gate) = &mut gate
            && gate.wait_for(|open| *open).await.is_err()
        {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // A peer that has gone needs no shutdown.
    let _ = to.shutdown().await;
}
