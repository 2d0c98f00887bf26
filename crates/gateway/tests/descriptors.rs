//! A process without free file descriptors. It is in a test binary of its own, because the limit is the process's.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use gateway::{Connections, ListenerOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tasks::Task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use world::net::{Net, Stream};

const SOON: Duration = Duration::from_secs(20);

async fn greet(mut stream: Stream) {
    stream.write_u8(b'a').await.expect("the client is there");
}

#[tokio::test]
async fn listener_without_descriptors_resumes_once_some_are_free() {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Net::Kernel.listen(any_port).await.expect("binds");
    let address = listener.local_addr().expect("is bound").to_string();
    let options = ListenerOptions {
        protocol: "greeting",
        session: Task::KafkaSession,
        sessions_max: 10,
        drain_within: SOON,
        connections: Connections::default(),
        of_clients: true,
    };
    let (stop, stopping) = watch::channel(false);
    let serving = gateway::serve(listener, options, stopping, |stream, _| greet(stream));
    let serving = tokio::spawn(serving);

    // The client gets the lowest free descriptor; none is left for the listener.
    let last = File::open("/dev/null").expect("opens").as_raw_fd() as u64;
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(last + 1), maximum: before.maximum };
    setrlimit(Resource::Nofile, limit).expect("may be lowered");
    let mut client = Net::Kernel.connect(&address).await.expect("connects");
    let greeted = timeout(Duration::from_millis(500), client.read_u8()).await;
    setrlimit(Resource::Nofile, before).expect("may be raised");
    assert!(greeted.is_err(), "{greeted:?}");

    let greeted = timeout(SOON, client.read_u8()).await.expect("in time");
    assert_eq!(greeted.expect("is accepted"), b'a');
    stop.send_replace(true);
    timeout(SOON, serving).await.expect("in time").expect("it does not panic");
}
