//! MQTT 3.1.1 at QoS 1, by rumqttc: Mosquitto, and brokers like it.
//!
//! *Sent* means: the broker replied with PUBACK, which promises nothing more: Mosquitto keeps
//! messages in memory and saves them from time to time (T0).
//!
//! *Hiding*: the receivers of a subscription share it (`$share/...`), and each message goes to one
//! of the connected receivers. A settle acknowledges it; there is no release. A closing receiver's
//! session ends, and with it its unacknowledged messages. So nothing is redelivered, and a receiver
//! gets no messages from before its subscription.
//!
//! Settings: `window` (at most 65,535).

mod receiver;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Event, EventLoop, MqttOptions, Packet,
};
use tokio::time::timeout;

use crate::pending::WINDOW;
use crate::told::{ms, named_values};

const SYSTEM: &str = "mqtt";
const ENDPOINT: &str = "127.0.0.1:1883";
const PATIENCE: Duration = Duration::from_secs(5);
const PACKET_BYTES_MAX: usize = 64 << 20;
const KEEP_ALIVE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Mqtt {
    host: String,
    port: u16,
    login: Option<(String, String)>,
    window: u16,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW as u16)?.max(1);
    settings.done()?;
    let endpoint = target.endpoint(ENDPOINT).trim_start_matches("mqtt://").to_owned();
    let unusable = |why: &str| Failure::Unreachable { endpoint: endpoint.clone(), why: why.into() };
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(|| unusable("it is not host:port"))?;
    let port = port.parse().map_err(|_| unusable("its port is no number"))?;
    let login = target.user.clone().zip(target.password.clone());
    Ok(Arc::new(Mqtt { host: host.to_owned(), port, login, window }))
}

impl Mqtt {
    /// A connection that the broker has accepted.
    async fn open(&self) -> Result<(AsyncClient, EventLoop), Failure> {
        let salt: u64 = rand::random();
        let mut options = MqttOptions::new(format!("bench-{salt:016x}"), &self.host, self.port);
        options.set_inflight(self.window);
        options.set_manual_acks(true);
        options.set_max_packet_size(PACKET_BYTES_MAX, PACKET_BYTES_MAX);
        options.set_keep_alive(KEEP_ALIVE);
        if let Some((user, password)) = &self.login {
            options.set_credentials(user, password);
        }
        let (client, mut events) = AsyncClient::new(options, self.window.into());
        events.network_options.set_tcp_nodelay(true);
        let endpoint = format!("{}:{}", self.host, self.port);
        let accepted = timeout(PATIENCE, async {
            loop {
                if let Event::Incoming(Packet::ConnAck(_)) = events.poll().await? {
                    return Ok::<_, ConnectionError>(());
                }
            }
        });
        match accepted.await {
            Ok(Ok(())) => Ok((client, events)),
            Ok(Err(ConnectionError::ConnectionRefused(
                code @ (ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized),
            ))) => {
                let user = self.login.as_ref().map_or(String::new(), |(user, _)| user.clone());
                Err(Failure::NotAllowed { endpoint, user, why: format!("{code:?}") })
            }
            Ok(Err(error)) => Err(Failure::Unreachable { endpoint, why: error.to_string() }),
            Err(_) => {
                let why = format!("no answer within {PATIENCE:?}");
                Err(Failure::Unreachable { endpoint, why })
            }
        }
    }
}

#[async_trait]
impl Driver for Mqtt {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "MQTT 3.1.1 at QoS 1 (Mosquitto)",
            client: "rumqttc 0.25",
            sent_means: "the broker answered with PUBACK; it has it in memory",
            hidden_means: "not at all: to one of those who listen, and never again",
            tiers: &[Tier::T0],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::Never,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, _topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("in flight", &self.window),
            ("manual acks", &true),
            ("keep alive", &ms(KEEP_ALIVE)),
            ("packet bytes", &PACKET_BYTES_MAX),
            ("tcp nodelay", &true),
            ("QoS", &1),
        ])
    }

    /// MQTT reports the version of the protocol, not of the server.
    async fn version(&self) -> Result<String, Failure> {
        let (client, mut events) = self.open().await?;
        let _ = client.disconnect().await;
        while events.poll().await.is_ok() {}
        Ok("not told by the protocol".to_owned())
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)
    }

    async fn remove(&self, _topology: &Topology) -> Result<(), Failure> {
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let (client, events) = self.open().await?;
        let topics = (0..topology.destinations).map(|index| topology.destination(index)).collect();
        Ok(Box::new(sender::MqttSender::spawn(client, events, topics, self.window)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let (client, events) = self.open().await?;
        let group = topology.subscription(subscription);
        let topic = |&index: &u32| format!("$share/{group}/{}", topology.destination(index));
        let topics: Vec<String> = destinations.iter().map(topic).collect();
        Ok(Box::new(receiver::MqttReceiver::listen(client, events, &topics).await?))
    }
}
