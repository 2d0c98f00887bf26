//! Login settings of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use access::SettingsUser;
use access_rules::OPERATOR;
use clap::ValueEnum;
use operations::time::parse_duration;
use serde::Deserialize;

use super::{SettingsError, invalid};

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
}

fn admin(
    name: Option<String>,
    password_file: Option<PathBuf>,
) -> Result<Option<SettingsUser>, SettingsError> {
    let (name, path) = match (name, password_file) {
        (None, None) => return Ok(None),
        (Some(name), Some(path)) if !name.is_empty() && name != OPERATOR => (name, path),
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
        assert!(of(Some(OPERATOR), Some(path.clone())).is_err());
        std::fs::write(&path, "\n").expect("is written");
        assert!(of(Some("root"), Some(path)).is_err());
    }
}
