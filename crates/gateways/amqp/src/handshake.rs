//! The methods of channel 0: from the protocol header to an open connection, and its close.

use std::time::Duration;

use access::{Credentials, LoginError, Principal, sasl};
use rabbitmq::rights::{Rights, refused_vhost};
use tokio::time::Instant;
use topology::VirtualHost;

use crate::codec::fields::{EncodedTable, LongString};
use crate::codec::frame::{
    FRAME_MAX_MIN, FrameKind, OVERHEAD_BYTES, PROTOCOL_HEADER, PROTOCOL_HEADER_0_9,
};
use crate::codec::methods::{
    ConnectionClose, ConnectionCloseOk, ConnectionOpen, ConnectionOpenOk, ConnectionStart,
    ConnectionStartOk, ConnectionTune, ConnectionTuneOk, ConnectionUpdateSecret,
    ConnectionUpdateSecretOk, Method, MethodId,
};
use crate::codec::table::{FieldTable, FieldValue};
use crate::errors::{Exception, ReplyCode};
use crate::failure::{Failure, bad_method};
use crate::gateway::PROTOCOL;
use crate::limits::AMQP_CLIENT_PROPERTIES_BYTES_MAX;
use crate::session::end::SessionEnd;
use crate::session::flow_control::CLIENT_ID;
use crate::session::operation::OperationResult;
use crate::session::{Capabilities, Phase, Session};

const EXTERNAL: &str = "EXTERNAL";
const ANONYMOUS: &str = "ANONYMOUS";
/// Delay before a failed login is closed for a client without `authentication_failure_close`. It slows down password
/// guessing (RabbitMQ's `SILENT_CLOSE_DELAY`).
const SILENT_CLOSE_DELAY: Duration = Duration::from_secs(3);

/// Server properties of `connection.start`, as in RabbitMQ.
fn server_properties(cluster: &str) -> FieldTable {
    let mut capabilities = FieldTable::new();
    for capability in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ] {
        capabilities.push(capability, true);
    }
    let mut properties = FieldTable::new();
    properties.push("capabilities", capabilities);
    properties.push("cluster_name", cluster);
    properties.push("information", "One durable message broker, a log and a queue at once");
    properties.push("platform", "Rust");
    properties.push("product", "Postroad");
    properties.push("version", env!("CARGO_PKG_VERSION"));
    properties
}

impl Session {
    pub(crate) fn protocol_header(&mut self, header: [u8; 8]) {
        if ![PROTOCOL_HEADER, PROTOCOL_HEADER_0_9].contains(&header) {
            // The supported protocol header, and nothing more (specification, 4.2.2).
            self.output.raw(&PROTOCOL_HEADER);
            return self.finish(SessionEnd::ProtocolHeader(header));
        }
        let properties = server_properties(&self.gateway.broker.cluster_id()).to_bytes();
        self.output.method(
            0,
            ConnectionStart {
                version_major: 0,
                version_minor: 9,
                server_properties: EncodedTable(&properties),
                mechanisms: LongString(self.mechanisms().as_bytes()),
                locales: LongString(b"en_US"),
                ..ConnectionStart::default()
            },
        );
        self.phase = Phase::Starting;
    }

    /// SASL mechanisms offered on this connection.
    fn mechanisms(&self) -> String {
        let mut mechanisms = "PLAIN AMQPLAIN".to_owned();
        let external = self.certified.is_some().then_some(EXTERNAL);
        let anonymous = self.gateway.options.anonymous_user.is_some().then_some(ANONYMOUS);
        for mechanism in [external, anonymous].into_iter().flatten() {
            mechanisms.push(' ');
            mechanisms.push_str(mechanism);
        }
        mechanisms
    }

    pub(crate) fn connection_method(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let method = Method::decode(payload).map_err(|error| bad_method(&error, payload))?;
        let id = method.id();
        self.connection_method_in_phase(method).map_err(|exception| Failure {
            channel: 0,
            method: id,
            exception,
        })
    }

    fn connection_method_in_phase(&mut self, method: Method<'_>) -> Result<(), Exception> {
        match (self.phase, method) {
            (Phase::Starting, Method::ConnectionStartOk(start_ok)) => self.start_ok(&start_ok),
            (Phase::Tuning, Method::ConnectionTuneOk(tune_ok)) => self.tune_ok(&tune_ok),
            (Phase::Opening, Method::ConnectionOpen(open)) => self.open(&open),
            (Phase::Running, Method::ConnectionClose(_)) => {
                self.close_connection();
                Ok(())
            }
            (_, Method::ConnectionClose(_)) => {
                self.output.method(0, ConnectionCloseOk::default());
                self.await_socket_close();
                Ok(())
            }
            (Phase::Running, Method::ConnectionUpdateSecret(update)) => {
                self.update_secret(&update);
                Ok(())
            }
            (phase, _) => Err(Exception::new(
                ReplyCode::ChannelError,
                format!("unexpected method in connection state {}", phase_name(phase)),
            )),
        }
    }

    fn start_ok(&mut self, start_ok: &ConnectionStartOk<'_>) -> Result<(), Exception> {
        let properties = FieldTable::decode(start_ok.client_properties.0)
            .map_err(|error| Exception::new(ReplyCode::SyntaxError, error.to_string()))?;
        self.capabilities = capabilities(&properties);
        self.client = client_name(&properties);
        self.connection.set_client(&self.client);
        let named = properties.get(CLIENT_ID).and_then(FieldValue::as_str);
        self.charges.client = named.unwrap_or_default().into();
        self.client_properties = shown(properties);
        let response = start_ok.response.0;
        let (users, peer) = (&self.gateway.users, self.peer.ip());
        let credentials = match start_ok.mechanism {
            "PLAIN" => sasl::plain(response)
                .map_err(|error| Exception::new(ReplyCode::SyntaxError, error.to_string()))?,
            "AMQPLAIN" => amqplain(response)?,
            EXTERNAL if self.certified.is_some() => return self.external(response),
            mechanism @ ANONYMOUS if self.gateway.options.anonymous_user.is_some() => {
                let name = self.gateway.options.anonymous_user.clone().unwrap_or_default();
                let (users, mechanism) = (users.clone(), mechanism.to_owned());
                let vouched = async move {
                    let login = users.log_in_vouched(&name, peer).await;
                    Ok(OperationResult::LoggedIn { mechanism, login })
                };
                self.begin(0, ConnectionStartOk::ID, vouched);
                return Ok(());
            }
            other => {
                return Err(Exception::new(
                    ReplyCode::CommandInvalid,
                    format!("unknown authentication mechanism '{other}'"),
                ));
            }
        };
        let mechanism = start_ok.mechanism;
        let is_private = self.encrypted || peer.to_canonical().is_loopback();
        if !is_private && !self.gateway.options.plaintext_passwords {
            let reason = "a password was said where others may hear it";
            users.note_refused(peer, reason);
            self.refuse_login(mechanism, reason.to_owned());
            return Ok(());
        }
        if users.is_token(&credentials.password) {
            self.renews = true;
            let (users, mechanism) = (users.clone(), mechanism.to_owned());
            let checked = async move {
                let login = users.log_in_by_token(&credentials.password, peer).await;
                Ok(OperationResult::LoggedIn { mechanism, login })
            };
            self.begin(0, ConnectionStartOk::ID, checked);
            return Ok(());
        }
        match users.log_in_at_once(&credentials, peer) {
            Some(principal) => self.logged_in(mechanism, Ok(principal)),
            None => {
                let (users, mechanism) = (users.clone(), mechanism.to_owned());
                let checked = async move {
                    let login = users.log_in(credentials, peer).await;
                    Ok(OperationResult::LoggedIn { mechanism, login })
                };
                self.begin(0, ConnectionStartOk::ID, checked);
            }
        }
        Ok(())
    }

    /// Logs in by the TLS client certificate (RFC 4422, appendix A): the response is empty, or the name itself.
    fn external(&mut self, response: &[u8]) -> Result<(), Exception> {
        let Some(certified) = self.certified.take() else { return Ok(()) };
        let (users, peer) = (self.gateway.users.clone(), self.peer.ip());
        if !response.is_empty() && response != certified.name().as_bytes() {
            let reason = "it wants to act as another user than its certificate names";
            users.note_refused(peer, reason);
            self.refuse_login(EXTERNAL, reason.to_owned());
            return Ok(());
        }
        let checked = async move {
            let login = users.log_in_certified(&certified, peer).await;
            Ok(OperationResult::LoggedIn { mechanism: EXTERNAL.to_owned(), login })
        };
        self.begin(0, ConnectionStartOk::ID, checked);
        Ok(())
    }

    /// Continues the handshake after the credentials were checked.
    pub(crate) fn logged_in(&mut self, mechanism: &str, login: Result<Principal, LoginError>) {
        let principal = match login {
            Ok(principal) => principal,
            Err(error) => return self.refuse_login(mechanism, error.to_string()),
        };
        self.connection.set_user(principal.name());
        self.login_ends = principal.ends_in().map(|left| Instant::now() + left);
        let (name, peer) = (principal.name(), self.peer.ip());
        self.gateway.users.audit().logged_in(name, peer, PROTOCOL, false);
        self.principal = Some(principal);
        let options = &self.gateway.options;
        self.output.method(
            0,
            ConnectionTune {
                channel_max: options.channel_max,
                frame_max: options.frame_max,
                heartbeat: options.heartbeat.as_secs() as u16,
                ..ConnectionTune::default()
            },
        );
        self.phase = Phase::Tuning;
    }

    /// Renews a login by a new token. Other kinds of login have no secret that expires, and nothing is kept of it.
    fn update_secret(&mut self, update: &ConnectionUpdateSecret<'_>) {
        if !self.renews {
            return self.output.method(0, ConnectionUpdateSecretOk::default());
        }
        let (users, peer) = (self.gateway.users.clone(), self.peer.ip());
        let token = String::from_utf8_lossy(update.new_secret.0).into_owned();
        let checked = async move {
            let login = users.log_in_by_token(&token, peer).await;
            Ok(OperationResult::SecretUpdated { login })
        };
        self.begin(0, ConnectionUpdateSecret::ID, checked);
    }

    /// Completes a renewal after the new token was checked. It must belong to the same user.
    pub(crate) fn secret_updated(
        &mut self,
        login: Result<Principal, LoginError>,
    ) -> Result<(), Exception> {
        let refused = || {
            let text = "New secret was refused by one of the backends";
            Exception::new(ReplyCode::NotAllowed, text)
        };
        let principal = login.map_err(|_| refused())?;
        if principal.name().as_ref() != self.user() {
            self.gateway.users.note_refused(self.peer.ip(), "a new token names another user");
            return Err(refused());
        }
        self.login_ends = principal.ends_in().map(|left| Instant::now() + left);
        self.principal = Some(principal);
        self.output.method(0, ConnectionUpdateSecretOk::default());
        Ok(())
    }

    fn refuse_login(&mut self, mechanism: &str, reason: String) {
        let text = format!(
            "Login was refused using authentication mechanism {mechanism}. For details see the \
             broker logfile."
        );
        let mechanism = mechanism.to_owned();
        let end = SessionEnd::LoginRefused { mechanism, reason };
        if self.capabilities.authentication_failure_close {
            let exception = Exception::new(ReplyCode::AccessRefused, text);
            let (channel, method) = (0, MethodId::default());
            self.end = Some(end);
            self.fail(Failure { channel, method, exception });
        } else {
            self.end = Some(end);
            self.phase = Phase::Closing;
            self.deadline = Some(Instant::now() + SILENT_CLOSE_DELAY);
        }
    }

    fn tune_ok(&mut self, tune_ok: &ConnectionTuneOk<'_>) -> Result<(), Exception> {
        let options = &self.gateway.options;
        let frame_max = tune_ok.frame_max;
        negotiated("frame_max", FRAME_MAX_MIN, options.frame_max, frame_max)?;
        let channel_max = tune_ok.channel_max;
        negotiated("channel_max", 1, u32::from(options.channel_max), u32::from(channel_max))?;
        self.negotiated.payload_bytes_max = frame_max as usize - OVERHEAD_BYTES;
        self.negotiated.channel_max = channel_max;
        self.negotiated.heartbeat = Duration::from_secs(u64::from(tune_ok.heartbeat));
        self.phase = Phase::Opening;
        Ok(())
    }

    fn open(&mut self, open: &ConnectionOpen<'_>) -> Result<(), Exception> {
        let name = open.virtual_host;
        let granted = self.rights_in(name).is_some();
        if let Some(vhost) = self.gateway.topology.vhost(name).filter(|_| granted) {
            return self.open_vhost(name, vhost);
        }
        // Another node may have created the vhost, or granted access, a moment ago.
        let (topology, users) = (self.gateway.topology.clone(), self.gateway.users.clone());
        let name = name.to_owned();
        let looking = async move {
            let vhost = topology.look_for_vhost(&name).await?;
            let current = users.catch_up().await;
            current.map_err(|error| Exception::new(ReplyCode::InternalError, error.to_string()))?;
            let vhost = vhost.ok_or_else(|| {
                Exception::new(ReplyCode::NotAllowed, format!("vhost {name} not found"))
            })?;
            Ok(OperationResult::FoundVhost { vhost })
        };
        self.begin(0, ConnectionOpen::ID, looking);
        Ok(())
    }

    fn rights_in(&self, vhost: &str) -> Option<Rights> {
        Rights::of(&self.gateway.users, self.principal.as_ref()?, self.peer.ip(), vhost)
    }

    pub(crate) fn open_vhost(&mut self, name: &str, vhost: VirtualHost) -> Result<(), Exception> {
        let rights = self.rights_in(name);
        self.rights = Some(rights.ok_or_else(|| refused_vhost(name, self.user()))?);
        self.count_connection(name)?;
        self.vhost = Some(vhost);
        self.output.method(0, ConnectionOpenOk::default());
        self.phase = Phase::Running;
        self.deadline = None;
        let (user, client) = (self.user(), &*self.client);
        tracing::debug!(peer = %self.peer, session = self.id.0, user, vhost = name, client, "open");
        self.notify_blocked();
        Ok(())
    }

    /// Closes the connection for the client: first its pending work, then its exclusive queues, then the reply.
    fn close_connection(&mut self) {
        let left = self.leave_channels();
        let (topology, vhost, id) = (self.gateway.topology.clone(), self.vhost.clone(), self.id);
        let future = async move {
            // The error is logged, and no reason to keep the client.
            let _ = left.end(vhost).await;
            topology.close_owner(id).await?;
            Ok(OperationResult::ConnectionClosed)
        };
        self.begin(0, ConnectionClose::ID, future);
    }

    /// After an exception only `connection.close_ok` counts, or the `connection.close` of a client that closes at the
    /// same time.
    pub(crate) fn closing_frame(
        &mut self,
        channel: u16,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<(), Failure> {
        if kind != FrameKind::Method || channel != 0 {
            return Ok(());
        }
        match Method::decode(payload) {
            Ok(Method::ConnectionCloseOk(_)) => self.phase = Phase::Ended,
            Ok(Method::ConnectionClose(_)) => {
                self.output.method(0, ConnectionCloseOk::default());
                self.await_socket_close();
            }
            _ => {}
        }
        Ok(())
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Connecting => "handshake",
        Phase::Starting => "starting",
        Phase::Tuning => "tuning",
        Phase::Opening => "opening",
        Phase::Running => "running",
        Phase::Closing => "closing",
        Phase::Closed | Phase::Ended => "closed",
    }
}

/// A value chosen by a client must be within the offer; 0 would be no limit at all.
fn negotiated(field: &str, least: u32, offered: u32, chosen: u32) -> Result<(), Exception> {
    let (direction, bound, limit) = if chosen != 0 && chosen < least {
        ("lower", "minimum", least)
    } else if offered != 0 && (chosen == 0 || chosen > offered) {
        ("higher", "maximum", offered)
    } else {
        return Ok(());
    };
    let detail = if chosen == 0 { " (no limit)" } else { "" };
    let text = format!(
        "negotiated {field} = {chosen}{detail} is {direction} than the {bound} allowed value \
         ({limit})"
    );
    Err(Exception::new(ReplyCode::NotAllowed, text))
}

/// A field table without its length prefix, with a name and a password.
pub(crate) fn amqplain(response: &[u8]) -> Result<Credentials, Exception> {
    let table = FieldTable::decode(response).unwrap_or_default();
    let field = |name| match table.get(name) {
        Some(FieldValue::LongString(bytes)) => Some(bytes),
        _ => None,
    };
    match (field("LOGIN"), field("PASSWORD")) {
        (Some(name), Some(password)) => Ok(Credentials::from_bytes(name, password)),
        _ => Err(Exception::new(
            ReplyCode::SyntaxError,
            "AMQPLAIN auth info {LOGIN,PASSWORD} is not there, or is no text",
        )),
    }
}

pub(crate) fn capabilities(properties: &FieldTable) -> Capabilities {
    let Some(FieldValue::Table(table)) = properties.get("capabilities") else {
        return Capabilities::default();
    };
    let can = |name| table.get(name).and_then(FieldValue::as_bool) == Some(true);
    Capabilities {
        consumer_cancel_notify: can("consumer_cancel_notify"),
        connection_blocked: can("connection.blocked"),
        authentication_failure_close: can("authentication_failure_close"),
    }
}

/// The library and its version, and the connection name set by the application.
pub(crate) fn client_name(properties: &FieldTable) -> String {
    let of = |name| properties.get(name).and_then(FieldValue::as_str);
    let known = ["product", "version", "connection_name"].into_iter().filter_map(of);
    known.collect::<Vec<_>>().join(" ")
}

/// Client properties kept for the management API; dropped if they are large.
pub(crate) fn shown(properties: FieldTable) -> FieldTable {
    match properties.to_bytes().len() <= AMQP_CLIENT_PROPERTIES_BYTES_MAX {
        true => properties,
        false => FieldTable::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amqplain_reads_name_and_password_from_a_table() {
        let guest = Credentials::from_bytes(b"guest", b"guest");
        let mut table = FieldTable::new();
        table.push("LOGIN", "guest");
        table.push("PASSWORD", "guest");
        assert_eq!(amqplain(&table.to_bytes()), Ok(guest));
        assert!(amqplain(b"\xff").is_err());
    }

    #[test]
    fn negotiated_value_outside_the_offer_is_rejected() {
        assert_eq!(negotiated("frame_max", 4096, 131_072, 131_072), Ok(()));
        assert_eq!(negotiated("channel_max", 1, 2047, 100), Ok(()));
        let refused = negotiated("frame_max", 4096, 131_072, 0).expect_err("refused");
        assert_eq!(
            refused.reply_text(),
            "NOT_ALLOWED - negotiated frame_max = 0 (no limit) is higher than the maximum allowed \
             value (131072)"
        );
        let refused = negotiated("frame_max", 4096, 131_072, 100).expect_err("refused");
        assert!(refused.reply_text().contains("is lower than the minimum allowed value (4096)"));
    }
}
