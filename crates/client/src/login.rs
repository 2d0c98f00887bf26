//! Authentication: SASL over a newly opened connection.

use std::fmt;
use std::sync::Arc;

use kafka_protocol::messages::{ApiKey, SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use scram::Hash;
use scram::client::Client as Scram;

use crate::connection::Connection;
use crate::error::{ClientError, accepted};

/// SASL mechanism: the password is sent, or only proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    Plain,
    Scram(Hash),
}

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(hash) => hash.mechanism(),
        }
    }
}

/// The credentials of a client.
#[derive(Clone)]
pub struct Login {
    pub mechanism: Mechanism,
    pub name: String,
    pub password: String,
    /// Log in only at brokers that require it. Postroad shows that by not offering its own request before the login.
    pub only_where_needed: bool,
    /// Generates a new random text without commas at each call.
    pub nonce: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("mechanism", &self.mechanism)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Logs in, unless `only_where_needed` is set and the broker requires no login.
    pub async fn log_in(&mut self, login: &Login) -> Result<(), ClientError> {
        let is_needed = !self.is_operated() && self.offers(ApiKey::SaslHandshake, 1..=1);
        if login.only_where_needed && !is_needed {
            return Ok(());
        }
        let handshake = SaslHandshakeRequest::default()
            .with_mechanism(StrBytes::from_static_str(login.mechanism.name()));
        let answer = self.call(&handshake, 1..=1).await?;
        accepted(answer.error_code, None, || {
            let offered: Vec<&str> = answer.mechanisms.iter().map(StrBytes::as_str).collect();
            format!(
                "cannot log in by {}; {} offers {} on this connection",
                login.mechanism.name(),
                self.address(),
                if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") },
            )
        })?;
        match login.mechanism {
            Mechanism::Plain => {
                let message = format!("\0{}\0{}", login.name, login.password);
                self.authenticate(login, message.into_bytes()).await?;
            }
            Mechanism::Scram(hash) => {
                let scram = Scram::new(hash, &login.name, &login.password, &(login.nonce)());
                let challenge = self.authenticate(login, scram.first().into_bytes()).await?;
                let (answer, expected) =
                    scram.answer(&challenge).map_err(|error| self.unproved(error))?;
                let proof = self.authenticate(login, answer.into_bytes()).await?;
                expected.check(&proof).map_err(|error| self.unproved(error))?;
            }
        }
        // The offered versions may depend on the user.
        self.refresh_versions().await
    }

    async fn authenticate(&self, login: &Login, message: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
        let answer = self.call(&request, 1..=2).await?;
        let what = || format!("cannot log in as {}", login.name);
        accepted(answer.error_code, answer.error_message.as_deref(), what)?;
        Ok(answer.auth_bytes.to_vec())
    }

    fn unproved(&self, error: scram::MalformedMessage) -> ClientError {
        ClientError::Unreadable {
            address: self.address().to_owned(),
            api: ApiKey::SaslAuthenticate.into(),
            reason: error.to_string(),
        }
    }
}
