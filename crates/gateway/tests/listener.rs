//! Listeners in the kernel's network: limits, panics, shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use gateway::{Connections, ListenerOptions};
use tasks::Task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use world::net::{Net, Stream};

/// Longer than any step of a test, shorter than a hang.
const SOON: Duration = Duration::from_secs(20);

/// A listener whose sessions echo their input. `!` makes a session panic, and `?` makes it ignore everything,
/// shutdown too.
struct Echo {
    address: String,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Echo {
    async fn start(connections: &Connections, change: impl FnOnce(&mut ListenerOptions)) -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound").to_string();
        let mut options = ListenerOptions {
            protocol: "echo",
            session: Task::KafkaSession,
            sessions_max: 10,
            drain_within: SOON,
            connections: connections.clone(),
            of_clients: true,
        };
        change(&mut options);
        let (stop, stopping) = watch::channel(false);
        let told = stopping.clone();
        let session = move |stream, connection| serve(stream, connection, told.clone());
        let serving = tokio::spawn(gateway::serve(listener, options, stopping, session));
        Self { address, stop, serving }
    }

    async fn client(&self) -> Client {
        Client(Net::Kernel.connect(&self.address).await.expect("connects"))
    }

    async fn ends(self) {
        self.stop.send_replace(true);
        timeout(SOON, self.serving).await.expect("in time").expect("it does not panic");
    }
}

async fn serve(
    mut stream: Stream,
    connection: gateway::Connection,
    mut told: watch::Receiver<bool>,
) {
    loop {
        let byte = tokio::select! {
            byte = stream.read_u8() => byte,
            _ = told.wait_for(|stopping| *stopping) => return,
            () = connection.closing() => return,
        };
        match byte {
            Err(_) => return,
            Ok(b'!') => panic!("no soup"),
            Ok(b'?') => std::future::pending().await,
            Ok(byte) => stream.write_u8(byte).await.expect("the client is there"),
        }
    }
}

fn listed(connections: &Connections) -> Vec<gateway::Connection> {
    connections.list(None, usize::MAX)
}

struct Client(Stream);

impl Client {
    async fn say(&mut self, byte: u8) {
        self.0.write_u8(byte).await.expect("the listener is there");
    }

    async fn is_served(&mut self) {
        self.say(b'a').await;
        let answer = timeout(SOON, self.0.read_u8()).await.expect("in time");
        assert_eq!(answer.expect("is served"), b'a');
    }

    async fn is_cut_off(&mut self) {
        let read = timeout(SOON, self.0.read_u8()).await.expect("in time");
        assert!(read.is_err(), "{read:?}");
    }
}

#[tokio::test]
async fn connection_over_the_limit_is_closed_until_another_one_ends() {
    let connections = Connections::default();
    let echo = Echo::start(&connections, |options| options.sessions_max = 2).await;
    let (mut one, mut two) = (echo.client().await, echo.client().await);
    one.is_served().await;
    two.is_served().await;
    echo.client().await.is_cut_off().await;

    drop(one);
    let until = Instant::now() + SOON;
    while listed(&connections).len() > 1 {
        assert!(Instant::now() < until, "{connections:?}");
        sleep(Duration::from_millis(5)).await;
    }
    echo.client().await.is_served().await;
    two.is_served().await;
    echo.ends().await;
}

#[tokio::test]
async fn panic_of_a_session_closes_its_own_connection_only() {
    let connections = Connections::default();
    let echo = Echo::start(&connections, |_| {}).await;
    let (mut one, mut two) = (echo.client().await, echo.client().await);
    two.is_served().await;
    one.say(b'!').await;
    one.is_cut_off().await;
    two.is_served().await;
    let left: Vec<u64> = listed(&connections).iter().map(gateway::Connection::id).collect();
    assert_eq!(left, [2]);
    echo.ends().await;
}

#[tokio::test]
async fn shutdown_waits_for_sessions_and_accepts_no_connections() {
    let connections = Connections::default();
    let echo = Echo::start(&connections, |_| {}).await;
    let mut client = echo.client().await;
    client.is_served().await;
    let address = echo.address.clone();
    echo.ends().await;
    client.is_cut_off().await;
    assert!(Net::Kernel.connect(&address).await.is_err());
    assert!(listed(&connections).is_empty());
}

#[tokio::test]
async fn session_that_does_not_finish_is_aborted_after_the_drain_time() {
    const WITHIN: Duration = Duration::from_millis(200);
    let connections = Connections::default();
    let echo = Echo::start(&connections, |options| options.drain_within = WITHIN).await;
    let mut client = echo.client().await;
    client.is_served().await;
    client.say(b'?').await;
    // The session ignores everything once it has read that.
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    echo.ends().await;
    assert!(began.elapsed() >= WITHIN, "{:?}", began.elapsed());
    client.is_cut_off().await;
    assert!(listed(&connections).is_empty());
}

#[tokio::test]
async fn connections_of_all_listeners_have_unique_numbers() {
    let connections = Connections::default();
    let one = Echo::start(&connections, |options| options.protocol = "one").await;
    let two = Echo::start(&connections, |options| options.protocol = "two").await;
    let mut clients = [one.client().await, two.client().await, one.client().await];
    for client in &mut clients {
        client.is_served().await;
    }
    let by_number: Vec<u64> = listed(&connections).iter().map(gateway::Connection::id).collect();
    assert_eq!(by_number, [1, 2, 3]);
    let mut protocols: Vec<_> = listed(&connections).iter().map(|it| it.protocol()).collect();
    protocols.sort_unstable();
    assert_eq!(protocols, ["one", "one", "two"]);
    one.ends().await;
    two.ends().await;
}

#[tokio::test]
async fn operator_closes_an_idle_connection() {
    let connections = Connections::default();
    let echo = Echo::start(&connections, |_| {}).await;
    let (mut one, mut two) = (echo.client().await, echo.client().await);
    one.is_served().await;
    two.is_served().await;
    assert!(!connections.close(3));
    assert!(connections.close(1));
    one.is_cut_off().await;
    two.is_served().await;
    assert_eq!(listed(&connections).len(), 1);
    echo.ends().await;
}
