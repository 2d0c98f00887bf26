//! Requests of consumer groups, and of their offsets.

use crate::layout::Kind::{Blob, Fixed, List, Rows, Text};
use crate::layout::{MessageShape, NEVER, field, plain, since, until};

pub(super) static FIND_COORDINATOR: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[
        until(0, 3, "key", Text),
        since(1, "key_type", Fixed(1)),
        since(4, "coordinator_keys", List(&Text)),
    ]),
};

pub(super) static JOIN_GROUP: MessageShape = MessageShape {
    flexible_since: 6,
    fields: plain(&[
        field("group_id", Text),
        field("session_timeout_ms", Fixed(4)),
        since(1, "rebalance_timeout_ms", Fixed(4)),
        field("member_id", Text),
        since(5, "group_instance_id", Text),
        field("protocol_type", Text),
        field("protocols", Rows(&plain(&[field("name", Text), field("metadata", Blob)]))),
        since(8, "reason", Text),
    ]),
};

pub(super) static SYNC_GROUP: MessageShape = MessageShape {
    flexible_since: 4,
    fields: plain(&[
        field("group_id", Text),
        field("generation_id", Fixed(4)),
        field("member_id", Text),
        since(3, "group_instance_id", Text),
        since(5, "protocol_type", Text),
        since(5, "protocol_name", Text),
        field("assignments", Rows(&plain(&[field("member_id", Text), field("assignment", Blob)]))),
    ]),
};

pub(super) static HEARTBEAT: MessageShape = MessageShape {
    flexible_since: 4,
    fields: plain(&[
        field("group_id", Text),
        field("generation_id", Fixed(4)),
        field("member_id", Text),
        since(3, "group_instance_id", Text),
    ]),
};

pub(super) static LEAVE_GROUP: MessageShape = MessageShape {
    flexible_since: 4,
    fields: plain(&[
        field("group_id", Text),
        until(0, 2, "member_id", Text),
        since(
            3,
            "members",
            Rows(&plain(&[
                since(3, "member_id", Text),
                since(3, "group_instance_id", Text),
                since(5, "reason", Text),
            ])),
        ),
    ]),
};

pub(super) static CONSUMER_GROUP_HEARTBEAT: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("member_epoch", Fixed(4)),
        field("instance_id", Text),
        field("rack_id", Text),
        field("rebalance_timeout_ms", Fixed(4)),
        field("subscribed_topic_names", List(&Text)),
        since(1, "subscribed_topic_regex", Text),
        field("server_assignor", Text),
        field(
            "topic_partitions",
            Rows(&plain(&[field("topic_id", Fixed(16)), field("partitions", List(&Fixed(4)))])),
        ),
    ]),
};

pub(super) static CONSUMER_GROUP_DESCRIBE: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("group_ids", List(&Text)),
        field("include_authorized_operations", Fixed(1)),
    ]),
};

pub(super) static DESCRIBE_GROUPS: MessageShape = MessageShape {
    flexible_since: 5,
    fields: plain(&[
        field("groups", List(&Text)),
        since(3, "include_authorized_operations", Fixed(1)),
    ]),
};

pub(super) static LIST_GROUPS: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[since(4, "states_filter", List(&Text)), since(5, "types_filter", List(&Text))]),
};

pub(super) static DELETE_GROUPS: MessageShape =
    MessageShape { flexible_since: 2, fields: plain(&[field("groups_names", List(&Text))]) };

pub(super) static OFFSET_COMMIT: MessageShape = MessageShape {
    flexible_since: 8,
    fields: plain(&[
        field("group_id", Text),
        field("generation_id_or_member_epoch", Fixed(4)),
        field("member_id", Text),
        since(7, "group_instance_id", Text),
        until(0, 4, "retention_time_ms", Fixed(8)),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("committed_offset", Fixed(8)),
                        since(6, "committed_leader_epoch", Fixed(4)),
                        field("committed_metadata", Text),
                    ])),
                ),
            ])),
        ),
    ]),
};

pub(super) static OFFSET_FETCH: MessageShape = MessageShape {
    flexible_since: 6,
    fields: plain(&[
        until(0, 7, "group_id", Text),
        until(
            0,
            7,
            "topics",
            Rows(&plain(&[
                until(0, 7, "name", Text),
                until(0, 7, "partition_indexes", List(&Fixed(4))),
            ])),
        ),
        since(
            8,
            "groups",
            Rows(&plain(&[
                since(8, "group_id", Text),
                since(9, "member_id", Text),
                since(9, "member_epoch", Fixed(4)),
                since(
                    8,
                    "topics",
                    Rows(&plain(&[
                        since(8, "name", Text),
                        since(8, "partition_indexes", List(&Fixed(4))),
                    ])),
                ),
            ])),
        ),
        since(7, "require_stable", Fixed(1)),
    ]),
};

pub(super) static OFFSET_DELETE: MessageShape = MessageShape {
    flexible_since: NEVER,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field("partitions", Rows(&plain(&[field("partition_index", Fixed(4))]))),
            ])),
        ),
    ]),
};
