//! Refusals: a reply code, and RabbitMQ's text for it, because clients and people match on both.
//!
//! A soft error closes the channel, a hard one the connection (AMQP 0-9-1, 1.8 and 4.2.7). Which
//! of the two follows from the code alone.

use std::borrow::Cow;
use std::fmt;

/// The reply codes that this gateway sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyCode {
    Success,
    ContentTooLarge,
    NoRoute,
    ConnectionForced,
    AccessRefused,
    NotFound,
    ResourceLocked,
    PreconditionFailed,
    FrameError,
    SyntaxError,
    CommandInvalid,
    ChannelError,
    UnexpectedFrame,
    ResourceError,
    NotAllowed,
    NotImplemented,
    InternalError,
}

impl ReplyCode {
    pub const fn code(self) -> u16 {
        match self {
            Self::Success => 200,
            Self::ContentTooLarge => 311,
            Self::NoRoute => 312,
            Self::ConnectionForced => 320,
            Self::AccessRefused => 403,
            Self::NotFound => 404,
            Self::ResourceLocked => 405,
            Self::PreconditionFailed => 406,
            Self::FrameError => 501,
            Self::SyntaxError => 502,
            Self::CommandInvalid => 503,
            Self::ChannelError => 504,
            Self::UnexpectedFrame => 505,
            Self::ResourceError => 506,
            Self::NotAllowed => 530,
            Self::NotImplemented => 540,
            Self::InternalError => 541,
        }
    }

    /// The word that RabbitMQ's texts begin with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "OK",
            Self::ContentTooLarge => "CONTENT_TOO_LARGE",
            Self::NoRoute => "NO_ROUTE",
            Self::ConnectionForced => "CONNECTION_FORCED",
            Self::AccessRefused => "ACCESS_REFUSED",
            Self::NotFound => "NOT_FOUND",
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::FrameError => "FRAME_ERROR",
            Self::SyntaxError => "SYNTAX_ERROR",
            Self::CommandInvalid => "COMMAND_INVALID",
            Self::ChannelError => "CHANNEL_ERROR",
            Self::UnexpectedFrame => "UNEXPECTED_FRAME",
            Self::ResourceError => "RESOURCE_ERROR",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotImplemented => "NOT_IMPLEMENTED",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }

    /// Returns whether the error closes the connection and not only the channel.
    pub const fn is_hard(self) -> bool {
        !matches!(
            self,
            Self::Success
                | Self::ContentTooLarge
                | Self::NoRoute
                | Self::AccessRefused
                | Self::NotFound
                | Self::ResourceLocked
                | Self::PreconditionFailed
        )
    }
}

/// A refusal. `explanation` follows the code's name in the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} - {explanation}", code.name())]
pub struct Exception {
    pub code: ReplyCode,
    pub explanation: Cow<'static, str>,
}

impl Exception {
    pub fn new(code: ReplyCode, explanation: impl Into<Cow<'static, str>>) -> Self {
        Self { code, explanation: explanation.into() }
    }

    pub fn precondition_failed(explanation: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ReplyCode::PreconditionFailed, explanation)
    }

    /// `NOT_FOUND - no queue 'x' in vhost '/'`
    pub fn not_found(resource: Resource<'_>) -> Self {
        Self::new(ReplyCode::NotFound, format!("no {resource}"))
    }

    pub fn resource_locked(queue: &str, vhost: &str) -> Self {
        let queue = Resource::queue(queue, vhost);
        Self::new(
            ReplyCode::ResourceLocked,
            format!(
                "cannot obtain exclusive access to locked {queue}. It could be originally declared \
                 on another connection or the exclusive property value does not match that of the \
                 original declaration."
            ),
        )
    }

    /// The text in a close method: a short string, which ends with `...` if it was truncated.
    pub fn reply_text(&self) -> String {
        const CUT: &str = "...";
        let mut text = self.to_string();
        if text.len() > usize::from(u8::MAX) {
            text.truncate(text.floor_char_boundary(usize::from(u8::MAX) - CUT.len()));
            text.push_str(CUT);
        }
        text
    }
}

/// A queue or an exchange as texts name it: `queue 'x' in vhost '/'`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resource<'a> {
    pub kind: &'static str,
    pub name: &'a str,
    pub vhost: &'a str,
}

impl<'a> Resource<'a> {
    pub fn queue(name: &'a str, vhost: &'a str) -> Self {
        Self { kind: "queue", name, vhost }
    }

    pub fn exchange(name: &'a str, vhost: &'a str) -> Self {
        Self { kind: "exchange", name, vhost }
    }
}

/// An entity that texts name as a resource.
pub trait NamedEntity {
    fn resource(&self) -> Resource<'_>;
}

impl NamedEntity for topology::Queue {
    fn resource(&self) -> Resource<'_> {
        Resource::queue(&self.name, &self.vhost)
    }
}

impl NamedEntity for topology::Exchange {
    fn resource(&self) -> Resource<'_> {
        Resource::exchange(&self.name, &self.vhost)
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}' in vhost '{}'", self.kind, self.name, self.vhost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_equal_those_of_rabbitmq() {
        let missing = Exception::not_found(Resource::queue("x", "/"));
        assert_eq!(missing.reply_text(), "NOT_FOUND - no queue 'x' in vhost '/'");
        assert_eq!(missing.code.code(), 404);
        let tag = Exception::precondition_failed(format!("unknown delivery tag {}", 5));
        assert_eq!(tag.reply_text(), "PRECONDITION_FAILED - unknown delivery tag 5");
    }

    #[test]
    fn long_text_is_truncated_at_a_character_boundary() {
        let long = Exception::precondition_failed("ü".repeat(200));
        let text = long.reply_text();
        assert!((254..=255).contains(&text.len()) && text.ends_with("ü..."));
    }

    #[test]
    fn only_hard_errors_close_the_connection() {
        assert!(!ReplyCode::NotFound.is_hard() && !ReplyCode::ResourceLocked.is_hard());
        assert!(ReplyCode::NotAllowed.is_hard() && ReplyCode::NotImplemented.is_hard());
        assert!(ReplyCode::FrameError.is_hard() && ReplyCode::InternalError.is_hard());
    }
}
