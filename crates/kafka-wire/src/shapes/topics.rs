//! Requests about topics.

use crate::layout::Kind::{Fixed, List, Maybe, Rows, Text};
use crate::layout::{MessageShape, field, plain, since, until};

pub(super) static CREATE_TOPICS: MessageShape = MessageShape {
    flexible_since: 5,
    fields: plain(&[
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field("num_partitions", Fixed(4)),
                field("replication_factor", Fixed(2)),
                field(
                    "assignments",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("broker_ids", List(&Fixed(4))),
                    ])),
                ),
                field("configs", Rows(&plain(&[field("name", Text), field("value", Text)]))),
            ])),
        ),
        field("timeout_ms", Fixed(4)),
        field("validate_only", Fixed(1)),
    ]),
};

pub(super) static DELETE_TOPICS: MessageShape = MessageShape {
    flexible_since: 4,
    fields: plain(&[
        since(
            6,
            "topics",
            Rows(&plain(&[since(6, "name", Text), since(6, "topic_id", Fixed(16))])),
        ),
        until(0, 5, "topic_names", List(&Text)),
        field("timeout_ms", Fixed(4)),
    ]),
};

pub(super) static CREATE_PARTITIONS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field("count", Fixed(4)),
                field("assignments", Rows(&plain(&[field("broker_ids", List(&Fixed(4)))]))),
            ])),
        ),
        field("timeout_ms", Fixed(4)),
        field("validate_only", Fixed(1)),
    ]),
};

pub(super) static DESCRIBE_TOPIC_PARTITIONS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("topics", Rows(&plain(&[field("name", Text)]))),
        field("response_partition_limit", Fixed(4)),
        field(
            "cursor",
            Maybe(&plain(&[field("topic_name", Text), field("partition_index", Fixed(4))])),
        ),
    ]),
};
