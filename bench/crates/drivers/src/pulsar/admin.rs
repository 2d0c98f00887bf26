//! Requests to a broker's HTTP port: topics, and the number of bookies that store a message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use driver::Failure;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Creating a topic waits for a ledger.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// A broker redirects to the owner of the topic.
const REDIRECTS_MAX: usize = 3;

/// Before the first message.
const EARLIEST: &str = r#"{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}"#;

#[derive(Debug)]
pub(super) struct Admin {
    /// `host:port`
    address: String,
    namespace: String,
    authorization: Option<String>,
}

/// Bookies of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bookies {
    /// Write quorum.
    pub(super) written: u32,
    /// Ack quorum.
    pub(super) acknowledged: u32,
}

impl Bookies {
    pub(super) fn hold(self, replicas: u32, majority: bool) -> bool {
        let Self { written, acknowledged } = self;
        written >= replicas && (!majority || written > 1 && acknowledged * 2 > written)
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    location: Option<String>,
    body: String,
}

impl Answer {
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
        };
        Some(Self { status, location: lines.find_map(header), body: body.to_owned() })
    }

    /// The server's reason for an error.
    fn why(&self) -> String {
        let reason = serde_json::from_str::<Value>(&self.body)
            .ok()
            .and_then(|said| said["reason"].as_str().map(str::to_owned));
        format!("HTTP {}: {}", self.status, reason.as_ref().unwrap_or(&self.body))
    }
}

impl Admin {
    pub(super) fn new(
        address: &str,
        namespace: String,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Self {
        let authorization = password.map(|password| match user {
            Some(user) => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            None => format!("Bearer {password}"),
        });
        let address = address.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { address, namespace, authorization }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) async fn version(&self) -> Result<String, Failure> {
        let answer = self.request("GET", "/admin/v2/brokers/version", "", &[200]).await?;
        Ok(answer.body.trim().trim_matches('"').to_owned())
    }

    pub(super) async fn create(&self, topic: &str, partitions: u32) -> Result<(), Failure> {
        let (path, body) = match partitions {
            0 | 1 => (self.path(topic), String::new()),
            many => (format!("{}/partitions", self.path(topic)), many.to_string()),
        };
        self.request("PUT", &path, &body, &[204]).await.map(drop)
    }

    /// Deletes a topic and disconnects its clients.
    pub(super) async fn delete(&self, topic: &str, partitions: u32) -> Result<(), Failure> {
        let partitioned = if partitions > 1 { "/partitions" } else { "" };
        let path = format!("{}{partitioned}?force=true", self.path(topic));
        self.request("DELETE", &path, "", &[204, 404]).await.map(drop)
    }

    pub(super) async fn subscribe(&self, topic: &str, name: &str) -> Result<(), Failure> {
        let path = format!("{}/subscription/{name}", self.path(topic));
        self.request("PUT", &path, EARLIEST, &[204]).await.map(drop)
    }

    /// The policy of the namespace, or else the broker's default.
    pub(super) async fn bookies(&self) -> Result<Bookies, Failure> {
        let path = format!("/admin/v2/namespaces/{}/persistence", self.namespace);
        let policy = self.request("GET", &path, "", &[200, 204]).await?;
        if let Some(bookies) = namespace_policy(&policy.body) {
            return Ok(bookies);
        }
        let broker =
            self.request("GET", "/admin/v2/brokers/configuration/runtime", "", &[200]).await?;
        broker_defaults(&broker.body)
            .ok_or_else(|| Failure::unknown("the broker does not say its default quorums"))
    }

    fn path(&self, topic: &str) -> String {
        format!("/admin/v2/persistent/{}/{topic}", self.namespace)
    }

    /// A reply with another status is an error.
    async fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
        expected: &[u16],
    ) -> Result<Answer, Failure> {
        let (mut address, mut path) = (self.address.clone(), path.to_owned());
        for _ in 0..=REDIRECTS_MAX {
            let unreachable =
                |why: String| Failure::Unreachable { endpoint: format!("admin {address}"), why };
            let asked = timeout(PATIENCE, self.fetch(&address, method, &path, body)).await;
            let text = asked
                .map_err(|_| unreachable(format!("no answer within {PATIENCE:?}")))?
                .map_err(|error| unreachable(error.to_string()))?;
            let answer =
                Answer::parse(&text).ok_or_else(|| unreachable("it speaks no HTTP".to_owned()))?;
            match (answer.status, &answer.location) {
                (status, _) if expected.contains(&status) => return Ok(answer),
                (307, Some(location)) => (address, path) = place(location, &address),
                (401 | 403, _) => {
                    let (endpoint, user, why) = (address, String::new(), answer.why());
                    return Err(Failure::NotAllowed { endpoint, user, why });
                }
                _ => return Err(Failure::refused(format!("{method} {path}: {}", answer.why()))),
            }
        }
        Err(Failure::refused(format!("{method} {path}: brokers name each other")))
    }

    async fn fetch(
        &self,
        address: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<String> {
        let mut request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        if let Some(authorization) = &self.authorization {
            request += &format!("Authorization: {authorization}\r\n");
        }
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Address and path of a location; one without an address is on the same server.
fn place(location: &str, here: &str) -> (String, String) {
    let Some(rest) = location.strip_prefix("http://") else {
        return (here.to_owned(), location.to_owned());
    };
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    (address.to_owned(), format!("/{path}"))
}

fn namespace_policy(body: &str) -> Option<Bookies> {
    let policy: Value = serde_json::from_str(body).ok()?;
    let number = |name: &str| u32::try_from(policy[name].as_u64()?).ok();
    let written = number("bookkeeperWriteQuorum").filter(|&bookies| bookies > 0)?;
    Some(Bookies { written, acknowledged: number("bookkeeperAckQuorum")? })
}

fn broker_defaults(body: &str) -> Option<Bookies> {
    let settings: Value = serde_json::from_str(body).ok()?;
    let number = |name: &str| settings[name].as_str()?.parse().ok();
    Some(Bookies {
        written: number("managedLedgerDefaultWriteQuorum")?,
        acknowledged: number("managedLedgerDefaultAckQuorum")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majority_is_more_than_half_of_the_write_quorum() {
        let bookies = |written, acknowledged| Bookies { written, acknowledged };
        assert!(bookies(3, 2).hold(3, true));
        assert!(!bookies(3, 1).hold(3, true));
        assert!(bookies(3, 1).hold(3, false));
        assert!(!bookies(2, 2).hold(3, false));
        assert!(!bookies(1, 1).hold(1, true));
    }

    #[test]
    fn namespace_policy_precedes_the_brokers_default() {
        let policy =
            r#"{"bookkeeperEnsemble":3,"bookkeeperWriteQuorum":3,"bookkeeperAckQuorum":2}"#;
        assert_eq!(namespace_policy(policy), Some(Bookies { written: 3, acknowledged: 2 }));
        assert_eq!(namespace_policy(""), None);
        assert_eq!(namespace_policy("null"), None);
        let broker =
            r#"{"managedLedgerDefaultWriteQuorum":"2","managedLedgerDefaultAckQuorum":"2"}"#;
        assert_eq!(broker_defaults(broker), Some(Bookies { written: 2, acknowledged: 2 }));
    }

    #[test]
    fn reply_is_parsed_and_redirect_followed() {
        let text =
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://b:8080/admin/v2/x?y=1\r\n\r\n";
        let answer = Answer::parse(text).expect("is HTTP");
        assert_eq!(answer.status, 307);
        let location = answer.location.expect("there is one");
        assert_eq!(place(&location, "a:8080"), ("b:8080".into(), "/admin/v2/x?y=1".into()));
        assert_eq!(place("/x", "a:8080"), ("a:8080".into(), "/x".into()));
        assert!(Answer::parse("+PONG\r\n").is_none());
    }

    #[test]
    fn error_contains_the_servers_reason() {
        let text = "HTTP/1.1 409 Conflict\r\n\r\n{\"reason\":\"This topic already exists\"}";
        let why = Answer::parse(text).expect("is HTTP").why();
        assert_eq!(why, "HTTP 409: This topic already exists");
    }
}
