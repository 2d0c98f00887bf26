//! A connection to a broker: concurrent requests, matched to replies by their number.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use driver::Failure;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::wire::{Answer, Request};

const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of a broker's reply.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Largest number of requests in one write.
const WRITES_MAX: usize = 500;

/// Requests awaiting a reply, by number; `None` once the connection has ended.
type Waiting = Arc<Mutex<Option<HashMap<i32, oneshot::Sender<Answer>>>>>;

pub(super) struct Broker {
    outgoing: mpsc::UnboundedSender<(i32, Request)>,
    waiting: Waiting,
    next: AtomicI32,
    reader: AbortHandle,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Broker {
    pub(super) async fn connect(endpoint: &str) -> Result<Self, Failure> {
        let unreachable = |why: String| Failure::Unreachable { endpoint: endpoint.to_owned(), why };
        let stream = timeout(PATIENCE, TcpStream::connect(endpoint))
            .await
            .map_err(|_| unreachable(format!("no answer within {PATIENCE:?}")))?
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| unreachable(error.to_string()))?;
        let (reading, writing) = stream.into_split();
        let (outgoing, arriving) = mpsc::unbounded_channel();
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let reader = tokio::spawn(read(reading, Arc::clone(&waiting))).abort_handle();
        tokio::spawn(write(writing, arriving, Arc::clone(&waiting)));
        Ok(Self { outgoing, waiting, next: AtomicI32::new(0), reader })
    }

    /// Sends at once; the future only awaits the reply.
    pub(super) fn request(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.insert(number, answered);
            // If the writer is gone, the end of the connection has dropped all waiting requests.
            let _ = self.outgoing.send((number, request));
        }
        async move {
            match timeout(ANSWERED_WITHIN, answer).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(_)) => Err(Failure::unknown("the connection is gone")),
                Err(_) => Err(Failure::unknown(format!("no answer within {ANSWERED_WITHIN:?}"))),
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // The writer ends once it has drained the queue.
        self.reader.abort();
    }
}

async fn read(mut stream: OwnedReadHalf, waiting: Waiting) {
    let mut bytes = BytesMut::with_capacity(64 << 10);
    while let Ok(1..) = stream.read_buf(&mut bytes).await {
        loop {
            match Answer::take(&mut bytes) {
                Ok(Some(answer)) => {
                    let asked = waiting.lock().as_mut().and_then(|all| all.remove(&answer.number));
                    // The request may have timed out meanwhile.
                    let _ = asked.map(|asked| asked.send(answer));
                }
                Ok(None) => break,
                Err(failure) => {
                    tracing::debug!(%failure, "the broker is not understood");
                    return drop(waiting.lock().take());
                }
            }
        }
    }
    drop(waiting.lock().take());
}

async fn write(
    mut stream: OwnedWriteHalf,
    mut arriving: mpsc::UnboundedReceiver<(i32, Request)>,
    waiting: Waiting,
) {
    let mut taken = Vec::new();
    let mut bytes = BytesMut::new();
    while arriving.recv_many(&mut taken, WRITES_MAX).await > 0 {
        for (number, request) in taken.drain(..) {
            if request.encode(number, &mut bytes).is_err() {
                // Too long for a frame, so there will be no reply.
                let _ = waiting.lock().as_mut().map(|all| all.remove(&number));
            }
        }
        if stream.write_all(&bytes).await.is_err() {
            return drop(waiting.lock().take());
        }
        bytes.clear();
    }
}
