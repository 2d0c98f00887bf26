//! Requests about the cluster and the placement of partitions.

use crate::layout::Kind::{Fixed, List, Rows, Text};
use crate::layout::{MessageShape, field, plain, since, until};

pub(super) static API_VERSIONS: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[
        since(3, "client_software_name", Text),
        since(3, "client_software_version", Text),
    ]),
};

pub(super) static METADATA: MessageShape = MessageShape {
    flexible_since: 9,
    fields: plain(&[
        field("topics", Rows(&plain(&[since(10, "topic_id", Fixed(16)), field("name", Text)]))),
        since(4, "allow_auto_topic_creation", Fixed(1)),
        until(8, 10, "include_cluster_authorized_operations", Fixed(1)),
        since(8, "include_topic_authorized_operations", Fixed(1)),
    ]),
};

pub(super) static DESCRIBE_CLUSTER: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("include_cluster_authorized_operations", Fixed(1)),
        since(1, "endpoint_type", Fixed(1)),
        since(2, "include_fenced_brokers", Fixed(1)),
    ]),
};

pub(super) static DESCRIBE_QUORUM: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[field(
        "topics",
        Rows(&plain(&[
            field("topic_name", Text),
            field("partitions", Rows(&plain(&[field("partition_index", Fixed(4))]))),
        ])),
    )]),
};

pub(super) static DESCRIBE_LOG_DIRS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[field(
        "topics",
        Rows(&plain(&[field("topic", Text), field("partitions", List(&Fixed(4)))])),
    )]),
};

pub(super) static UPDATE_FEATURES: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("timeout_ms", Fixed(4)),
        field(
            "feature_updates",
            Rows(&plain(&[
                field("feature", Text),
                field("max_version_level", Fixed(2)),
                until(0, 0, "allow_downgrade", Fixed(1)),
                since(1, "upgrade_type", Fixed(1)),
            ])),
        ),
        since(1, "validate_only", Fixed(1)),
    ]),
};

pub(super) static ELECT_LEADERS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[
        since(1, "election_type", Fixed(1)),
        field(
            "topic_partitions",
            Rows(&plain(&[field("topic", Text), field("partitions", List(&Fixed(4)))])),
        ),
        field("timeout_ms", Fixed(4)),
    ]),
};

pub(super) static ALTER_PARTITION_REASSIGNMENTS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("timeout_ms", Fixed(4)),
        since(1, "allow_replication_factor_change", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("replicas", List(&Fixed(4))),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static LIST_PARTITION_REASSIGNMENTS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("timeout_ms", Fixed(4)),
        field(
            "topics",
            Rows(&plain(&[field("name", Text), field("partition_indexes", List(&Fixed(4)))])),
        ),
    ]),
};
