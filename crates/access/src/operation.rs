//! What can be done by whatever protocol, and which rights it takes.
//!
//! Kafka's requests ask in words of Kafka (an action on a resource), and need nothing of this. AMQP, HTTP and the
//! operations of our own ask by the table here. A topic and the queue that it is are one thing under two names: a row
//! says what somebody needs who has rules about the topic, and what somebody who has permissions for the queue.

use crate::acl::Action;
use crate::permissions::Permission;
use crate::permissions::Permission::{Configure, Read, Write};

/// What an operation takes; what it says nothing of gives no right to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    /// Kafka's, of the topic.
    pub(crate) topic: Option<Action>,
    /// RabbitMQ's, of the queue or the exchange; any of them is enough.
    pub(crate) permissions: &'static [Permission],
    /// Kafka's, of the group as well, if it is a group of its own.
    pub(crate) group: Option<Action>,
    /// Kafka's, of the cluster.
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

            pub(crate) const fn needs(self) -> Needs {
                match self {
                    $(Self::$name => Needs {
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
    /// As it is written: `delete-group`.
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

    /// What RabbitMQ calls the right to it.
    pub fn permission(self) -> Option<Permission> {
        self.needs().permissions.first().copied()
    }
}

operations! {
    // ------------------------------------------------- of topics, which queues are
    /// Make it.
    Create: Some(Action::Create), [Configure], None, None;
    /// Change what it is set to, or its groups.
    Alter: Some(Action::Alter), [Configure], None, None;
    Delete: Some(Action::Delete), [Configure], None, None;
    /// See that it is there, how much it has, and what it is set to.
    Describe: Some(Action::Describe), [Read Write Configure], None, None;
    Append: Some(Action::Write), [Write], None, None;
    /// By offset, or without settling.
    Browse: Some(Action::Read), [Read], None, None;
    /// Take records and settle them, as a member of a group.
    Consume: Some(Action::Read), [Read], Some(Action::Read), None;
    /// Move a group's position: what it skips is thrown away like what is purged.
    Seek: Some(Action::Delete), [Configure], Some(Action::Read), None;
    /// Throw records away.
    Purge: Some(Action::Delete), [Read], None, None;
    // ------------------------------------------------- of groups
    DescribeGroup: Some(Action::Describe), [Read Write Configure], Some(Action::Describe), None;
    DeleteGroup: Some(Action::Read), [Configure], Some(Action::Delete), None;
    // ------------------------------------------------- of exchanges, which are AMQP's alone
    DeclareExchange: None, [Configure], None, None;
    DeleteExchange: None, [Configure], None, None;
    /// Through it, to whatever it leads to.
    Publish: None, [Write], None, None;
    /// Have it lead somewhere.
    BindFrom: None, [Read], None, None;
    /// Have something lead to it.
    BindTo: None, [Write], None, None;
    // ------------------------------------------------- of the cluster
    /// See how it stands, who is connected, which users, virtual hosts and policies there are.
    Look: None, [], None, Some(Action::Describe);
    /// Change any of that.
    Administer: None, [], None, Some(Action::Alter);
}
