//! Names of users: their bounds, and the names with a meaning of their own.

use access_rules::OPERATOR;

/// A short string of AMQP 0-9-1, the narrowest of all protocols.
pub(crate) const USER_NAME_BYTES_MAX: usize = 255;
/// RabbitMQ's default user.
pub(crate) const GUEST: &str = "guest";
/// Principal of an unauthenticated Kafka connection (`User:ANONYMOUS`).
pub(crate) const ANONYMOUS: &str = "ANONYMOUS";

/// Reason why an externally vouched name is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NameError {
    #[error("it is empty")]
    Empty,
    #[error("it has more than {USER_NAME_BYTES_MAX} bytes")]
    Long,
    #[error("it has control characters")]
    Control,
    #[error("no user has the name")]
    Reserved,
}

/// Whether an external authority may vouch for this name. The operator's name has a log-in of its own; `*` is every
/// user in rules.
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        OPERATOR | "*" => Err(NameError::Reserved),
        long if long.len() > USER_NAME_BYTES_MAX => Err(NameError::Long),
        name if name.chars().any(char::is_control) => Err(NameError::Control),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_malformed_names_are_rejected() {
        for (name, expected) in [
            ("app", Ok(())),
            ("CN=app,O=Postroad", Ok(())),
            ("名前", Ok(())),
            ("", Err(NameError::Empty)),
            (OPERATOR, Err(NameError::Reserved)),
            ("*", Err(NameError::Reserved)),
            ("a\nb", Err(NameError::Control)),
            ("a\0", Err(NameError::Control)),
            ("\u{9b}31m", Err(NameError::Control)),
        ] {
            assert_eq!(check_name(name), expected, "{name:?}");
        }
        assert_eq!(check_name(&"x".repeat(USER_NAME_BYTES_MAX)), Ok(()));
        assert_eq!(check_name(&"x".repeat(USER_NAME_BYTES_MAX + 1)), Err(NameError::Long));
    }
}
