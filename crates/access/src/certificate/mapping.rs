//! Maps a certificate to one name, by the setting `tls-principal`.
//!
//! | setting | the name |
//! |---|---|
//! | `cn` | the one common name of the subject |
//! | `dn` | the whole subject, as RFC 2253 writes it, which is Kafka's default |
//! | `san`, `san:email`, `san:uri` | the first alternative name of that kind; `san` is `san:dns` |
//! | `RULE:PATTERN/REPLACEMENT/[L\|U]`, `DEFAULT` | Kafka's `ssl.principal.mapping.rules`, of the whole subject |
//!
//! Rules stand in a comma-separated list, and the first one whose pattern matches the whole subject decides;
//! `DEFAULT` takes the subject as it is. Patterns are regular expressions without look-around and back-references, so
//! that matching is linear in the size of the certificate.

use std::str::FromStr;

use regex::{Captures, Regex, RegexBuilder};

use super::names::CertificateNames;

/// Compiled size of a pattern.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

/// How a certificate's name is determined.
#[derive(Clone, Debug)]
pub struct CertificateMapping {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    CommonName,
    Distinguished,
    Alternative(Alternative),
    Rules(Vec<Rule>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alternative {
    Dns,
    Email,
    Uri,
}

/// One of Kafka's mapping rules.
#[derive(Clone, Debug)]
enum Rule {
    Default,
    Mapping { whole: Regex, pattern: Regex, replacement: Vec<ReplacementPart>, case: Case },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Kept,
    Lower,
    Upper,
}

/// Part of a replacement.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ReplacementPart {
    Text(String),
    Group(usize),
    Named(String),
}

/// Reason why a setting is invalid.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MappingError {
    #[error(
        "is none of cn, dn, san, san:dns, san:email, san:uri, and no list of RULE:PATTERN/REPLACEMENT/[L|U] and DEFAULT"
    )]
    Unknown,
    #[error("has a rule without both of its slashes: {0:?}")]
    Unfinished(String),
    #[error("has something between two rules that is no comma: {0:?}")]
    NoComma(String),
    #[error("has a pattern that is no regular expression: {0}")]
    Pattern(Box<regex::Error>),
    #[error("has a replacement that names no group of its pattern: {0:?}")]
    Group(String),
}

/// Reason why a certificate gives no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NamelessError {
    #[error("its subject has no common name")]
    NoCommonName,
    #[error("its subject has several common names")]
    CommonNames,
    #[error("it has no subject")]
    NoSubject,
    #[error("it has no alternative name of the kind")]
    NoAlternative,
    #[error("no rule fits its subject")]
    NoRule,
}

impl PartialEq for CertificateMapping {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CertificateMapping {}

impl FromStr for CertificateMapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, MappingError> {
        let kind = match text {
            "cn" => Kind::CommonName,
            "dn" => Kind::Distinguished,
            "san" | "san:dns" => Kind::Alternative(Alternative::Dns),
            "san:email" => Kind::Alternative(Alternative::Email),
            "san:uri" => Kind::Alternative(Alternative::Uri),
            rules => Kind::Rules(parse_rules(rules)?),
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

impl CertificateMapping {
    pub fn name_of(&self, names: &CertificateNames) -> Result<String, NamelessError> {
        let first = |all: &[String]| all.first().cloned().ok_or(NamelessError::NoAlternative);
        match &self.kind {
            Kind::CommonName => match &names.common[..] {
                [name] => Ok(name.clone()),
                [] => Err(NamelessError::NoCommonName),
                // Ambiguous: several common names.
                _ => Err(NamelessError::CommonNames),
            },
            Kind::Alternative(Alternative::Dns) => first(&names.dns),
            Kind::Alternative(Alternative::Email) => first(&names.emails),
            Kind::Alternative(Alternative::Uri) => first(&names.uris),
            _ if names.distinguished.is_empty() => Err(NamelessError::NoSubject),
            Kind::Distinguished => Ok(names.distinguished.clone()),
            Kind::Rules(rules) => {
                let mapped = rules.iter().find_map(|rule| rule.apply(&names.distinguished));
                mapped.ok_or(NamelessError::NoRule)
            }
        }
    }
}

impl Rule {
    /// `None`: the rule does not match.
    fn apply(&self, subject: &str) -> Option<String> {
        let (whole, pattern, replacement, case) = match self {
            Self::Default => return Some(subject.to_owned()),
            Self::Mapping { whole, pattern, replacement, case } => {
                (whole, pattern, replacement, case)
            }
        };
        if !whole.is_match(subject) {
            return None;
        }
        // As in Kafka: the pattern must match the whole, then all its matches are replaced.
        let name = pattern.replace_all(subject, |found: &Captures<'_>| filled(replacement, found));
        Some(match case {
            Case::Kept => name.into_owned(),
            Case::Lower => name.to_lowercase(),
            Case::Upper => name.to_uppercase(),
        })
    }
}

fn filled(replacement: &[ReplacementPart], found: &Captures<'_>) -> String {
    let mut text = String::new();
    for part in replacement {
        match part {
            ReplacementPart::Text(part) => text.push_str(part),
            ReplacementPart::Group(group) => {
                text.push_str(found.get(*group).map_or("", |it| it.as_str()))
            }
            ReplacementPart::Named(group) => {
                text.push_str(found.name(group).map_or("", |it| it.as_str()))
            }
        }
    }
    text
}

// ---------------------------------------------------------------------------------------- reading

fn parse_rules(text: &str) -> Result<Vec<Rule>, MappingError> {
    let mut rules = Vec::new();
    let mut rest = text.trim();
    loop {
        if let Some(after) = rest.strip_prefix("DEFAULT") {
            rules.push(Rule::Default);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("RULE:") {
            let unfinished = || MappingError::Unfinished(rest.to_owned());
            let (pattern, after) = until_slash(after).ok_or_else(unfinished)?;
            let (replacement, after) = until_slash(after).ok_or_else(unfinished)?;
            let (case, after) = match after.as_bytes().first() {
                Some(b'L') => (Case::Lower, &after[1..]),
                Some(b'U') => (Case::Upper, &after[1..]),
                _ => (Case::Kept, after),
            };
            rules.push(rule(pattern, replacement, case)?);
            rest = after;
        } else {
            return Err(MappingError::Unknown);
        }
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(rules);
        }
        let after = rest.strip_prefix(',').ok_or_else(|| MappingError::NoComma(rest.to_owned()))?;
        rest = after.trim_start();
    }
}

/// Splits at the first slash that is not escaped by a backslash.
fn until_slash(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '/' => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn rule(pattern: &str, replacement: &str, case: Case) -> Result<Rule, MappingError> {
    let compile = |text: &str| {
        let compiled = RegexBuilder::new(text).size_limit(PATTERN_COMPILED_BYTES_MAX).build();
        compiled.map_err(|error| MappingError::Pattern(Box::new(error)))
    };
    // Compiled alone first: a pattern must not close the group around it.
    let compiled = compile(pattern)?;
    let whole = compile(&format!("\\A(?:{pattern})\\z"))?;
    let replacement = parts(replacement, &compiled)?;
    Ok(Rule::Mapping { whole, pattern: compiled, replacement, case })
}

/// Parses `$1`, `${name}` and backslash escapes. A number without a group is literal text, as in Kafka.
fn parts(replacement: &str, pattern: &Regex) -> Result<Vec<ReplacementPart>, MappingError> {
    let wrong = || MappingError::Group(replacement.to_owned());
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut rest = replacement.chars().peekable();
    while let Some(char) = rest.next() {
        let part = match char {
            '\\' => {
                text.push(rest.next().ok_or_else(wrong)?);
                continue;
            }
            '$' if rest.peek() == Some(&'{') => {
                rest.next();
                let name: String = rest.by_ref().take_while(|char| *char != '}').collect();
                let is_known = pattern.capture_names().flatten().any(|known| known == name);
                if !is_known {
                    return Err(wrong());
                }
                ReplacementPart::Named(name)
            }
            '$' => {
                let digit = |char: &char| char.to_digit(10).map(|digit| digit as usize);
                let first = rest.peek().and_then(digit).ok_or_else(wrong)?;
                if first >= pattern.captures_len() {
                    text.push('$');
                    continue;
                }
                rest.next();
                let mut group = first;
                while let Some(next) = rest.peek().and_then(digit) {
                    let longer = group * 10 + next;
                    if longer >= pattern.captures_len() {
                        break;
                    }
                    group = longer;
                    rest.next();
                }
                ReplacementPart::Group(group)
            }
            char => {
                text.push(char);
                continue;
            }
        };
        if !text.is_empty() {
            parts.push(ReplacementPart::Text(std::mem::take(&mut text)));
        }
        parts.push(part);
    }
    if !text.is_empty() {
        parts.push(ReplacementPart::Text(text));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(distinguished: &str) -> CertificateNames {
        CertificateNames { distinguished: distinguished.to_owned(), ..CertificateNames::default() }
    }

    fn mapped(setting: &str, distinguished: &str) -> Result<String, NamelessError> {
        setting.parse::<CertificateMapping>().expect(setting).name_of(&names(distinguished))
    }

    fn refused(setting: &str) -> MappingError {
        setting.parse::<CertificateMapping>().expect_err(setting)
    }

    /// Cases of Kafka's own tests (`SslPrincipalMapperTest`).
    #[test]
    fn mapping_rules_follow_kafka() {
        let rules = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, \
                     RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, \
                     RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, \
                     RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U";
        for (subject, expected) in [
            ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
            ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
            ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
            ("O=apache,C=US,CN=duke", "DUKE"),
        ] {
            assert_eq!(mapped(rules, subject).as_deref(), Ok(expected), "{subject}");
        }
        assert_eq!(mapped(rules, "O=apache"), Err(NamelessError::NoRule));
        assert_eq!(mapped(&format!("{rules},DEFAULT"), "O=a").as_deref(), Ok("O=a"));
        assert_eq!(mapped("DEFAULT", "CN=Duke").as_deref(), Ok("CN=Duke"));
        // Commas, slashes and numbers without a group.
        let of = |rule: &str| mapped(rule, "CN=a/b,OU=c").expect("fits");
        assert_eq!(of("RULE:CN=a\\/b,OU=(.)/$1\\/x/"), "c/x");
        assert_eq!(of("RULE:CN=(.*),OU=(.)/$1$3$21$0/"), "a/b$3c1CN=a/b,OU=c");
        assert_eq!(of("RULE:CN=(?<name>.*),OU=./${name}\\$1/U"), "A/B$1");
        assert_eq!(of("RULE:^CN=(.*?),OU=.*$/$1/,DEFAULT"), "a/b");
    }

    #[test]
    fn mapping_pattern_must_match_the_whole_subject() {
        assert_eq!(mapped("RULE:CN=app/app/", "CN=app,O=Evil"), Err(NamelessError::NoRule));
        assert_eq!(mapped("RULE:CN=app|x/app/", "CN=app,O=x"), Err(NamelessError::NoRule));
        // A comma within a value is escaped in the subject, so no rule for another field matches it.
        let rule = "RULE:^CN=([^,]*),O=Org$/$1/";
        assert_eq!(mapped(rule, "CN=root\\,O=Org,O=Evil"), Err(NamelessError::NoRule));
    }

    #[test]
    fn invalid_mapping_setting_is_rejected_with_the_reason() {
        assert_eq!(refused("common"), MappingError::Unknown);
        assert_eq!(refused(""), MappingError::Unknown);
        assert_eq!(refused("DEFAULT,"), MappingError::Unknown);
        assert!(matches!(refused("RULE:a"), MappingError::Unfinished(_)));
        assert!(matches!(refused("RULE:a/b"), MappingError::Unfinished(_)));
        assert!(matches!(refused("RULE:a/b/X"), MappingError::NoComma(_)));
        assert!(matches!(refused("RULE:a/b/L DEFAULT"), MappingError::NoComma(_)));
        assert!(matches!(refused("RULE:(/b/"), MappingError::Pattern(_)));
        assert!(matches!(refused("RULE:a)|(?:b/b/"), MappingError::Pattern(_)));
        assert!(matches!(refused("RULE:(?=a)b/b/"), MappingError::Pattern(_)));
        for wrong in ["$", "${no}", "${no", "\\"] {
            // A backslash would escape the slash.
            let setting = format!("RULE:(a)/{wrong}/");
            let error = refused(&setting);
            let is_it = matches!(error, MappingError::Group(_) | MappingError::Unfinished(_));
            assert!(is_it, "{setting}: {error}");
        }
    }

    #[test]
    fn common_name_must_be_unique_and_the_first_alternative_name_counts() {
        let of = |setting: &str, names: &CertificateNames| {
            setting.parse::<CertificateMapping>().expect(setting).name_of(names)
        };
        let all = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect();
        let mut names = CertificateNames { common: all(&["app"]), ..names("CN=app") };
        assert_eq!(of("cn", &names).as_deref(), Ok("app"));
        assert_eq!(of("dn", &names).as_deref(), Ok("CN=app"));
        assert_eq!(of("san", &names), Err(NamelessError::NoAlternative));
        names.common = all(&["app", "root"]);
        assert_eq!(of("cn", &names), Err(NamelessError::CommonNames));
        (names.dns, names.emails, names.uris) = (all(&["a", "b"]), all(&["a@b"]), all(&["x:y"]));
        for (setting, expected) in
            [("san", "a"), ("san:dns", "a"), ("san:email", "a@b"), ("san:uri", "x:y")]
        {
            assert_eq!(of(setting, &names).as_deref(), Ok(expected));
        }
        let nobody = CertificateNames::default();
        assert_eq!(of("cn", &nobody), Err(NamelessError::NoCommonName));
        for setting in ["dn", "DEFAULT"] {
            assert_eq!(of(setting, &nobody), Err(NamelessError::NoSubject));
        }
    }
}
