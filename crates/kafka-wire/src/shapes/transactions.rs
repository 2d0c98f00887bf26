//! Requests of transactions.

use crate::layout::Kind::{Fixed, List, Rows, Text};
use crate::layout::{Fields, MessageShape, field, plain, since, until};

pub(super) static ADD_PARTITIONS_TO_TXN: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[
        since(
            4,
            "transactions",
            Rows(&plain(&[
                field("transactional_id", Text),
                field("producer_id", Fixed(8)),
                field("producer_epoch", Fixed(2)),
                field("verify_only", Fixed(1)),
                field("topics", Rows(&TOPICS)),
            ])),
        ),
        until(0, 3, "transactional_id", Text),
        until(0, 3, "producer_id", Fixed(8)),
        until(0, 3, "producer_epoch", Fixed(2)),
        until(0, 3, "topics", Rows(&TOPICS)),
    ]),
};

static TOPICS: Fields = plain(&[field("name", Text), field("partitions", List(&Fixed(4)))]);

pub(super) static ADD_OFFSETS_TO_TXN: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[
        field("transactional_id", Text),
        field("producer_id", Fixed(8)),
        field("producer_epoch", Fixed(2)),
        field("group_id", Text),
    ]),
};

pub(super) static END_TXN: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[
        field("transactional_id", Text),
        field("producer_id", Fixed(8)),
        field("producer_epoch", Fixed(2)),
        field("committed", Fixed(1)),
    ]),
};

pub(super) static TXN_OFFSET_COMMIT: MessageShape = MessageShape {
    flexible_since: 3,
    fields: plain(&[
        field("transactional_id", Text),
        field("group_id", Text),
        field("producer_id", Fixed(8)),
        field("producer_epoch", Fixed(2)),
        since(3, "generation_id", Fixed(4)),
        since(3, "member_id", Text),
        since(3, "group_instance_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("committed_offset", Fixed(8)),
                        since(2, "committed_leader_epoch", Fixed(4)),
                        field("committed_metadata", Text),
                    ])),
                ),
            ])),
        ),
    ]),
};
