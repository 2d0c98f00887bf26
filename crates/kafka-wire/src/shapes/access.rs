//! Requests about users, logins and access rules.

use crate::layout::Kind::{Blob, Fixed, Rows, Text};
use crate::layout::{MessageShape, NEVER, field, plain};

pub(super) static DESCRIBE_ACLS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[
        field("resource_type_filter", Fixed(1)),
        field("resource_name_filter", Text),
        field("pattern_type_filter", Fixed(1)),
        field("principal_filter", Text),
        field("host_filter", Text),
        field("operation", Fixed(1)),
        field("permission_type", Fixed(1)),
    ]),
};

pub(super) static CREATE_ACLS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[field(
        "creations",
        Rows(&plain(&[
            field("resource_type", Fixed(1)),
            field("resource_name", Text),
            field("resource_pattern_type", Fixed(1)),
            field("principal", Text),
            field("host", Text),
            field("operation", Fixed(1)),
            field("permission_type", Fixed(1)),
        ])),
    )]),
};

pub(super) static DELETE_ACLS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[field(
        "filters",
        Rows(&plain(&[
            field("resource_type_filter", Fixed(1)),
            field("resource_name_filter", Text),
            field("pattern_type_filter", Fixed(1)),
            field("principal_filter", Text),
            field("host_filter", Text),
            field("operation", Fixed(1)),
            field("permission_type", Fixed(1)),
        ])),
    )]),
};

pub(super) static DESCRIBE_USER_SCRAM_CREDENTIALS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[field("users", Rows(&plain(&[field("name", Text)])))]),
};

pub(super) static ALTER_USER_SCRAM_CREDENTIALS: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[
        field("deletions", Rows(&plain(&[field("name", Text), field("mechanism", Fixed(1))]))),
        field(
            "upsertions",
            Rows(&plain(&[
                field("name", Text),
                field("mechanism", Fixed(1)),
                field("iterations", Fixed(4)),
                field("salt", Blob),
                field("salted_password", Blob),
            ])),
        ),
    ]),
};

pub(super) static SASL_HANDSHAKE: MessageShape =
    MessageShape { flexible_since: NEVER, fields: plain(&[field("mechanism", Text)]) };

pub(super) static SASL_AUTHENTICATE: MessageShape =
    MessageShape { flexible_since: 2, fields: plain(&[field("auth_bytes", Blob)]) };
