//! ZeroMQ: PUSH and PULL over TCP, by zeromq (ZMTP in Rust: no libzmq is needed). There is no
//! server: senders and receivers connect directly.
//!
//! *Sent* means: it is in the local queue of the connection to one receiver, in the memory of its
//! sender (T0). That queue is the client's own and holds 100,000 messages, like a high-water mark
//! of 100,000; a sender waits while it is full. Receivers have no queue beside the socket's buffer
//! (4 MiB, the client's choice). `TCP_NODELAY` is set. Queued messages are still written after a
//! sender closes.
//!
//! *Hiding*: none. A message goes to one of the receivers in turn and is gone then. Nothing is
//! redelivered, and messages in flight to a closing receiver are lost. Only tests of latency, and
//! of push and pull, are meaningful for it.
//!
//! The first receiver binds at the address; each further one binds the next free port. One sender
//! and one receiver keep the order.
//!
//! Settings: none. There are no users (mechanism NULL).

mod pull;
mod push;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use parking_lot::Mutex;

use crate::told::{ms, named_values};

const SYSTEM: &str = "zeromq";
const TITLE: &str = "ZeroMQ, push and pull";
const ENDPOINT: &str = "127.0.0.1:25900";
/// Number of ports to try, including the address's own.
const PORTS: u16 = 100;
/// Time limit of a connection within this process.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct ZeroMq {
    host: String,
    port: u16,
    listeners: Arc<Listeners>,
}

/// Addresses of receivers, for the senders of the same driver.
#[derive(Debug, Default)]
struct Listeners {
    state: Mutex<ListenersState>,
}

#[derive(Debug, Default)]
struct ListenersState {
    /// Grows with every new receiver.
    changes: u64,
    listening: Vec<Listening>,
}

/// One receiver.
#[derive(Clone, Debug)]
struct Listening {
    id: u64,
    /// `127.0.0.1:25900`
    address: String,
    destinations: Vec<String>,
}

impl Listeners {
    fn add(&self, address: String, destinations: Vec<String>) -> u64 {
        let mut state = self.state.lock();
        state.changes += 1;
        let id = state.changes;
        state.listening.push(Listening { id, address, destinations });
        id
    }

    fn remove(&self, id: u64) {
        self.state.lock().listening.retain(|listening| listening.id != id);
    }

    /// Receivers of a destination that were added after the given change, and the last change.
    fn since(&self, change: u64, destination: &str) -> (u64, Vec<Listening>) {
        let state = self.state.lock();
        let wanted = |listening: &&Listening| {
            listening.id > change && listening.destinations.iter().any(|name| name == destination)
        };
        // Called for every message, and mostly without a change.
        let new: &[Listening] = if state.changes == change { &[] } else { &state.listening[..] };
        (state.changes, new.iter().filter(wanted).cloned().collect())
    }
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    target.settings().done()?;
    if target.user.is_some() || target.password.is_some() {
        let why = "there is no server to let anybody in".into();
        return Err(Failure::Setting { name: "user".into(), why });
    }
    let endpoint = target.endpoint(ENDPOINT).trim_start_matches("tcp://");
    let unusable =
        |why: &str| Failure::Unreachable { endpoint: endpoint.to_owned(), why: why.into() };
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(|| unusable("it is not host:port"))?;
    let port = port.parse().map_err(|_| unusable("its port is no number"))?;
    Ok(Arc::new(ZeroMq { host: host.to_owned(), port, listeners: Arc::default() }))
}

impl ZeroMq {
    /// Binds the first free port from the address's own on.
    fn bind(&self) -> Result<TcpListener, Failure> {
        let last = self.port.saturating_add(PORTS - 1);
        let mut taken = None;
        for port in self.port..=last {
            match TcpListener::bind((self.host.as_str(), port)) {
                Ok(listener) => return Ok(listener),
                Err(error) if error.kind() == ErrorKind::AddrInUse => taken = Some(error),
                Err(error) => return Err(self.unusable(error)),
            }
        }
        Err(self.unusable(taken.map_or_else(String::new, |error| error.to_string())))
    }

    fn unusable(&self, why: impl ToString) -> Failure {
        let endpoint = format!("{}:{}", self.host, self.port);
        Failure::Unreachable { endpoint, why: why.to_string() }
    }
}

#[async_trait]
impl Driver for ZeroMq {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "zeromq 0.7",
            sent_means: "it is in the sender's queue for one receiver (at most 100,000)",
            hidden_means: "not at all: at most once, to one of the receivers in turn",
            tiers: &[Tier::T0],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::Never,
            subscriptions: false,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, _topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[("connect timeout", &ms(PATIENCE))])
    }

    /// The protocol's version, if receivers can bind at the address.
    async fn version(&self) -> Result<String, Failure> {
        self.bind()?;
        Ok("no server; ZMTP 3.0".to_owned())
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)
    }

    async fn remove(&self, _topology: &Topology) -> Result<(), Failure> {
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let names = (0..topology.destinations).map(|index| topology.destination(index));
        Ok(Box::new(push::PushSender::new(Arc::clone(&self.listeners), names)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        _subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let names = destinations.iter().map(|&index| topology.destination(index)).collect();
        let listeners = Arc::clone(&self.listeners);
        Ok(Box::new(pull::PullReceiver::listen(self.bind()?, listeners, names).await?))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use driver::Message;

    use super::*;

    fn target(endpoint: &str) -> Target {
        Target { endpoints: vec![endpoint.to_owned()], ..Target::of(SYSTEM) }
    }

    #[test]
    fn invalid_address_and_user_are_rejected() {
        for endpoint in ["127.0.0.1", "127.0.0.1:many"] {
            let refused = connect(&target(endpoint)).expect_err(endpoint);
            assert!(matches!(refused, Failure::Unreachable { .. }), "{refused}");
        }
        let with_user = Target { user: Some("guest".into()), ..target("127.0.0.1:25900") };
        assert!(matches!(connect(&with_user), Err(Failure::Setting { .. })));
    }

    #[tokio::test]
    async fn receivers_of_one_destination_share_and_others_get_nothing() {
        let driver = connect(&target("127.0.0.1:0")).expect("connects");
        let topology =
            Topology { destinations: 2, ..Topology::new("share", Style::Queue, Tier::T0) };
        let mut receivers = Vec::new();
        for destination in [0, 0, 1] {
            receivers.push(driver.receiver(&topology, &[destination], 0).await.expect("listens"));
        }
        let mut sender = driver.sender(&topology).await.expect("a sender");
        let messages: Vec<Message> = (0..10_u8)
            .map(|number| Message { lane: 0, body: Bytes::copy_from_slice(&[number]) })
            .collect();
        sender.send(0, &messages).await.expect("sends");
        let mut counts = Vec::new();
        for receiver in &mut receivers {
            let mut count = 0;
            loop {
                let came = receiver.receive(3).await.expect("receives").len();
                assert!(came <= 3);
                count += came;
                if came == 0 {
                    break;
                }
            }
            counts.push(count);
        }
        assert_eq!(counts, [5, 5, 0]);
    }

    #[tokio::test]
    async fn without_a_receiver_nothing_is_sent() {
        let driver = connect(&target("127.0.0.1:0")).expect("connects");
        let topology = Topology::new("nobody", Style::Queue, Tier::T0);
        let mut sender = driver.sender(&topology).await.expect("a sender");
        let message = Message { lane: 0, body: Bytes::from_static(b"x") };
        assert!(sender.send(0, std::slice::from_ref(&message)).await.is_err());
        let mut receiver = driver.receiver(&topology, &[0], 0).await.expect("listens");
        sender.send(0, &[message]).await.expect("one that came later is found");
        assert_eq!(receiver.receive(1).await.expect("receives").len(), 1);
    }
}
