//! Operations of all protocols, and the rights that they need.
//!
//! Kafka's requests are already in Kafka's terms (an action on a resource) and do not use this. AMQP, HTTP and our
//! own operations use this table. A topic and its queue are one thing under two names, so a row has both: the action
//! that rules must allow on the topic, and the permissions of which one is needed on the queue.

use access_rules::acl::Action;

use crate::permissions::Permission;
use crate::permissions::Permission::{Configure, Read, Write};

/// Rights that an operation needs; a missing entry grants nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequiredRights {
    /// Kafka action on the topic.
    pub(crate) topic: Option<Action>,
    /// RabbitMQ permissions on the queue or exchange; one is enough.
    pub(crate) permissions: &'static [Permission],
    /// Kafka action on the group, additionally, unless it is the main lease group.
    pub(crate) group: Option<Action>,
    /// Kafka action on the cluster.
    pub(crate) cluster: Option<Action>,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $topic:expr, [$($permission:ident)*], $group:expr, $cluster:expr;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) const fn needs(self) -> RequiredRights {
                match self {
                    $(Self::$name => RequiredRights {
                        topic: $topic,
                        permissions: &[$($permission,)*],
                        group: $group,
                        cluster: $cluster,
                    },)*
                }
            }
        }
    };
}

impl Operation {
    /// Name in audit events: `delete-group`.
    pub(crate) fn word(self) -> String {
        let mut word = String::new();
        for (place, letter) in format!("{self:?}").char_indices() {
            if letter.is_ascii_uppercase() && place > 0 {
                word.push('-');
            }
            word.push(letter.to_ascii_lowercase());
        }
        word
    }

    /// RabbitMQ's permission for it.
    pub fn permission(self) -> Option<Permission> {
        self.needs().permissions.first().copied()
    }
}

operations! {
    // ------------------------------------------------- on topics, which are queues
    /// Create it.
    Create: Some(Action::Create), [Configure], None, None;
    /// Change its configuration or its groups.
    Alter: Some(Action::Alter), [Configure], None, None;
    Delete: Some(Action::Delete), [Configure], None, None;
    /// See its existence, size and configuration.
    Describe: Some(Action::Describe), [Read Write Configure], None, None;
    Append: Some(Action::Write), [Write], None, None;
    /// Read by offset, or without settling.
    Browse: Some(Action::Read), [Read], None, None;
    /// Lease records and settle them, as a member of a group.
    Consume: Some(Action::Read), [Read], Some(Action::Read), None;
    /// Move a group's position: skipped records are lost to the group, as by a purge.
    Seek: Some(Action::Delete), [Configure], Some(Action::Read), None;
    /// Delete records.
    Purge: Some(Action::Delete), [Read], None, None;
    // ------------------------------------------------- on groups
    DescribeGroup: Some(Action::Describe), [Read Write Configure], Some(Action::Describe), None;
    DeleteGroup: Some(Action::Read), [Configure], Some(Action::Delete), None;
    // ------------------------------------------------- on exchanges, which only AMQP has
    DeclareExchange: None, [Configure], None, None;
    DeleteExchange: None, [Configure], None, None;
    /// Publish through it, to any of its targets.
    Publish: None, [Write], None, None;
    /// Bind a target to it.
    BindFrom: None, [Read], None, None;
    /// Bind it to a source.
    BindTo: None, [Write], None, None;
    // ------------------------------------------------- on the cluster
    /// See its state, connections, users, virtual hosts and policies.
    Look: None, [], None, Some(Action::Describe);
    /// Change any of that.
    Administer: None, [], None, Some(Action::Alter);
}
