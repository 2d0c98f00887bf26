//! Who may ask for operations, until the Kafka port has logins.
//!
//! On loopback everybody may, as RabbitMQ's guest: who has a shell on the machine has its files too.
//! From elsewhere an operator must know a token, which the server keeps in a file that only its own
//! user reads.

use std::net::IpAddr;

use kafka_protocol::error::ResponseError;

use crate::errors::Fault;

pub(super) fn check(
    peer: IpAddr,
    given: Option<&str>,
    expected: Option<&str>,
) -> Result<(), Fault> {
    // A token that is wrong is refused on loopback too: whoever gave it should know.
    match (given, expected) {
        (Some(given), Some(expected)) if is_same(given, expected) => Ok(()),
        (Some(_), _) => Err(refused("the operators' token is not this server's")),
        (None, _) if peer.to_canonical().is_loopback() => Ok(()),
        (None, _) => Err(refused("from another machine, operations need the operators' token")),
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

/// Takes as long whatever the place of the first difference is.
fn is_same(given: &str, expected: &str) -> bool {
    let differences = given.bytes().zip(expected.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == expected.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: [&str; 4] = ["10.0.0.7", "192.0.2.1", "2001:db8::1", "::ffff:10.0.0.7"];
    const HERE: [&str; 4] = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];

    fn may(peer: &str, given: Option<&str>, expected: Option<&str>) -> bool {
        check(peer.parse().expect("an address"), given, expected).is_ok()
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
        let fault =
            check("10.0.0.7".parse().expect("an address"), None, None).expect_err("refused");
        assert_eq!(fault.error, ResponseError::ClusterAuthorizationFailed);
        let message = fault.message().expect("it says why");
        assert!(message.contains("operator.token") && message.contains("--token-file"));
    }
}
