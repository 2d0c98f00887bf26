//! Authorization of operations.
//!
//! A logged-in user has the same rights in operations as elsewhere. Without required login, clients on
//! loopback may do everything, like RabbitMQ's guest: a user with a shell on the machine can read its files
//! too. Remote operators need a token, which the server keeps in a file that only its own user can read.

use std::net::IpAddr;
use std::sync::Arc;

use ::access::{OPERATOR, Rights, is_same};
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::gateway::{Gateway, Session};

/// Name of commands in the audit log.
const COMMAND: &str = "command";

/// Returns the caller's rights. `given`: the caller's token; `expected`: the server's.
pub(crate) fn check(
    gateway: &Gateway,
    session: &Session,
    given: Option<&str>,
    expected: Option<&str>,
) -> Result<Arc<Rights>, Fault> {
    let rights = session.login.principal().map(|_| session.rights.get(gateway, session));
    check_of(session.connection.peer().ip(), rights, given, expected)
}

/// Marks the rights so that the audit log attributes their use to a command.
pub(super) fn audited_as_command(
    gateway: &Gateway,
    session: &Session,
    rights: Arc<Rights>,
) -> Arc<Rights> {
    let Some(users) = &gateway.options.users else { return rights };
    let name = session.login.principal().map(|principal| &**principal.name());
    let operator = rights.is_everything().then_some(OPERATOR);
    let ip = session.connection.peer().ip();
    match users.audit().asker(name.or(operator), ip, COMMAND) {
        Some(asker) => Arc::new((*rights).clone().audited_as(Some(asker.looking(true)))),
        None => rights,
    }
}

fn check_of(
    peer: IpAddr,
    rights: Option<Arc<Rights>>,
    given: Option<&str>,
    expected: Option<&str>,
) -> Result<Arc<Rights>, Fault> {
    let everything = || Ok(Arc::new(Rights::everything()));
    // A wrong token is refused on loopback too, so that its sender notices.
    match (given, expected) {
        (Some(given), Some(expected)) if is_same(given, expected) => everything(),
        (Some(_), _) => Err(refused("the operators' token is not this server's")),
        (None, _) => match rights {
            Some(rights) => Ok(rights),
            None if peer.to_canonical().is_loopback() => everything(),
            None => Err(refused("from another machine, operations need the operators' token")),
        },
    }
}

fn refused(why: &str) -> Fault {
    Fault::new(
        ResponseError::ClusterAuthorizationFailed,
        format!(
            "{why}: run the command on the server's own machine, or pass the contents of \
             `operator.token`, which is in the server's data directory, by --token-file FILE or \
             POSTROAD_TOKEN"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: [&str; 4] = ["10.0.0.7", "192.0.2.1", "2001:db8::1", "::ffff:10.0.0.7"];
    const HERE: [&str; 4] = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];

    fn may(peer: &str, given: Option<&str>, expected: Option<&str>) -> bool {
        check_of(peer.parse().expect("an address"), None, given, expected).is_ok()
    }

    #[test]
    fn remote_caller_needs_the_operators_token() {
        for peer in ELSEWHERE {
            assert!(!may(peer, None, None) && !may(peer, None, Some("secret")));
            assert!(!may(peer, Some("secret"), None), "there is none to be known");
            for wrong in ["", "s", "secreT", "secret2", "secre"] {
                assert!(!may(peer, Some(wrong), Some("secret")), "{wrong}");
            }
            assert!(may(peer, Some("secret"), Some("secret")));
        }
    }

    #[test]
    fn caller_on_loopback_needs_no_token() {
        for peer in HERE {
            assert!(may(peer, None, None) && may(peer, None, Some("secret")));
            assert!(may(peer, Some("secret"), Some("secret")));
            assert!(!may(peer, Some("wrong"), Some("secret")));
        }
    }

    #[test]
    fn refusal_names_the_token_file_and_its_option() {
        let fault = check_of("10.0.0.7".parse().expect("an address"), None, None, None)
            .expect_err("refused");
        assert_eq!(fault.error, ResponseError::ClusterAuthorizationFailed);
        let message = fault.message().expect("it says why");
        assert!(message.contains("operator.token") && message.contains("--token-file"));
    }
}
