//! Commands that are not typed, each with the reason.

use super::shell::Shell;
use crate::failure::Outcome;

struct Skip {
    page: &'static str,
    /// Prefix of the command.
    command: &'static str,
    when: SkipCondition,
    /// Typed in its place, so that the commands after it find the same topics and groups. Empty: nothing.
    instead: &'static str,
    /// Beginnings of later commands whose output is not compared then.
    then_differ: &'static [&'static str],
}

enum SkipCondition {
    Always {
        reason: &'static str,
    },
    /// Skipped if a program is missing. The check is a command that succeeds if it is installed.
    Without {
        program: &'static str,
        check: &'static str,
    },
}

const KCAT: SkipCondition = SkipCondition::Without { program: "kcat", check: "kcat -V" };
const PROMTOOL: SkipCondition =
    SkipCondition::Without { program: "promtool", check: "promtool --version" };
const PYTHON: SkipCondition = SkipCondition::Without {
    program: "python with confluent_kafka and pika",
    check: "python -c 'import confluent_kafka, pika'",
};

const SKIPS: [Skip; 11] = [
    Skip {
        page: "README",
        command: "cargo run",
        when: SkipCondition::Always { reason: "builds the program that is tried here" },
        instead: "",
        then_differ: &[],
    },
    Skip {
        page: "README",
        command: "cargo xtask ci",
        when: SkipCondition::Always {
            reason: "runs for an hour, and each change must pass it anyway",
        },
        instead: "",
        then_differ: &[],
    },
    Skip {
        page: "README",
        command: "printf 'anna:3 apples",
        when: KCAT,
        instead: "printf 'anna:3 apples\\nbert:1 pear\\nanna:2 plums\\n' | postroad produce orders --key-separator :",
        then_differ: &[],
    },
    Skip {
        page: "README",
        command: "kcat -b localhost:9092 -t",
        when: KCAT,
        instead: "",
        then_differ: &[],
    },
    Skip {
        page: "README",
        command: "kcat -b localhost:9092 -X",
        when: KCAT,
        instead: "postroad consume orders --group cellar",
        then_differ: &[],
    },
    Skip {
        page: "README",
        command: "python produce.py",
        when: PYTHON,
        instead: "seq 1000 | sed 's/.*/customer-&:order &/' | postroad produce orders --key-separator : && \
                  postroad consume orders --group billing --count 500 > consumed",
        // The group uses another protocol.
        then_differ: &["postroad group list", "postroad group describe billing"],
    },
    Skip { page: "README", command: "python send.py", when: PYTHON, instead: "", then_differ: &[] },
    Skip {
        page: "README",
        command: "postroad consume orders --follow",
        when: SkipCondition::Always {
            reason: "goes on until it is interrupted, into a program of the reader",
        },
        instead: "",
        then_differ: &[],
    },
    Skip {
        page: "configuration",
        command: "scp ",
        when: SkipCondition::Always { reason: "needs another machine with an SSH server" },
        instead: "cp var/lib/postroad/operator.token etc/postroad/cert.pem .",
        then_differ: &[],
    },
    Skip { page: "metrics", command: "promtool", when: PROMTOOL, instead: "", then_differ: &[] },
    Skip {
        page: "security",
        command: "postroad serve --kafka-tls 0.0.0.0:9093 --tls-cert cert.pem --tls-key key.pem \\\n    --oidc-issuer",
        when: SkipCondition::Always { reason: "needs an OpenID Connect issuer" },
        instead: "",
        then_differ: &[],
    },
];

/// A command that is skipped.
pub(super) struct SkippedCommand {
    pub(super) reason: String,
    pub(super) instead: &'static str,
    pub(super) then_differ: &'static [&'static str],
}

/// Whether a command of a page is skipped.
pub(super) fn skipped(page: &str, command: &str, shell: &Shell) -> Outcome<Option<SkippedCommand>> {
    let Some(skip) = SKIPS.iter().find(|it| it.page == page && command.starts_with(it.command))
    else {
        return Ok(None);
    };
    let reason = match skip.when {
        SkipCondition::Always { reason } => reason.to_owned(),
        SkipCondition::Without { check, .. } if shell.succeeds(check)? => return Ok(None),
        SkipCondition::Without { program, .. } => {
            format!("needs {program}, which is not installed")
        }
    };
    Ok(Some(SkippedCommand { reason, instead: skip.instead, then_differ: skip.then_differ }))
}

/// The commands of the table with their pages.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SKIPS.iter().flat_map(|skip| {
        let commands = std::iter::once(skip.command).chain(skip.then_differ.iter().copied());
        commands.map(|command| (skip.page, command))
    })
}
