//! The brokers of a cluster: their addresses, the leaders of partitions, the coordinators of groups.

use base::HashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::connect::{Connect, Stream, connect};
use crate::connection::Connection;
use crate::error::{BrokerRejection, ClientError, accepted};
use crate::login::Login;
use crate::requests;

/// Time for which transient failures (an election, a restart) are retried.
pub const PATIENCE: Duration = Duration::from_secs(30);
const BACKOFF: Duration = Duration::from_millis(100);

/// A partition of a topic, by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A client of one cluster, for many callers at once.
#[derive(Debug)]
pub struct Client {
    connector: Box<dyn Connect>,
    bootstrap: Vec<String>,
    pub(crate) token: Option<String>,
    login: Option<Login>,
    /// The first broker that replied; replaced by another one if it goes away.
    home: Mutex<Arc<Connection>>,
    connections: Mutex<HashMap<String, Arc<Connection>>>,
}

/// The metadata of some topics.
#[derive(Debug)]
pub struct Metadata {
    brokers: BTreeMap<i32, String>,
    pub topics: BTreeMap<String, TopicMetadata>,
}

/// The metadata of one topic.
#[derive(Debug)]
pub struct TopicMetadata {
    /// Whether it is an internal topic of the broker.
    pub internal: bool,
    /// By index, from 0.
    pub partitions: Vec<PartitionMetadata>,
}

#[derive(Clone, Copy, Debug)]
pub struct PartitionMetadata {
    /// The leader's broker id; -1: no leader.
    pub leader: i32,
    pub replicas: usize,
}

impl Client {
    /// Connects to the first of `bootstrap` (addresses separated by commas) that replies. `connector` opens every
    /// connection to any broker: [`Tcp`](crate::Tcp), or that of a simulation. `token` is the operators', for servers
    /// on other machines.
    pub async fn connect(
        connector: impl Connect,
        bootstrap: &str,
        token: Option<String>,
    ) -> Result<Client, ClientError> {
        Self::connect_as(connector, bootstrap, token, None).await
    }

    /// Like [`Self::connect`], with a login on every connection.
    pub async fn connect_as(
        connector: impl Connect,
        bootstrap: &str,
        token: Option<String>,
        login: Option<Login>,
    ) -> Result<Client, ClientError> {
        let bootstrap: Vec<String> =
            bootstrap.split(',').map(with_port).collect::<Result<_, _>>()?;
        let connector: Box<dyn Connect> = Box::new(connector);
        let home = Arc::new(first_reachable(&*connector, &bootstrap, login.as_ref()).await?);
        let connections = HashMap::from_iter([(home.address().to_owned(), home.clone())]);
        let (home, connections) = (Mutex::new(home), Mutex::new(connections));
        Ok(Client { connector, bootstrap, token, login, home, connections })
    }

    /// The connection to any broker of the cluster.
    pub async fn any(&self) -> Arc<Connection> {
        self.home.lock().await.clone()
    }

    /// A connection to `address`, which a broker reported as one of the cluster.
    async fn broker(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        let mut connections = self.connections.lock().await;
        if let Some(connection) = connections.get(address) {
            return Ok(connection.clone());
        }
        let stream = connect(&*self.connector, address).await.map_err(|source| {
            ClientError::AdvertisedUnreachable {
                bootstrap: self.bootstrap.join(","),
                address: address.to_owned(),
                source,
            }
        })?;
        let connection = opened(stream, address, self.login.as_ref()).await?;
        let connection = Arc::new(connection);
        connections.insert(address.to_owned(), connection.clone());
        Ok(connection)
    }

    /// All brokers of the cluster.
    pub async fn brokers(&self) -> Result<Vec<Arc<Connection>>, ClientError> {
        let metadata = self.metadata(Some(&[])).await?;
        let mut brokers = Vec::with_capacity(metadata.brokers.len());
        for address in metadata.brokers.values() {
            brokers.push(self.broker(address).await?);
        }
        Ok(brokers)
    }

    /// Drops a failed connection, so that the next use opens another.
    pub async fn forget(&self, connection: &Connection) {
        self.connections.lock().await.remove(connection.address());
    }

    /// Drops all connections, so that the next use of each opens another.
    pub async fn forget_all(&self) {
        self.connections.lock().await.clear();
    }

    /// Metadata of these topics; `None`: of all topics. Missing topics are left out.
    pub async fn metadata(&self, topics: Option<&[&str]>) -> Result<Metadata, ClientError> {
        let request = match topics {
            Some(topics) => requests::metadata(topics.iter().copied()),
            None => {
                let all = MetadataRequest::default().with_topics(None);
                all.with_allow_auto_topic_creation(false)
            }
        };
        // 4: auto creation can be declined. 9 and lower: topics by name alone.
        Metadata::from_response(self.call_any(&request, 4..=9).await?)
    }

    /// Sends to the home broker. If its connection is lost, the first bootstrap address that replies becomes the home
    /// and gets the request. Only for requests that may be sent twice.
    async fn call_any<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<R::Response, ClientError> {
        match self.any().await.call(request, versions.clone()).await {
            Err(ClientError::Closed { .. } | ClientError::TimedOut { .. }) => {
                let home =
                    first_reachable(&*self.connector, &self.bootstrap, self.login.as_ref()).await?;
                let home = Arc::new(home);
                *self.home.lock().await = home.clone();
                home.call(request, versions).await
            }
            answered => answered,
        }
    }

    /// Metadata of one topic, which must exist. Waits for its partitions to have leaders.
    pub async fn topic(&self, topic: &str) -> Result<Metadata, ClientError> {
        patiently(|| async {
            let metadata = self.metadata(Some(&[topic])).await?;
            let Some(found) = metadata.topics.get(topic) else {
                return Err(ClientError::NoSuchTopic(topic.to_owned()));
            };
            if found.partitions.iter().any(|partition| partition.leader < 0) {
                let code = ResponseError::LeaderNotAvailable;
                return Err(BrokerRejection {
                    what: format!("topic {topic}"),
                    code,
                    message: None,
                }
                .into());
            }
            Ok(metadata)
        })
        .await
    }

    /// Groups partitions by the connection to their leader.
    pub async fn by_leader<T>(
        &self,
        metadata: &Metadata,
        partitions: impl IntoIterator<Item = (TopicPartition, T)>,
    ) -> Result<Vec<(Arc<Connection>, Vec<(TopicPartition, T)>)>, ClientError> {
        let mut groups: BTreeMap<&str, Vec<(TopicPartition, T)>> = BTreeMap::new();
        for (partition, item) in partitions {
            groups.entry(metadata.leader(&partition)?).or_default().push((partition, item));
        }
        let mut connected = Vec::with_capacity(groups.len());
        for (address, partitions) in groups {
            connected.push((self.broker(address).await?, partitions));
        }
        Ok(connected)
    }

    /// The connection to the leader of one partition.
    pub async fn leader(
        &self,
        metadata: &Metadata,
        partition: &TopicPartition,
    ) -> Result<Arc<Connection>, ClientError> {
        self.broker(metadata.leader(partition)?).await
    }

    /// The connection to the coordinator of `group`.
    pub async fn coordinator(&self, group: &str) -> Result<Arc<Connection>, ClientError> {
        let request = FindCoordinatorRequest::default()
            .with_key_type(0)
            .with_key(StrBytes::from_string(group.to_owned()));
        patiently(|| async {
            // From version 4 on the request is for several groups.
            let answer = self.call_any(&request, 1..=3).await?;
            let message = answer.error_message.as_deref();
            accepted(answer.error_code, message, || format!("cannot find group {group}"))?;
            self.broker(&host_port(&answer.host, answer.port)).await
        })
        .await
    }
}

impl Metadata {
    fn from_response(response: MetadataResponse) -> Result<Metadata, ClientError> {
        let brokers = response
            .brokers
            .iter()
            .map(|broker| (broker.node_id.0, host_port(&broker.host, broker.port)))
            .collect();
        let mut topics = BTreeMap::new();
        for topic in response.topics {
            let name = topic.name.clone().unwrap_or_default();
            match ResponseError::try_from_code(topic.error_code) {
                Some(ResponseError::UnknownTopicOrPartition) => continue,
                Some(code) if !code.is_retriable() => {
                    let what = format!("topic {}", name.0);
                    return Err(BrokerRejection { what, code, message: None }.into());
                }
                // Without a leader so far; its partitions show that as well.
                _ => topics.insert(name.to_string(), TopicMetadata::from_response(&topic)),
            };
        }
        Ok(Metadata { brokers, topics })
    }

    /// The address of the leader of a partition.
    fn leader(&self, partition: &TopicPartition) -> Result<&str, ClientError> {
        let topic = self.topics.get(&*partition.topic);
        let found = topic.and_then(|topic| topic.partitions.get(partition.partition as usize));
        let Some(found) = found else {
            return Err(ClientError::NoSuchPartition {
                topic: partition.topic.to_string(),
                partition: partition.partition,
                partitions: topic.map_or(0, |topic| topic.partitions.len()),
            });
        };
        self.brokers.get(&found.leader).map(String::as_str).ok_or_else(|| {
            let what = format!("partition {partition}");
            BrokerRejection { what, code: ResponseError::LeaderNotAvailable, message: None }.into()
        })
    }

    /// All partitions of a topic; empty if it does not exist.
    pub fn partitions(&self, topic: &str) -> Vec<TopicPartition> {
        let count = self.topics.get(topic).map_or(0, |found| found.partitions.len());
        let topic: Arc<str> = topic.into();
        (0..count as i32).map(|partition| TopicPartition::new(topic.clone(), partition)).collect()
    }

    /// All partitions of all topics.
    pub fn all_partitions(&self) -> Vec<TopicPartition> {
        self.topics.keys().flat_map(|topic| self.partitions(topic)).collect()
    }
}

impl TopicMetadata {
    fn from_response(topic: &MetadataResponseTopic) -> Self {
        let mut partitions: Vec<_> = topic.partitions.iter().collect();
        partitions.sort_unstable_by_key(|partition| partition.partition_index);
        Self {
            internal: topic.is_internal,
            partitions: partitions
                .iter()
                .map(|partition| PartitionMetadata {
                    leader: partition.leader_id.0,
                    replicas: partition.replica_nodes.len(),
                })
                .collect(),
        }
    }
}

/// Repeats `attempt` while the error is transient, for [`PATIENCE`] at most. An unreachable broker is reported at
/// once: waiting for it would look like a hang.
pub(crate) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Err(ClientError::Refused(refused))
                if is_settling(refused.code) && Instant::now() < deadline =>
            {
                sleep(BACKOFF).await;
            }
            done => return done,
        }
    }
}

/// Whether a refusal is transient. The protocol counts a missing topic as transient, for brokers that do not know it
/// yet; for a user it is an answer.
fn is_settling(code: ResponseError) -> bool {
    code.is_retriable()
        && !matches!(
            code,
            ResponseError::UnknownTopicOrPartition
                | ResponseError::RequestTimedOut
                | ResponseError::KafkaStorageError
        )
}

async fn first_reachable(
    connector: &dyn Connect,
    bootstrap: &[String],
    login: Option<&Login>,
) -> Result<Connection, ClientError> {
    let mut failed = None;
    for address in bootstrap {
        let connection = match connect(connector, address).await {
            Ok(stream) => opened(stream, address, login).await,
            Err(source) => Err(ClientError::Unreachable { address: address.clone(), source }),
        };
        match connection {
            // A process that is about to end accepts connections and does not reply.
            Err(
                error @ (ClientError::Unreachable { .. }
                | ClientError::Closed { .. }
                | ClientError::TimedOut { .. }),
            ) => failed = Some(error),
            connection => return connection,
        }
    }
    Err(failed.unwrap_or_else(|| ClientError::BadAddress(String::new())))
}

async fn opened(
    stream: impl Stream,
    address: &str,
    login: Option<&Login>,
) -> Result<Connection, ClientError> {
    let mut connection = Connection::over(stream, address).await?;
    if let Some(login) = login {
        connection.log_in(login).await?;
    }
    Ok(connection)
}

fn host_port(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A typed address; without a port, Kafka's default port.
fn with_port(address: &str) -> Result<String, ClientError> {
    let bad = || ClientError::BadAddress(address.to_owned());
    let address = address.trim();
    let (host, port) = match address.rsplit_once(':') {
        // `::1` is all host, `[::1]:9092` is not.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    let port = port.map_or(Ok(9092), |port| port.parse::<u16>().map_err(|_| bad()))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // Without its zone, as in `fe80::1%eth0`.
    let address = host.split('%').next().unwrap_or_default();
    let is_address = !host.contains(':') || address.parse::<std::net::Ipv6Addr>().is_ok();
    if host.is_empty() || host.contains(char::is_whitespace) || host.contains('/') || !is_address {
        return Err(bad());
    }
    Ok(host_port(host, port.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_port_gets_the_default_port() {
        let parsed = |text: &str| with_port(text).ok();
        assert_eq!(parsed("broker"), Some("broker:9092".into()));
        assert_eq!(parsed("broker:1234"), Some("broker:1234".into()));
        assert_eq!(parsed(" 127.0.0.1:9 "), Some("127.0.0.1:9".into()));
        assert_eq!(parsed("[::1]:9093"), Some("[::1]:9093".into()));
        assert_eq!(parsed("::1"), Some("[::1]:9092".into()));
        for wrong in ["", ":9092", "a b:1", "broker:x", "broker:70000"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
