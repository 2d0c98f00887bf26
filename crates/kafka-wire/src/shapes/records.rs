//! Requests for records, and of producers.

use crate::layout::Kind::{Fixed, List, Row, Rows, Text};
use crate::layout::{Fields, MessageShape, field, plain, since, until};

pub(super) static FETCH: MessageShape = MessageShape {
    flexible_since: 12,
    fields: Fields {
        plain: &[
            until(0, 14, "replica_id", Fixed(4)),
            field("max_wait_ms", Fixed(4)),
            field("min_bytes", Fixed(4)),
            field("max_bytes", Fixed(4)),
            field("isolation_level", Fixed(1)),
            since(7, "session_id", Fixed(4)),
            since(7, "session_epoch", Fixed(4)),
            field(
                "topics",
                Rows(&plain(&[
                    until(0, 12, "topic", Text),
                    since(13, "topic_id", Fixed(16)),
                    field(
                        "partitions",
                        Rows(&Fields {
                            plain: &[
                                field("partition", Fixed(4)),
                                since(9, "current_leader_epoch", Fixed(4)),
                                field("fetch_offset", Fixed(8)),
                                since(12, "last_fetched_epoch", Fixed(4)),
                                since(5, "log_start_offset", Fixed(8)),
                                field("partition_max_bytes", Fixed(4)),
                            ],
                            tagged: &[
                                (0, since(17, "replica_directory_id", Fixed(16))),
                                (1, since(18, "high_watermark", Fixed(8))),
                            ],
                        }),
                    ),
                ])),
            ),
            since(
                7,
                "forgotten_topics_data",
                Rows(&plain(&[
                    until(7, 12, "topic", Text),
                    since(13, "topic_id", Fixed(16)),
                    since(7, "partitions", List(&Fixed(4))),
                ])),
            ),
            since(11, "rack_id", Text),
        ],
        tagged: &[
            (0, since(12, "cluster_id", Text)),
            (
                1,
                since(
                    15,
                    "replica_state",
                    Row(&plain(&[
                        since(15, "replica_id", Fixed(4)),
                        since(15, "replica_epoch", Fixed(8)),
                    ])),
                ),
            ),
        ],
    },
};

pub(super) static LIST_OFFSETS: MessageShape = MessageShape {
    flexible_since: 6,
    fields: plain(&[
        field("replica_id", Fixed(4)),
        since(2, "isolation_level", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        since(4, "current_leader_epoch", Fixed(4)),
                        field("timestamp", Fixed(8)),
                    ])),
                ),
            ])),
        ),
        since(10, "timeout_ms", Fixed(4)),
    ]),
};

pub(super) static DELETE_RECORDS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[field("partition_index", Fixed(4)), field("offset", Fixed(8))])),
                ),
            ])),
        ),
        field("timeout_ms", Fixed(4)),
    ]),
};

pub(super) static OFFSET_FOR_LEADER_EPOCH: MessageShape = MessageShape {
    flexible_since: 4,
    fields: plain(&[
        since(3, "replica_id", Fixed(4)),
        field(
            "topics",
            Rows(&plain(&[
                field("topic", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition", Fixed(4)),
                        field("current_leader_epoch", Fixed(4)),
                        field("leader_epoch", Fixed(4)),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static INIT_PRODUCER_ID: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[
        field("transactional_id", Text),
        field("transaction_timeout_ms", Fixed(4)),
        since(3, "producer_id", Fixed(8)),
        since(3, "producer_epoch", Fixed(2)),
    ]),
};

pub(super) static DESCRIBE_PRODUCERS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[field(
        "topics",
        Rows(&plain(&[field("name", Text), field("partition_indexes", List(&Fixed(4)))])),
    )]),
};

pub(super) static DESCRIBE_TRANSACTIONS: MessageShape =
    MessageShape { flexible_since: 0, fields: plain(&[field("transactional_ids", List(&Text))]) };

pub(super) static LIST_TRANSACTIONS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("state_filters", List(&Text)),
        field("producer_id_filters", List(&Fixed(8))),
        since(1, "duration_filter", Fixed(8)),
        since(2, "transactional_id_pattern", Text),
    ]),
};
