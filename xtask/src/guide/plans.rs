//! The preparation of each page with `console` blocks.

use super::page::Section;
use crate::failure::{Failure, Outcome};

/// Sections that are typed one after the other in one folder.
pub(super) struct PagePart {
    /// Titles of the sections; none: all that the page has.
    pub(super) sections: &'static [&'static str],
    /// Paths of the repository with their names in the folder.
    pub(super) links: &'static [(&'static str, &'static str)],
    /// Blocks of the page that are files.
    pub(super) files: &'static [PageFile],
    /// Typed before the first section.
    pub(super) before: &'static [&'static str],
    pub(super) events: &'static [Event],
    /// Values in commands that are others in each run: as shown, and as typed.
    pub(super) values: &'static [(&'static str, &'static str)],
    pub(super) extents: &'static [Extent],
    /// Beginnings of commands that print their lines in any order.
    pub(super) unordered: &'static [&'static str],
}

/// A block that the reader saves as a file.
pub(super) struct PageFile {
    pub(super) section: &'static str,
    pub(super) language: &'static str,
    /// Its place among the section's blocks in this language.
    pub(super) place: usize,
    pub(super) name: &'static str,
}

/// Something that the text describes, or time that passes, before a command that begins with `before`.
pub(super) struct Event {
    pub(super) before: &'static str,
    pub(super) commands: &'static [&'static str],
}

/// A command of which only the first lines are compared.
pub(super) struct Extent {
    pub(super) command: &'static str,
    pub(super) lines: usize,
    pub(super) reason: &'static str,
}

impl PagePart {
    pub(super) fn covers(&self, section: &Section) -> bool {
        self.sections.is_empty() || self.sections.contains(&section.title.as_str())
    }
}

const SERVE: &str = "postroad serve";

/// A part in a fresh folder without a node.
const BARE: PagePart = PagePart {
    sections: &[],
    links: &[],
    files: &[],
    before: &[],
    events: &[],
    values: &[],
    extents: &[],
    unordered: &[],
};

/// The default: a fresh node.
const NODE: PagePart = PagePart { before: &[SERVE], ..BARE };

/// The parts of a page.
pub(super) fn of(page: &str) -> Outcome<&'static [PagePart]> {
    let plan = PLANS.iter().find(|(name, _)| *name == page);
    plan.map(|(_, parts)| *parts).ok_or_else(|| {
        Failure::new("the page has commands, and no plan")
            .remedy("add the page to xtask/src/guide/plans.rs")
    })
}

/// A topic with some records.
const ORDERS: [&str; 2] =
    ["postroad topic create orders --partitions 4", "seq 1 1000 | postroad produce orders"];
/// A certificate for this machine and the first administrator's password, as installed.
const INSTALLED: [&str; 3] = [
    "mkdir -p /etc/postroad /var/lib/postroad",
    "postroad tls self-signed --name broker.internal --dir /etc/postroad",
    "(umask 077; echo 'correct horse' > /etc/postroad/admin-password)",
];
/// Leases a record by HTTP.
const LEASE: &str = "curl -sS localhost:15672/v1/topics/orders/groups/main/leases \
                     -d '{\"max_records\": 1, \"wait_ms\": 5000, \"lease_ms\": 60000}' | tee lease.json";
const OF_THE_MACHINE: &str = "the others depend on the machine";

const PLANS: [(&str, &[PagePart]); 16] = [
    (
        "README",
        &[PagePart {
            files: &[
                python(0, "produce.py"),
                python(1, "consume.py"),
                python(2, "send.py"),
                python(3, "work.py"),
            ],
            // Partitions are read concurrently.
            unordered: &["kcat -b", "python produce.py"],
            ..BARE
        }],
    ),
    ("amqp", &[NODE]),
    (
        "configuration",
        &[PagePart {
            files: &[PageFile { section: "", language: "toml", place: 0, name: "postroad.toml" }],
            before: &INSTALLED,
            ..BARE
        }],
    ),
    (
        "connections",
        &[PagePart {
            before: &[
                SERVE,
                "postroad topic create orders",
                "timeout 20 postroad consume orders --follow > consumed 2>&1 &",
            ],
            values: &[(
                "connection close 9",
                "connection close $(postroad connection list --output json | jq -s 'flatten[0].id')",
            )],
            extents: &[Extent {
                command: "postroad connection list",
                lines: 1,
                reason: "the others are the clients of the page",
            }],
            ..BARE
        }],
    ),
    (
        "doctor",
        &[PagePart {
            before: &[
                "mkdir -p /etc/postroad /var/lib/postroad",
                "echo 'data = \"/var/lib/postroad\"' > /etc/postroad/postroad.toml",
                "postroad serve --config /etc/postroad/postroad.toml",
            ],
            extents: &[Extent { command: "postroad doctor", lines: 1, reason: OF_THE_MACHINE }],
            ..BARE
        }],
    ),
    (
        "http",
        &[PagePart {
            events: &[Event {
                before: "curl -s 'localhost:15672/v1/groups/readers/seek",
                commands: &["postroad consume orders --group readers"],
            }],
            ..BARE
        }],
    ),
    ("management-api", &[NODE]),
    (
        "metrics",
        &[PagePart {
            links: &[("deploy", "deploy")],
            before: &[SERVE, ORDERS[0], "postroad queue declare orders --group billing", ORDERS[1]],
            ..BARE
        }],
    ),
    (
        "protocols",
        &[PagePart {
            // The page publishes it by a client in Python; RabbitMQ's management API publishes the same.
            before: &[
                SERVE,
                "curl -sS -u guest:guest -X PUT localhost:15672/api/exchanges/%2F/shop \
                 -d '{\"type\": \"topic\", \"durable\": true}'",
                "curl -sS -u guest:guest -X PUT localhost:15672/api/queues/%2F/orders \
                 -d '{\"durable\": true, \"arguments\": {\"x-max-priority\": 9}}'",
                "curl -sS -u guest:guest localhost:15672/api/bindings/%2F/e/shop/q/orders \
                 -d '{\"routing_key\": \"order.*\"}'",
                "curl -sS -u guest:guest localhost:15672/api/exchanges/%2F/shop/publish \
                 -d '{\"routing_key\": \"order.new\", \"payload\": \"3 apples\", \
                 \"payload_encoding\": \"string\", \"properties\": {\"content_type\": \"text/plain\", \
                 \"delivery_mode\": 2, \"priority\": 4, \"message_id\": \"m-1\", \"headers\": \
                 {\"postroad.key\": \"anna\", \"source\": \"web\", \"tries\": 2, \"vip\": true}}}'",
            ],
            extents: &[Extent {
                command: "postroad consume orders --output json",
                lines: 11,
                reason: "the letters of types are those of a client in Python",
            }],
            ..BARE
        }],
    ),
    ("queues", &[NODE]),
    (
        "security",
        &[
            PagePart { sections: &["", "Tokens"], ..BARE },
            PagePart { sections: &["Required log-ins"], ..BARE },
            PagePart {
                sections: &["Client certificates"],
                before: &[
                    "postroad tls self-signed --name broker.internal --dir .",
                    "cp cert.pem clients.pem",
                ],
                ..BARE
            },
            PagePart {
                sections: &["Authorization", "Quotas"],
                before: &[
                    "(umask 077; echo 'correct horse' > password)",
                    "postroad serve --admin-user root --admin-password-file password",
                ],
                ..BARE
            },
            PagePart {
                sections: &["Audit"],
                before: &[
                    "(umask 077; echo 'correct horse' > password)",
                    "postroad serve --audit on --admin-user ada --admin-password-file password",
                    "postroad topic create orders --login ada --password-file password",
                    "postroad topic delete orders --login ada --password-file password",
                ],
                ..BARE
            },
        ],
    ),
    ("shards", &[BARE]),
    (
        "top",
        &[PagePart {
            before: &[
                SERVE,
                ORDERS[0],
                ORDERS[1],
                "postroad consume orders --group billing --count 10",
            ],
            ..BARE
        }],
    ),
    ("topics", &[NODE]),
    (
        "tracing",
        &[PagePart {
            // The page's other consumers use AMQP and Kafka.
            before: &[
                SERVE,
                "postroad topic create orders",
                "echo 'anna:3 apples' | postroad produce orders --key-separator :",
                "echo 'anna:2 plums' | postroad produce orders --key-separator :",
                "curl -sS -X PUT localhost:15672/v1/topics/orders/groups/main -d '{\"from\": \"earliest\"}'",
                LEASE,
                "curl -sS localhost:15672/v1/topics/orders/groups/main/settle -d '{\"settles\": [{\"token\": \
                 \"'$(jq -r '.leases[0].token' lease.json)'\", \"action\": \"release\"}]}'",
                LEASE,
                "curl -sS localhost:15672/v1/topics/orders/groups/main/settle -d '{\"settles\": [{\"token\": \
                 \"'$(jq -r '.leases[0].token' lease.json)'\", \"action\": \"accept\"}]}'",
                LEASE,
            ],
            events: &[Event {
                before: "postroad consume _postroad.trace",
                commands: &[
                    "echo 'anna:1 fig' | postroad produce orders --key-separator :",
                    LEASE,
                    "until postroad topic describe _postroad.trace; do sleep 0.2; done > described 2>&1",
                ],
            }],
            extents: &[
                Extent {
                    command: "postroad trace orders --key anna",
                    lines: 5,
                    reason: "the consumers of the others are of AMQP",
                },
                Extent {
                    command: "postroad trace orders --at 0:1",
                    lines: 1,
                    reason: "the consumer of the others is of Kafka",
                },
            ],
            ..BARE
        }],
    ),
    ("transactions", &[NODE]),
];

/// Commands that the plans name, with their pages.
#[cfg(test)]
pub(super) fn all_commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    PLANS.iter().flat_map(|(page, parts)| {
        parts.iter().flat_map(|part| {
            let events = part.events.iter().map(|event| event.before);
            let values = part.values.iter().map(|(shown, _)| *shown);
            let extents = part.extents.iter().map(|extent| extent.command);
            let commands =
                events.chain(values).chain(extents).chain(part.unordered.iter().copied());
            commands.map(|command| (*page, command))
        })
    })
}

const fn python(place: usize, name: &'static str) -> PageFile {
    PageFile { section: "Five minutes", language: "python", place, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_without_a_plan_is_rejected() {
        assert!(of("queues").is_ok());
        assert!(of("new-page").is_err());
    }
}
