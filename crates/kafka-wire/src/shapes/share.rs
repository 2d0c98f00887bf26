//! Requests of share groups.

use crate::layout::Kind::{Fixed, List, Rows, Text};
use crate::layout::{Fields, MessageShape, field, plain, since};

pub(super) static SHARE_GROUP_HEARTBEAT: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("member_epoch", Fixed(4)),
        field("rack_id", Text),
        field("subscribed_topic_names", List(&Text)),
    ]),
};

pub(super) static SHARE_GROUP_DESCRIBE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_ids", List(&Text)),
        field("include_authorized_operations", Fixed(1)),
    ]),
};

static ACKNOWLEDGEMENT_BATCHES: Fields = plain(&[
    field("first_offset", Fixed(8)),
    field("last_offset", Fixed(8)),
    field("acknowledge_types", List(&Fixed(1))),
]);

pub(super) static SHARE_FETCH: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("share_session_epoch", Fixed(4)),
        field("max_wait_ms", Fixed(4)),
        field("min_bytes", Fixed(4)),
        field("max_bytes", Fixed(4)),
        field("max_records", Fixed(4)),
        field("batch_size", Fixed(4)),
        since(2, "share_acquire_mode", Fixed(1)),
        since(2, "is_renew_ack", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("acknowledgement_batches", Rows(&ACKNOWLEDGEMENT_BATCHES)),
                    ])),
                ),
            ])),
        ),
        field(
            "forgotten_topics_data",
            Rows(&plain(&[field("topic_id", Fixed(16)), field("partitions", List(&Fixed(4)))])),
        ),
    ]),
};

pub(super) static SHARE_ACKNOWLEDGE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("share_session_epoch", Fixed(4)),
        since(2, "is_renew_ack", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("acknowledgement_batches", Rows(&ACKNOWLEDGEMENT_BATCHES)),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static INITIALIZE_SHARE_GROUP_STATE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition", Fixed(4)),
                        field("state_epoch", Fixed(4)),
                        field("start_offset", Fixed(8)),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static READ_SHARE_GROUP_STATE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[field("partition", Fixed(4)), field("leader_epoch", Fixed(4))])),
                ),
            ])),
        ),
    ]),
};

pub(super) static WRITE_SHARE_GROUP_STATE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition", Fixed(4)),
                        field("state_epoch", Fixed(4)),
                        field("leader_epoch", Fixed(4)),
                        field("start_offset", Fixed(8)),
                        field(
                            "state_batches",
                            Rows(&plain(&[
                                field("first_offset", Fixed(8)),
                                field("last_offset", Fixed(8)),
                                field("delivery_state", Fixed(1)),
                                field("delivery_count", Fixed(2)),
                            ])),
                        ),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static DELETE_SHARE_GROUP_STATE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field("partitions", Rows(&plain(&[field("partition", Fixed(4))]))),
            ])),
        ),
    ]),
};

pub(super) static READ_SHARE_GROUP_STATE_SUMMARY: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[field("partition", Fixed(4)), field("leader_epoch", Fixed(4))])),
                ),
            ])),
        ),
    ]),
};

pub(super) static DESCRIBE_SHARE_GROUP_OFFSETS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[field(
        "groups",
        Rows(&plain(&[
            field("group_id", Text),
            field(
                "topics",
                Rows(&plain(&[field("topic_name", Text), field("partitions", List(&Fixed(4)))])),
            ),
        ])),
    )]),
};

pub(super) static ALTER_SHARE_GROUP_OFFSETS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("start_offset", Fixed(8)),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static DELETE_SHARE_GROUP_OFFSETS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("topics", Rows(&plain(&[field("topic_name", Text)]))),
    ]),
};
