//! Who may ask for operations, and as whom.
//!
//! Somebody who is logged in may do by operations what it may do at all. Where nobody has to log in, everybody on
//! loopback may do everything, as RabbitMQ's guest: who has a shell on the machine has its files too. From elsewhere an
//! operator must know a token, which the server keeps in a file that only its own user reads.

use std::net::IpAddr;
use std::sync::Arc;

use ::access::{OPERATOR, Rights, is_same};
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::gateway::{Gateway, Session};

/// Commands, as the audit calls them.
const COMMAND: &str = "command";

/// What somebody may do who gives this token, if any, where this one is expected, if any.
pub(crate) fn check(
    gateway: &Gateway,
    session: &Session,
    given: Option<&str>,
    expected: Option<&str>,
) -> Result<Arc<Rights>, Fault> {
    let rights = session.login.principal().map(|_| session.rights.get(gateway, session));
    check_of(session.connection.peer().ip(), rights, given, expected)
}

/// What is written of it is that it is asked by a command.
pub(super) fn written(gateway: &Gateway, session: &Session, rights: Arc<Rights>) -> Arc<Rights> {
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
    // A token that is wrong is refused on loopback too: whoever gave it should know.
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
    fn from_elsewhere_only_with_the_token() {
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
    fn on_loopback_without_one() {
        for peer in HERE {
            assert!(may(peer, None, None) && may(peer, None, Some("secret")));
            assert!(may(peer, Some("secret"), Some("secret")));
            assert!(!may(peer, Some("wrong"), Some("secret")));
        }
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let fault = check_of("10.0.0.7".parse().expect("an address"), None, None, None)
            .expect_err("refused");
        assert_eq!(fault.error, ResponseError::ClusterAuthorizationFailed);
        let message = fault.message().expect("it says why");
        assert!(message.contains("operator.token") && message.contains("--token-file"));
    }
}
