//! Requests about users and what they may do.

use crate::wire::shape::Kind::{Fixed, Rows, Text};
use crate::wire::shape::{Shape, field, plain};

pub(super) static DESCRIBE_ACLS: Shape = Shape {
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

pub(super) static CREATE_ACLS: Shape = Shape {
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

pub(super) static DELETE_ACLS: Shape = Shape {
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

pub(super) static DESCRIBE_USER_SCRAM_CREDENTIALS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[field("users", Rows(&plain(&[field("name", Text)])))]),
};
