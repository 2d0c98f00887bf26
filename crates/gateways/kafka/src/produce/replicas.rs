//! Rejects topics that require more replicas than an acknowledgement waits for (`min.insync.replicas`).

use broker::config::TopicConfig;
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::state::Gateway;

/// Number of replicas of each partition; 1 if no topic requires more.
pub(crate) fn replica_count<'a>(
    gateway: &Gateway,
    mut configs: impl Iterator<Item = &'a TopicConfig>,
) -> usize {
    match configs.any(|config| config.min_insync_replicas > 1) {
        true => gateway.broker.replicas().len(),
        false => 1,
    }
}

/// A record is acknowledged once a majority has it, so a topic cannot require more.
pub(crate) fn too_few(config: &TopicConfig, replicas: usize) -> Option<Fault> {
    let (wanted, majority) = (config.min_insync_replicas, replicas / 2 + 1);
    if wanted as usize <= majority {
        return None;
    }
    let message = match replicas {
        0 | 1 => format!("min.insync.replicas is {wanted} and this topic has one replica"),
        more => format!(
            "min.insync.replicas is {wanted}, and a record is acknowledged when {majority} of the \
             topic's {more} replicas have it"
        ),
    };
    Some(Fault::new(ResponseError::NotEnoughReplicas, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_insync_replicas_above_a_majority_is_refused() {
        for (replicas, majority) in [(0, 1), (1, 1), (2, 2), (3, 2), (5, 3)] {
            let config =
                |min_insync_replicas| TopicConfig { min_insync_replicas, ..Default::default() };
            assert_eq!(too_few(&config(majority), replicas), None, "{replicas}");
            let fault = too_few(&config(majority + 1), replicas).expect("is refused");
            assert_eq!(fault.error, ResponseError::NotEnoughReplicas);
        }
    }
}
