//! How a client that wants transactions is refused: at once, and so that it shows the reason.

use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::gateway::Session;

const REASON: &str =
    "transactions are not offered by this broker: produce without a transactional id";

/// The Java client shows the message; clients that show the code alone say that the version of the
/// API is not supported. No client takes it for an access list that could be changed.
pub(crate) fn no_transactions() -> Fault {
    Fault::new(ResponseError::UnsupportedVersion, REASON)
}

/// The refusal for a session's client. librdkafka goes on asking for a coordinator of transactions,
/// without a word, after every code but one: it takes that one as final and shows the message
/// with it.
pub(crate) fn no_transactions_for(session: &Session) -> Fault {
    let name = session.connection.client();
    if is_librdkafka(&name) {
        return Fault::new(ResponseError::TransactionalIdAuthorizationFailed, REASON);
    }
    no_transactions()
}

/// Its bindings have names of their own.
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
