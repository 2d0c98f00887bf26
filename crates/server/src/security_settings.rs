//! Login settings of `serve`: which ports require a login, and which open ports are rejected at start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use access::{Admission, SettingsUser};
use clap::ValueEnum;
use gateway_kafka::LoginOptions;
use serde::Deserialize;

use crate::listeners::Bound;
use crate::settings::{SettingsError, invalid};
use crate::time::parse_duration;

/// Whether Kafka clients log in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Auth {
    /// Everywhere, but for ports on loopback of a node without users.
    #[default]
    Auto,
    On,
    Off,
}

/// Mode of the audit log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AuditMode {
    #[default]
    Off,
    On,
    /// A change that cannot be written is rejected.
    Strict,
}

/// The settings as given.
#[derive(Debug, Default)]
pub(crate) struct RawSecuritySettings {
    pub(crate) auth: Option<Auth>,
    pub(crate) insecure: Option<bool>,
    pub(crate) admin_user: Option<String>,
    pub(crate) admin_password_file: Option<PathBuf>,
    pub(crate) super_users: Option<Vec<String>>,
    pub(crate) allow_plaintext_auth: Option<bool>,
    pub(crate) session_max: Option<String>,
    pub(crate) across: Option<bool>,
    pub(crate) tls_principal: Option<String>,
    pub(crate) oidc_issuer: Option<String>,
    pub(crate) audit: Option<AuditMode>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SecuritySettings {
    /// Kafka's rules apply to Kafka only, and RabbitMQ's permissions to AMQP only.
    pub(crate) apart: bool,
    pub(crate) auth: Auth,
    pub(crate) audit: AuditMode,
    /// Ports beyond loopback may be open to everyone.
    pub(crate) insecure: bool,
    pub(crate) admin: Option<SettingsUser>,
    pub(crate) super_users: Vec<String>,
    pub(crate) plaintext: bool,
    pub(crate) session_max: Option<Duration>,
    /// Client certificates authenticate users on TLS ports.
    pub(crate) certified: bool,
    /// Tokens of an identity provider authenticate users on all ports.
    pub(crate) by_tokens: bool,
}

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
    pub(crate) fn of(said: RawSecuritySettings) -> Result<Self, SettingsError> {
        let session_max = said.session_max.map(|text| {
            let parsed = parse_duration(&text).ok().filter(|max| *max >= Duration::from_secs(1));
            let problem = "is not a time of a second at least, such as 1h";
            parsed.ok_or_else(|| invalid("session-max", &text, problem))
        });
        for (setting, value) in
            [("tls-principal", &said.tls_principal), ("oidc-issuer", &said.oidc_issuer)]
        {
            if let (Some(Auth::Off), Some(value)) = (said.auth, value) {
                let problem = "maps clients to users, and with --auth off there are no users";
                return Err(invalid(setting, value, problem));
            }
        }
        Ok(Self {
            certified: said.tls_principal.is_some(),
            by_tokens: said.oidc_issuer.is_some(),
            auth: said.auth.unwrap_or_default(),
            audit: said.audit.unwrap_or_default(),
            insecure: said.insecure.unwrap_or(false),
            apart: said.across == Some(false),
            admin: admin(said.admin_user, said.admin_password_file)?,
            super_users: said.super_users.unwrap_or_default(),
            plaintext: said.allow_plaintext_auth.unwrap_or(false),
            session_max: session_max.transpose()?,
        })
    }

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

fn admin(
    name: Option<String>,
    password_file: Option<PathBuf>,
) -> Result<Option<SettingsUser>, SettingsError> {
    let (name, path) = match (name, password_file) {
        (None, None) => return Ok(None),
        (Some(name), Some(path)) if !name.is_empty() && name != access::OPERATOR => (name, path),
        (Some(name), Some(_)) => return Err(invalid("admin-user", &name, "is no user's name")),
        (Some(name), None) => {
            return Err(invalid(
                "admin-user",
                &name,
                "needs a password: --admin-password-file FILE",
            ));
        }
        (None, Some(path)) => {
            let problem = "needs to know whose it is: --admin-user NAME";
            return Err(invalid("admin-password-file", &path.display().to_string(), problem));
        }
    };
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| {
        invalid("admin-password-file", &shown, format!("cannot be read: {error}"))
    })?;
    let password = text.lines().next().unwrap_or_default().to_owned();
    match password.is_empty() {
        true => Err(invalid("admin-password-file", &shown, "has no password in its first line")),
        false => Ok(Some(SettingsUser { name, password })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_admin_has_a_name_and_a_file_with_a_password() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        std::fs::write(&path, "se cret\nmore\n").expect("is written");
        let of = |name: Option<&str>, path: Option<PathBuf>| {
            let said = RawSecuritySettings {
                admin_user: name.map(str::to_owned),
                admin_password_file: path,
                ..RawSecuritySettings::default()
            };
            SecuritySettings::of(said).map(|settings| settings.admin)
        };
        let admin = of(Some("root"), Some(path.clone())).expect("valid").expect("is there");
        assert_eq!((&*admin.name, &*admin.password), ("root", "se cret"));
        assert!(of(Some("root"), None).is_err() && of(None, Some(path.clone())).is_err());
        assert!(of(Some(access::OPERATOR), Some(path.clone())).is_err());
        std::fs::write(&path, "\n").expect("is written");
        assert!(of(Some("root"), Some(path)).is_err());
    }
}
