//! Helpers for test servers that stand in for systems without a package.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

/// A bound listener that is not served yet.
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

    /// Serves each connection in its own task, for as long as the test runs.
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

/// Planned replies of a test, by request: each is sent once, instead of the regular one.
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
