//! HTTP settings of `serve`.

use std::net::SocketAddr;

use super::{SettingsError, invalid, listen, listen_unless_off};

/// The port of RabbitMQ's management, which its tools expect.
const HTTP: &str = "127.0.0.1:15672";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HttpSettings {
    /// `None`: not without encryption.
    pub(crate) http: Option<SocketAddr>,
    /// Names of this node that are accepted where no login is required.
    pub(crate) hosts: Vec<String>,
    /// For metrics and health only.
    pub(crate) metrics: Option<SocketAddr>,
}

impl HttpSettings {
    pub(crate) fn of(
        http: Option<&str>,
        hosts: Option<Vec<String>>,
        metrics: Option<&str>,
    ) -> Result<Self, SettingsError> {
        let hosts = hosts.unwrap_or_default();
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if let Some(wrong) = hosts.iter().find(|it| it.is_empty() || !it.bytes().all(is_name)) {
            return Err(invalid(
                "http-host",
                wrong,
                "is no name of a host, such as broker.internal",
            ));
        }
        let metrics = metrics.map(|address| listen("metrics", address)).transpose()?;
        Ok(Self { http: listen_unless_off("http", http, HTTP)?, hosts, metrics })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_on_this_machine_unless_it_is_off_or_elsewhere() {
        let of = |http| HttpSettings::of(http, None, None).expect("valid").http;
        assert_eq!(of(None).map(|at| at.to_string()).as_deref(), Some(HTTP));
        assert_eq!(of(Some("off")), None);
        assert_eq!(of(Some("localhost:1")).map(|at| at.port()), Some(1));
        for (http, host, metrics) in
            [(Some("x"), None, None), (None, Some("a:1"), None), (None, None, Some("off"))]
        {
            let hosts = host.map(|host: &str| vec![host.to_owned()]);
            assert!(
                HttpSettings::of(http, hosts, metrics).is_err(),
                "{http:?} {host:?} {metrics:?}"
            );
        }
    }
}
