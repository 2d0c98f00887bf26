//! What servers have in common that stand in, in tests, for those that nobody can fetch.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

/// Where one listens, which nobody serves yet.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Door {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        Self { listener, address }
    }

    /// Serves each connection in a task of its own, for as long as the test runs.
    pub(crate) fn serve<S: Future<Output = ()> + Send + 'static>(
        self,
        serve: impl Fn(TcpStream) -> S + Send + 'static,
    ) {
        tokio::spawn(async move {
            while let Ok((stream, _)) = self.listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    }
}

/// Answers that a test has put down, by what is asked: given once each, instead of the right one.
#[derive(Clone, Debug)]
pub(crate) struct Planned<A>(Arc<Mutex<HashMap<String, Vec<A>>>>);

impl<A> Default for Planned<A> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<A> Planned<A> {
    pub(crate) fn once(&self, asked: &str, answer: A) {
        self.0.lock().entry(asked.to_owned()).or_default().push(answer);
    }

    pub(crate) fn take(&self, asked: &str) -> Option<A> {
        self.0.lock().get_mut(asked).and_then(Vec::pop)
    }
}
