//! Endpoint and credentials of SQS.

use std::env;
use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{
    BehaviorVersion, Config, Credentials, Region, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use driver::{Failure, Target};

/// Default address of ElasticMQ.
const ENDPOINT: &str = "http://127.0.0.1:9324";
const AMAZON: &str = ".amazonaws.com";
const REGION: &str = "us-east-1";
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than any wait for messages.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(super) struct Access {
    pub(super) endpoint: String,
    region: String,
    credentials: Credentials,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, region, .. } = self;
        let user = self.user();
        let mut shown = f.debug_struct("Access");
        shown.field("endpoint", endpoint).field("region", region).field("user", &user);
        shown.finish_non_exhaustive()
    }
}

impl Access {
    pub(super) fn of(target: &Target, region: String) -> Result<Self, Failure> {
        let place = target.endpoint(ENDPOINT).trim_end_matches('/');
        let endpoint =
            if place.contains("://") { place.to_owned() } else { format!("http://{place}") };
        let region = [region, region_of(&endpoint), variable("AWS_REGION")];
        let region = region.into_iter().find(|region| !region.is_empty());
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let given = match (&target.user, &target.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone(), String::new())),
            _ => None,
        };
        let (key, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        let (key, secret, token) = given
            .unwrap_or_else(|| (variable(key), variable(secret), variable("AWS_SESSION_TOKEN")));
        let (key, secret) = if !key.is_empty() && !secret.is_empty() {
            (key, secret)
        } else if is_amazon(&endpoint) {
            let why = "there are no keys, neither as user and password nor in the environment";
            return Err(Failure::NotAllowed { endpoint, user: key, why: why.into() });
        } else {
            ("none".to_owned(), "none".to_owned())
        };
        let token = (!token.is_empty()).then_some(token);
        let credentials = Credentials::new(key, secret, token, None, "postroad-bench");
        Ok(Self { endpoint, region, credentials })
    }

    pub(super) fn user(&self) -> &str {
        self.credentials.access_key_id()
    }

    pub(super) fn is_amazon(&self) -> bool {
        is_amazon(&self.endpoint)
    }

    pub(super) fn config(&self) -> Config {
        let http = if self.endpoint.starts_with("https://") {
            Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
        } else {
            Builder::new().build_http()
        };
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_PATIENCE)
            .operation_timeout(PATIENCE)
            .build();
        Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .endpoint_url(&self.endpoint)
            .region(Region::new(self.region.clone()))
            .credentials_provider(self.credentials.clone())
            .http_client(http)
            .timeout_config(timeouts)
            // Failures must be counted, not retried.
            .retry_config(RetryConfig::disabled())
            // A request may wait for messages.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build()
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn host(endpoint: &str) -> &str {
    let (_, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let end = rest.find([':', '/']).unwrap_or(rest.len());
    &rest[..end]
}

fn is_amazon(endpoint: &str) -> bool {
    host(endpoint).ends_with(AMAZON)
}

/// The region in the endpoint's name, or an empty string.
fn region_of(endpoint: &str) -> String {
    let named = host(endpoint).strip_suffix(AMAZON).and_then(|rest| rest.split_once('.'));
    named.map_or_else(String::new, |(_, region)| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(endpoint: &str, keys: Option<(&str, &str)>) -> Result<Access, Failure> {
        let mut target = Target::of("sqs");
        target.endpoints.push(endpoint.into());
        (target.user, target.password) =
            keys.map_or((None, None), |(user, word)| (Some(user.into()), Some(word.into())));
        Access::of(&target, String::new())
    }

    #[test]
    fn amazon_and_its_region_are_detected_by_host_name() {
        let access = at("https://sqs.eu-west-1.amazonaws.com", Some(("key", "secret")));
        let access = access.expect("has keys");
        assert!(access.is_amazon());
        assert_eq!((access.region.as_str(), access.user()), ("eu-west-1", "key"));
    }

    #[test]
    fn own_server_needs_no_keys_and_no_scheme() {
        let access = at("127.0.0.1:24600", None).expect("nothing is missing");
        assert_eq!(access.endpoint, "http://127.0.0.1:24600");
        assert!(!access.is_amazon());
    }

    #[test]
    fn amazon_host_name_in_a_path_is_ignored() {
        assert!(!is_amazon("http://localhost:1/sqs.eu-west-1.amazonaws.com"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let access = at("127.0.0.1:1", Some(("key", "hush"))).expect("nothing is missing");
        assert!(!format!("{access:?}").contains("hush"));
    }
}
