//! Permissions of a user in a virtual host: three regular expressions matched with names of its entities, as in
//! RabbitMQ (`rabbit_auth_backend_internal`).

use std::sync::Arc;

use access_rules::Permissions;
use regex::{Regex, RegexBuilder};

/// Compiled size of a pattern.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

/// Kind of access to an entity of a virtual host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Create, alter, delete.
    Configure,
    /// Publish to it, or bind it as the destination.
    Write,
    /// Consume from it, or bind it as the source.
    Read,
}

impl Permission {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("the pattern for {permission} is no regular expression: {source}")]
pub struct PatternError {
    pub permission: &'static str,
    pub source: regex::Error,
}

/// Validates all patterns.
pub fn check_permissions(set: &Permissions) -> Result<(), PatternError> {
    Patterns::compile(set).map(drop)
}

/// Compiled patterns.
#[derive(Debug)]
pub(crate) struct Patterns {
    configure: Pattern,
    write: Pattern,
    read: Pattern,
}

impl Patterns {
    pub(crate) fn compile(set: &Permissions) -> Result<Self, PatternError> {
        Ok(Self {
            configure: Pattern::new(Permission::Configure, &set.configure)?,
            write: Pattern::new(Permission::Write, &set.write)?,
            read: Pattern::new(Permission::Read, &set.read)?,
        })
    }
}

#[derive(Debug)]
enum Pattern {
    /// Matches every name, as most patterns do.
    Everything,
    Some(Regex),
}

impl Pattern {
    /// RabbitMQ's patterns are PCRE's. Here they have no look-around and no back-references, which makes matching
    /// linear in the name.
    fn new(permission: Permission, text: &str) -> Result<Self, PatternError> {
        let text = match text {
            ".*" | "^.*$" | "^.*" => return Ok(Self::Everything),
            // An empty pattern would match everything, but means no permission at all.
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

/// A snapshot of a principal's permissions in one virtual host.
#[derive(Clone, Debug)]
pub struct Grant(Rules);

#[derive(Clone, Debug)]
enum Rules {
    Everything,
    Patterns(Arc<Patterns>),
}

impl Grant {
    pub(crate) const EVERYTHING: Self = Self(Rules::Everything);

    pub(crate) fn of(patterns: Arc<Patterns>) -> Self {
        Self(Rules::Patterns(patterns))
    }

    /// Whether this permission is granted on the entity of this name.
    pub fn allows(&self, permission: Permission, name: &str) -> bool {
        self.pattern(permission).is_none_or(|pattern| pattern.fits(name))
    }

    /// Whether this permission is granted on every entity.
    pub(crate) fn allows_every_name(&self, permission: Permission) -> bool {
        matches!(self.pattern(permission), None | Some(Pattern::Everything))
    }

    /// `None`: everything is allowed.
    fn pattern(&self, permission: Permission) -> Option<&Pattern> {
        let patterns = match &self.0 {
            Rules::Everything => return None,
            Rules::Patterns(patterns) => patterns,
        };
        Some(match permission {
            Permission::Configure => &patterns.configure,
            Permission::Write => &patterns.write,
            Permission::Read => &patterns.read,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(configure: &str, write: &str, read: &str) -> Grant {
        let [configure, write, read] = [configure, write, read].map(str::to_owned);
        let set = Permissions { configure, write, read };
        let patterns = Patterns::compile(&set).expect("patterns");
        Grant::of(Arc::new(patterns))
    }

    #[test]
    fn permission_pattern_matches_anywhere_in_a_name() {
        let grant = grant("^app\\.", "", "mail");
        assert!(grant.allows(Permission::Configure, "app.x"));
        assert!(grant.allows(Permission::Read, "the.mails"));
        assert!(!grant.allows(Permission::Configure, "other.app.x"));
        assert!(!grant.allows(Permission::Write, "app.x"));
    }

    #[test]
    fn empty_pattern_matches_nothing_and_an_invalid_one_is_rejected() {
        assert!(!grant("", "", "").allows(Permission::Read, "q"));
        let wrong = Permissions { read: "(".to_owned(), ..Permissions::everything() };
        assert_eq!(Patterns::compile(&wrong).expect_err("is refused").permission, "read");
        let looks_ahead = Permissions { write: "^(?!amq)".to_owned(), ..Permissions::everything() };
        let text = Patterns::compile(&looks_ahead).expect_err("is refused").to_string();
        assert!(text.contains("look-around"), "{text}");
    }
}
