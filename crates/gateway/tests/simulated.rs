//! The same listener in a network that turmoil simulates.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gateway::{Connections, ListenerOptions, SlowReader, UnsentOutput, WriteError};
use tasks::Task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use turmoil::{Builder, Sim};
use world::net::{Net, Stream};

const PORT: u16 = 9092;
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
const SESSIONS_MAX: usize = 2;

fn simulation() -> Sim<'static> {
    Builder::new().rng_seed(7).simulation_duration(Duration::from_secs(600)).build()
}

/// A host that serves each connection with `session`.
fn serve<F>(sim: &mut Sim<'static>, session: fn(Stream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    sim.host("server", move || async move {
        let listener = Net::Simulated.listen(SocketAddr::from(([0, 0, 0, 0], PORT))).await?;
        let options = ListenerOptions {
            protocol: "simulated",
            session: Task::KafkaSession,
            sessions_max: SESSIONS_MAX,
            drain_within: Duration::from_secs(5),
            connections: Connections::default(),
            of_clients: true,
        };
        let (_stop, stopping) = watch::channel(false);
        gateway::serve(listener, options, stopping, |stream, _| session(stream)).await;
        Ok(())
    });
}

async fn connect() -> std::io::Result<Stream> {
    Net::Simulated.connect(&format!("server:{PORT}")).await
}

/// Echoes the input over split halves, and reads only when the socket is ready.
async fn echo(mut stream: Stream) {
    let (mut reads, mut writes) = stream.split();
    let mut unsent = UnsentOutput::default();
    loop {
        if poll_fn(|context| reads.poll_read_ready(context)).await.is_err() {
            return;
        }
        let mut bytes = bytes::BytesMut::with_capacity(5);
        match poll_fn(|context| gateway::input::poll_read(&mut reads, context, &mut bytes)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => unsent.push(bytes.freeze()),
        }
        while !unsent.is_empty() {
            if poll_fn(|context| unsent.poll_write(context, &mut writes)).await.is_err() {
                return;
            }
        }
    }
}

#[test]
fn simulated_clients_are_served_up_to_the_limit() {
    let mut sim = simulation();
    serve(&mut sim, echo);
    sim.client("client", async {
        let mut streams = [connect().await?, connect().await?];
        for stream in &mut streams {
            stream.set_nodelay(true)?;
            stream.write_all(b"hello, simulated world").await?;
            let mut answer = [0; 22];
            stream.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"hello, simulated world");
        }
        let mut third = connect().await?;
        assert_eq!(third.read(&mut [0]).await.unwrap_or(0), 0);

        drop(streams);
        sleep(Duration::from_secs(1)).await;
        let mut stream = connect().await?;
        stream.write_all(b"again").await?;
        stream.read_exact(&mut [0; 5]).await?;
        Ok(())
    });
    sim.run().expect("ends well");
}

static CUT_OFF: AtomicBool = AtomicBool::new(false);

/// Sends more than the network buffers to a client that does not read it.
async fn send_much(mut stream: Stream) {
    let mut unsent = UnsentOutput::default();
    for _ in 0..10_000 {
        unsent.push(Bytes::from_static(&[7; 100]));
    }
    let began = Instant::now();
    let ended = loop {
        match SlowReader::new(TAKEN_WITHIN, 50_000).wait(&mut unsent, &mut stream).await {
            Ok(()) if unsent.is_empty() => panic!("all was taken"),
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, WriteError::SlowReader(TAKEN_WITHIN)), "{ended}");
    assert!(began.elapsed() >= TAKEN_WITHIN);
    CUT_OFF.store(true, Ordering::Release);
}

#[test]
fn client_that_does_not_read_is_disconnected_in_simulated_time() {
    let mut sim = simulation();
    serve(&mut sim, send_much);
    sim.client("client", async {
        let mut stream = connect().await?;
        sleep(TAKEN_WITHIN + Duration::from_secs(5)).await;
        assert!(CUT_OFF.load(Ordering::Acquire));
        // Only bytes in flight arrive. Turmoil loses the end of a stream that is full.
        let mut received = Vec::new();
        let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut received)).await;
        assert!(received.len() < 1_000_000, "{}", received.len());
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn partitioned_client_cannot_connect_until_the_repair() {
    let mut sim = simulation();
    serve(&mut sim, echo);
    sim.client("client", async {
        turmoil::partition("client", "server");
        let refused = timeout(Duration::from_secs(5), connect()).await;
        assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
        turmoil::repair("client", "server");
        let mut stream = connect().await?;
        stream.write_all(b"a").await?;
        assert_eq!(stream.read_u8().await?, b'a');
        Ok(())
    });
    sim.run().expect("ends well");
}
