//! Login requirements of the node's ports, and which open ports are rejected at start.

use std::net::SocketAddr;

use access::login_ports::{LoginPort, LoginPorts};
use access::{Admission, Users};
use gateway_http::LoginOptions as HttpLogins;
use gateway_kafka::LoginOptions;

use crate::listeners::Bound;
use crate::settings::Settings;
use crate::settings::security::{Auth, SecuritySettings};

/// The port would be open to everyone.
#[derive(Debug, thiserror::Error)]
#[error(
    "--{setting} {address} can be reached from other machines, and nobody would have to log in there{why}. Do one of \
     these:\n  \
     make a first user who may do everything: --admin-user NAME --admin-password-file FILE\n  \
     listen on this machine only:             --{setting} 127.0.0.1:{port}\n  \
     let everybody do everything:             --insecure",
    port = address.port()
)]
pub(crate) struct UnprotectedListener {
    setting: &'static str,
    address: SocketAddr,
    why: &'static str,
}

impl SecuritySettings {
    /// Login requirements of Kafka's ports. `has_users`: there are users. A member of a cluster may learn of its users
    /// later.
    pub(crate) fn logins(
        &self,
        bound: &Bound,
        has_users: bool,
        is_member: bool,
    ) -> Result<LoginOptions, UnprotectedListener> {
        let at = |setting, address| self.admission(setting, address, has_users, is_member);
        Ok(LoginOptions {
            plain: at("kafka", bound.kafka)?,
            tls: match bound.kafka_tls {
                Some(address) => at("kafka-tls", address)?,
                None => Admission::Required,
            },
            plaintext: self.plaintext,
            session_max: self.session_max,
        })
    }

    /// Login requirements of HTTP's ports.
    pub(crate) fn http_logins(
        &self,
        bound: &Bound,
        has_users: bool,
        is_member: bool,
    ) -> Result<gateway_http::LoginOptions, UnprotectedListener> {
        let at = |setting, address: Option<SocketAddr>| {
            let admission =
                address.map(|address| self.admission(setting, address, has_users, is_member));
            Ok(admission.transpose()?.unwrap_or(Admission::Required))
        };
        let (plain, tls) = (at("http", bound.http)?, at("http-tls", bound.http_tls)?);
        Ok(gateway_http::LoginOptions { plain, tls, plaintext: self.plaintext })
    }

    fn admission(
        &self,
        setting: &'static str,
        address: SocketAddr,
        has_users: bool,
        is_member: bool,
    ) -> Result<Admission, UnprotectedListener> {
        let may_be_open = self.insecure || address.ip().to_canonical().is_loopback();
        let unprotected = |why| UnprotectedListener { setting, address, why };
        let names_somebody = self.by_tokens || self.certified && setting.ends_with("-tls");
        match self.auth {
            Auth::On => Ok(Admission::Required),
            // Certificates or tokens name users even if none is stored.
            Auth::Auto if names_somebody => Ok(Admission::Required),
            Auth::Off if may_be_open => Ok(Admission::Open),
            Auth::Off => Err(unprotected(" with --auth off")),
            Auth::Auto if may_be_open && is_member => Ok(Admission::OpenWithoutUsers),
            Auth::Auto if has_users || is_member => Ok(Admission::Required),
            Auth::Auto if may_be_open => Ok(Admission::Open),
            Auth::Auto => Err(unprotected(", since there are no users")),
        }
    }
}

/// The open ports, each with its login requirement.
pub(crate) fn ports(
    settings: &Settings,
    bound: &Bound,
    kafka: &LoginOptions,
    http: &HttpLogins,
) -> LoginPorts {
    let amqp = match settings.amqp_anonymous {
        Some(_) => Admission::Open,
        None => Admission::Required,
    };
    let all = [
        ("kafka", Some(bound.kafka), kafka.plain),
        ("kafka-tls", bound.kafka_tls, kafka.tls),
        ("amqp", bound.amqp, amqp),
        ("amqp-tls", bound.amqp_tls, amqp),
        ("http", bound.http, http.plain),
        ("http-tls", bound.http_tls, http.tls),
    ];
    let ports = all.into_iter().filter_map(|(setting, address, admission)| {
        Some(LoginPort { setting, address: address?, admission })
    });
    LoginPorts { ports: ports.collect(), by_users: settings.security.auth == Auth::Auto }
}

/// Logs at each start what an operator has to know of logins.
pub(crate) fn log_requirements(settings: &Settings, users: &Users) {
    tracing::info!("{}", users.login_line());
    if settings.security.insecure {
        tracing::warn!("--insecure: where no log-in is asked for, everybody may do everything");
    }
    if settings.security.plaintext {
        tracing::warn!("--allow-plaintext-auth: passwords may be read on their way to this node");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::security::RawSecuritySettings;

    fn bound(kafka: &str) -> Bound {
        let kafka = kafka.parse().expect("an address");
        Bound {
            kafka,
            kafka_tls: None,
            amqp: None,
            amqp_tls: None,
            http: Some(kafka),
            http_tls: None,
            metrics: None,
        }
    }

    #[test]
    fn login_requirement_depends_on_port_users_and_settings() {
        use Admission::{Open, OpenWithoutUsers, Required};
        let (here, there) = ("127.0.0.1:9092", "0.0.0.0:9092");
        for (auth, insecure, address, has_users, is_member, expected) in [
            (Auth::Auto, false, here, false, false, Some(Open)),
            (Auth::Auto, false, here, true, false, Some(Required)),
            (Auth::Auto, false, here, false, true, Some(OpenWithoutUsers)),
            (Auth::Auto, false, there, false, false, None),
            (Auth::Auto, false, there, true, false, Some(Required)),
            (Auth::Auto, false, there, false, true, Some(Required)),
            (Auth::Auto, true, there, false, false, Some(Open)),
            (Auth::Auto, true, there, true, false, Some(Required)),
            (Auth::On, false, here, false, false, Some(Required)),
            (Auth::On, true, there, false, false, Some(Required)),
            (Auth::Off, false, here, true, false, Some(Open)),
            (Auth::Off, false, there, true, false, None),
            (Auth::Off, true, there, true, true, Some(Open)),
        ] {
            let settings = SecuritySettings { auth, insecure, ..SecuritySettings::default() };
            let logins = settings.logins(&bound(address), has_users, is_member);
            let found = logins.as_ref().ok().map(|logins| logins.plain);
            assert_eq!(found, expected, "{auth:?} {insecure} {address} {has_users} {is_member}");
            let http = settings.http_logins(&bound(address), has_users, is_member);
            assert_eq!(http.ok().map(|logins| logins.plain), expected, "HTTP as Kafka");
        }
    }

    #[test]
    fn client_certificates_with_principals_are_required_on_tls_ports() {
        let settings = SecuritySettings { certified: true, ..SecuritySettings::default() };
        let plain = bound("127.0.0.1:9092");
        let encrypted = "0.0.0.0:9093".parse().ok();
        let bound = Bound { kafka_tls: encrypted, http_tls: encrypted, ..plain };
        let logins = settings.logins(&bound, false, false).expect("nobody is let in");
        assert_eq!((logins.plain, logins.tls), (Admission::Open, Admission::Required));
        let http = settings.http_logins(&bound, false, false).expect("nobody is let in");
        assert_eq!((http.plain, http.tls), (Admission::Open, Admission::Required));
        assert!(SecuritySettings::default().logins(&bound, false, false).is_err());
        let off =
            || RawSecuritySettings { auth: Some(Auth::Off), ..RawSecuritySettings::default() };
        for (said, setting) in [
            (RawSecuritySettings { tls_principal: Some("cn".into()), ..off() }, "--tls-principal"),
            (RawSecuritySettings { oidc_issuer: Some("x".into()), ..off() }, "--oidc-issuer"),
        ] {
            let error = SecuritySettings::of(said).expect_err("is refused").to_string();
            assert!(error.contains(setting) && error.contains("--auth off"), "{error}");
        }
    }

    #[test]
    fn token_logins_are_required_on_all_ports() {
        let settings = SecuritySettings { by_tokens: true, ..SecuritySettings::default() };
        for address in ["127.0.0.1:9092", "0.0.0.0:9092"] {
            for is_member in [false, true] {
                let logins = settings.logins(&bound(address), false, is_member).expect("asks");
                assert_eq!(logins.plain, Admission::Required);
                let http = settings.http_logins(&bound(address), false, is_member).expect("asks");
                assert_eq!(http.plain, Admission::Required);
            }
        }
    }

    #[test]
    fn open_port_is_rejected_with_the_remedies() {
        let refused = SecuritySettings::default().logins(&bound("[::]:9092"), false, false);
        let text = refused.expect_err("is refused").to_string();
        for way in
            ["--admin-user NAME --admin-password-file FILE", "--kafka 127.0.0.1:9092", "--insecure"]
        {
            assert!(text.contains(way), "{text}");
        }
    }
}
