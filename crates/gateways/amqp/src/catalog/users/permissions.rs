//! What a user may do in a vhost: three regular expressions that names of queues and exchanges are
//! compared with, as RabbitMQ has them (`rabbit_auth_backend_internal`), and its words where one
//! does not fit (`rabbit_access_control`).

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::errors::{Exception, ReplyCode, Resource};

/// Compiled size of a pattern.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;
/// What the default exchange is called where permissions are checked.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// What is done to a queue or an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Permission {
    /// Made, altered, deleted.
    Configure,
    /// Given messages, or bound as the destination.
    Write,
    /// Asked for messages, or bound as the source.
    Read,
}

impl Permission {
    const fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Patterns as they are set and kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    pub configure: String,
    pub write: String,
    pub read: String,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("the pattern for {permission} is no regular expression: {source}")]
pub struct PatternError {
    pub permission: &'static str,
    pub source: regex::Error,
}

impl Permissions {
    pub(super) fn everything() -> Self {
        let all = || ".*".to_owned();
        Self { configure: all(), write: all(), read: all() }
    }

    pub(super) fn compile(&self) -> Result<Patterns, PatternError> {
        Ok(Patterns {
            configure: Pattern::new(Permission::Configure, &self.configure)?,
            write: Pattern::new(Permission::Write, &self.write)?,
            read: Pattern::new(Permission::Read, &self.read)?,
        })
    }
}

/// Patterns as they are compared with.
#[derive(Debug)]
pub(super) struct Patterns {
    configure: Pattern,
    write: Pattern,
    read: Pattern,
}

#[derive(Debug)]
enum Pattern {
    /// Most are: not worth a look at the name.
    Everything,
    Some(Regex),
}

impl Pattern {
    /// RabbitMQ's patterns are PCRE's: no look-around and no back-references here, which makes
    /// matching linear in the name.
    fn new(permission: Permission, text: &str) -> Result<Self, PatternError> {
        let text = match text {
            ".*" | "^.*$" | "^.*" => return Ok(Self::Everything),
            // An empty pattern would fit everything, and means nothing at all.
            "" => "^$",
            text => text,
        };
        let pattern = RegexBuilder::new(text).size_limit(PATTERN_COMPILED_BYTES_MAX).build();
        let wrong = |source| PatternError { permission: permission.name(), source };
        pattern.map(Self::Some).map_err(wrong)
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Some(pattern) => pattern.is_match(name),
        }
    }
}

/// What somebody who is logged in may do in the vhost that is open.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    user: Arc<str>,
    /// `None`: everything.
    patterns: Option<Arc<Patterns>>,
}

impl Rights {
    pub(super) fn new(user: &Arc<str>, patterns: Option<Arc<Patterns>>) -> Self {
        Self { user: Arc::clone(user), patterns }
    }

    pub(crate) fn check(
        &self,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), Exception> {
        let Some(patterns) = &self.patterns else { return Ok(()) };
        let pattern = match permission {
            Permission::Configure => &patterns.configure,
            Permission::Write => &patterns.write,
            Permission::Read => &patterns.read,
        };
        let name = match resource.name {
            "" if resource.kind == "exchange" => DEFAULT_EXCHANGE,
            name => name,
        };
        if pattern.fits(name) {
            return Ok(());
        }
        let (permission, resource) = (permission.name(), Resource { name, ..resource });
        let text = format!("{permission} access to {resource} refused for user '{}'", self.user);
        Err(Exception::new(ReplyCode::AccessRefused, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(configure: &str, write: &str, read: &str) -> Rights {
        let [configure, write, read] = [configure, write, read].map(str::to_owned);
        let patterns = Permissions { configure, write, read }.compile().expect("patterns");
        Rights::new(&Arc::from("app"), Some(Arc::new(patterns)))
    }

    fn refused(rights: &Rights, permission: Permission, resource: Resource<'_>) -> Option<String> {
        rights.check(permission, resource).err().map(|exception| exception.reply_text())
    }

    #[test]
    fn each_permission_is_a_pattern_that_is_found_anywhere_in_a_name() {
        let rights = rights("^app\\.", "", "mail");
        let queue = |name| Resource::queue(name, "/");
        assert_eq!(refused(&rights, Permission::Configure, queue("app.x")), None);
        assert_eq!(refused(&rights, Permission::Read, queue("the.mails")), None);
        assert_eq!(
            refused(&rights, Permission::Configure, queue("other.app.x")).as_deref(),
            Some(
                "ACCESS_REFUSED - configure access to queue 'other.app.x' in vhost '/' refused for \
                 user 'app'"
            )
        );
        assert_eq!(
            refused(&rights, Permission::Write, Resource::exchange("", "/")).as_deref(),
            Some(
                "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for \
                 user 'app'"
            )
        );
    }

    #[test]
    fn an_empty_pattern_fits_nothing_and_a_wrong_one_is_refused() {
        let none = rights("", "", "");
        assert!(refused(&none, Permission::Read, Resource::queue("q", "/")).is_some());
        let wrong = Permissions { read: "(".to_owned(), ..Permissions::everything() };
        assert_eq!(wrong.compile().expect_err("is refused").permission, "read");
        let looks_ahead = Permissions { write: "^(?!amq)".to_owned(), ..Permissions::everything() };
        let text = looks_ahead.compile().expect_err("is refused").to_string();
        assert!(text.contains("look-around"), "{text}");
    }
}
