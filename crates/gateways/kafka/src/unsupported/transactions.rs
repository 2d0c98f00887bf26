//! Refuses clients that use transactions below the feature level for it: at once, and so that they show the reason.

use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::state::Session;

const REASON: &str = "transactions need feature level 10: type `postroad cluster upgrade --finalize` once all nodes run this version";

/// The Java client shows the message; clients that show only the code report an unsupported version of the
/// API. No client mistakes it for a missing right.
pub(crate) fn no_transactions() -> Fault {
    Fault::new(ResponseError::UnsupportedVersion, REASON)
}

/// The refusal for a session's client. librdkafka silently retries finding the transaction coordinator after
/// every code but this one, which it treats as final, and whose message it shows.
pub(crate) fn no_transactions_for(session: &Session) -> Fault {
    let name = session.connection.client();
    if is_librdkafka(&name) {
        return Fault::new(ResponseError::TransactionalIdAuthorizationFailed, REASON);
    }
    no_transactions()
}

/// Matches the names of its bindings too.
fn is_librdkafka(software: &str) -> bool {
    software.contains("rdkafka") || software.starts_with("confluent-kafka-")
}

#[cfg(test)]
mod tests {
    use super::is_librdkafka;

    #[test]
    fn librdkafka_is_known_by_the_names_of_its_bindings() {
        for name in ["librdkafka 2.8.0", "confluent-kafka-python 2.8.0-rdkafka-2.8.0"] {
            assert!(is_librdkafka(name), "{name}");
        }
        for name in ["", "apache-kafka-java 4.1.0", "kgo v1.18.0", "sarama 1.45"] {
            assert!(!is_librdkafka(name), "{name}");
        }
    }
}
