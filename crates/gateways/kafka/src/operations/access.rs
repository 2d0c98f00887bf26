//! Authorization of operations.
//!
//! A logged-in user has the same rights in operations as elsewhere. Without required login, clients on
//! loopback may do everything, like RabbitMQ's guest: a user with a shell on the machine can read its files
//! too. Remote operators need a token, which the server keeps in a file that only its own user can read.

use std::net::IpAddr;
use std::sync::Arc;

use ::access::Rights;
use access_rules::OPERATOR;
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::state::{Gateway, Session};

/// Name of commands in the audit log.
const COMMAND: &str = "command";

/// Returns the rights of a caller with this token.
pub(crate) fn check(
    gateway: &Gateway,
    session: &Session,
    token: Option<&str>,
) -> Result<Arc<Rights>, Fault> {
    let rights = session.login.principal().map(|_| session.rights.get(gateway, session));
    let is_valid = token.map(|token| gateway.options.nodes.accept_operator_token(token));
    check_of(session.connection.peer().ip(), rights, is_valid)
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
    match users.audit().caller(name.or(operator), ip, COMMAND) {
        Some(caller) => Arc::new((*rights).clone().audited_as(Some(caller.looking(true)))),
        None => rights,
    }
}

/// `token`: whether the caller's token is valid; `None`: it has presented none.
fn check_of(
    peer: IpAddr,
    rights: Option<Arc<Rights>>,
    token: Option<bool>,
) -> Result<Arc<Rights>, Fault> {
    let everything = || Ok(Arc::new(Rights::everything()));
    // A wrong token is refused on loopback too, so that its sender notices.
    match token {
        Some(true) => everything(),
        Some(false) => Err(refused("the operator token is not that of a node of this cluster")),
        None => match rights {
            Some(rights) => Ok(rights),
            None if peer.to_canonical().is_loopback() => everything(),
            None => Err(refused("from another machine, operations need the operator token")),
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

    fn may(peer: &str, token: Option<bool>) -> bool {
        check_of(peer.parse().expect("an address"), None, token).is_ok()
    }

    #[test]
    fn remote_caller_needs_the_operators_token() {
        for peer in ELSEWHERE {
            assert!(!may(peer, None) && !may(peer, Some(false)) && may(peer, Some(true)));
        }
    }

    #[test]
    fn caller_on_loopback_needs_no_token() {
        for peer in HERE {
            assert!(may(peer, None) && may(peer, Some(true)) && !may(peer, Some(false)));
        }
    }

    #[test]
    fn refusal_names_the_token_file_and_its_option() {
        let fault =
            check_of("10.0.0.7".parse().expect("an address"), None, None).expect_err("refused");
        assert_eq!(fault.error, ResponseError::ClusterAuthorizationFailed);
        let message = fault.message().expect("it says why");
        assert!(message.contains("operator.token") && message.contains("--token-file"));
    }
}
