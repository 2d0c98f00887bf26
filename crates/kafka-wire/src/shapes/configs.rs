//! Requests about configuration and quotas.

use crate::layout::Kind::{Fixed, List, Rows, Text};
use crate::layout::{MessageShape, field, plain, since};

pub(super) static DESCRIBE_CONFIGS: MessageShape = MessageShape {
    flexible_since: 4,
    fields: plain(&[
        field(
            "resources",
            Rows(&plain(&[
                field("resource_type", Fixed(1)),
                field("resource_name", Text),
                field("configuration_keys", List(&Text)),
            ])),
        ),
        field("include_synonyms", Fixed(1)),
        since(3, "include_documentation", Fixed(1)),
    ]),
};

pub(super) static ALTER_CONFIGS: MessageShape = MessageShape {
    flexible_since: 2,
    fields: plain(&[
        field(
            "resources",
            Rows(&plain(&[
                field("resource_type", Fixed(1)),
                field("resource_name", Text),
                field("configs", Rows(&plain(&[field("name", Text), field("value", Text)]))),
            ])),
        ),
        field("validate_only", Fixed(1)),
    ]),
};

pub(super) static INCREMENTAL_ALTER_CONFIGS: MessageShape = MessageShape {
    flexible_since: 1,
    fields: plain(&[
        field(
            "resources",
            Rows(&plain(&[
                field("resource_type", Fixed(1)),
                field("resource_name", Text),
                field(
                    "configs",
                    Rows(&plain(&[
                        field("name", Text),
                        field("config_operation", Fixed(1)),
                        field("value", Text),
                    ])),
                ),
            ])),
        ),
        field("validate_only", Fixed(1)),
    ]),
};

pub(super) static LIST_CONFIG_RESOURCES: MessageShape = MessageShape {
    flexible_since: 0,
    fields: plain(&[since(1, "resource_types", List(&Fixed(1)))]),
};

pub(super) static DESCRIBE_CLIENT_QUOTAS: MessageShape = MessageShape {
    flexible_since: 1,
    fields: plain(&[
        field(
            "components",
            Rows(&plain(&[
                field("entity_type", Text),
                field("match_type", Fixed(1)),
                field("_match", Text),
            ])),
        ),
        field("strict", Fixed(1)),
    ]),
};

pub(super) static ALTER_CLIENT_QUOTAS: MessageShape = MessageShape {
    flexible_since: 1,
    fields: plain(&[
        field(
            "entries",
            Rows(&plain(&[
                field(
                    "entity",
                    Rows(&plain(&[field("entity_type", Text), field("entity_name", Text)])),
                ),
                field(
                    "ops",
                    Rows(&plain(&[
                        field("key", Text),
                        field("value", Fixed(8)),
                        field("remove", Fixed(1)),
                    ])),
                ),
            ])),
        ),
        field("validate_only", Fixed(1)),
    ]),
};
