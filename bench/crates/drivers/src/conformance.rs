//! Conformance test of a driver and its server against the contract of [`driver`]. Each check is a
//! small scenario of senders and receivers. A check of a missing feature (by the system's own
//! [`About`]) is skipped with the reason.
//!
//! Every check creates its own topology, so that a failed one leaves nothing behind for the next.

mod checks;
mod scene;

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use driver::{About, Failure, Style, Target, Tier};
use serde::{Deserialize, Serialize};

use crate::connect;
use scene::Scene;

/// Time limit of one check.
const CHECK_TIME_MAX: Duration = Duration::from_secs(90);

/// Results of one system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conformance {
    pub system: String,
    pub title: String,
    pub version: String,
    pub client: String,
    pub tier: Tier,
    pub checks: Vec<Check>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// `queue`, `log`, or empty for checks of neither.
    pub style: String,
    /// The checked rule, as a sentence.
    pub name: String,
    pub outcome: Outcome,
    pub seconds: f64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", content = "why", rename_all = "kebab-case")]
pub enum Outcome {
    Passed,
    /// The system lacks this feature.
    Skipped(String),
    Failed(String),
}

impl Conformance {
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::Failed(_)))
    }

    /// Counts of passed, skipped and failed checks.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |which: fn(&Outcome) -> bool| {
            self.checks.iter().filter(|check| which(&check.outcome)).count()
        };
        (
            count(|outcome| matches!(outcome, Outcome::Passed)),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
        )
    }
}

impl Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { style, name, outcome, seconds } = self;
        match outcome {
            Outcome::Passed => write!(f, "passed   {seconds:5.1}s  {style:5}  {name}"),
            Outcome::Skipped(why) => write!(f, "skipped          {style:5}  {name}: {why}"),
            Outcome::Failed(why) => write!(f, "FAILED   {seconds:5.1}s  {style:5}  {name}: {why}"),
        }
    }
}

/// Reason that a check did not pass.
#[derive(Debug)]
enum Fault {
    /// The system lacks the checked feature.
    NoSuchThing(String),
    Wrong(String),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsupported { .. } => Self::NoSuchThing(failure.to_string()),
            _ => Self::Wrong(failure.to_string()),
        }
    }
}

type Story = Result<(), Fault>;

/// Runs all checks on the target's system, at a tier (or at its lowest one), and calls `told` after
/// each. An error means that the system cannot be reached.
pub async fn run(
    target: &Target,
    tier: Option<Tier>,
    mut told: impl FnMut(&Check),
) -> Result<Conformance, Failure> {
    let driver = connect(target)?;
    let about = driver.about();
    let version = driver.version().await?;
    let lowest = about.tiers.iter().copied().min().unwrap_or(Tier::T0);
    let tier = tier.unwrap_or(lowest);
    let mut checks = Vec::new();
    macro_rules! check {
        ($style:expr, $name:literal, $story:expr) => {{
            let check = judge($style, $name, $story).await;
            told(&check);
            checks.push(check);
        }};
    }
    check!(None, "unknown settings are refused", checks::unknown_settings_are_refused(target));
    check!(None, "nobody there is an error", checks::unreachable_server_is_an_error(target));
    check!(None, "a wrong password is an error", checks::wrong_password_is_an_error(target));
    for &style in about.styles {
        let scene = || Scene::new(target, &about, style, tier);
        let some = Some(style);
        check!(some, "what is sent is received", checks::sent_messages_are_received(scene()));
        check!(some, "bodies come whole", checks::bodies_arrive_intact(scene()));
        check!(some, "what is posted is confirmed", checks::posted_messages_are_confirmed(scene()));
        check!(
            some,
            "received is hidden from others",
            checks::received_messages_are_hidden(scene())
        );
        check!(some, "settled does not come again", checks::settled_messages_are_gone(scene()));
        check!(some, "released comes again", checks::released_messages_are_redelivered(scene()));
        check!(
            some,
            "a closed receiver gives back",
            checks::closed_receiver_returns_its_messages(scene())
        );
        check!(some, "waiting can be given up", checks::waiting_receive_is_cancellable(scene()));
        check!(some, "a lease that ends gives back", checks::expired_lease_redelivers(scene()));
        check!(some, "lanes are in order", checks::lanes_are_in_order(scene()));
        check!(some, "each subscription gets all", checks::subscriptions_get_all(scene()));
        check!(some, "survives a reconnect", checks::survives_a_reconnect(scene()));
    }
    Ok(Conformance {
        system: about.system.into(),
        title: about.title.into(),
        version,
        client: about.client.into(),
        tier,
        checks,
    })
}

async fn judge(style: Option<Style>, name: &str, story: impl Future<Output = Story>) -> Check {
    let started = Instant::now();
    let outcome = match tokio::time::timeout(CHECK_TIME_MAX, story).await {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Fault::NoSuchThing(why))) => Outcome::Skipped(why),
        Ok(Err(Fault::Wrong(why))) => Outcome::Failed(why),
        Err(_) => Outcome::Failed(format!("took longer than {CHECK_TIME_MAX:?}")),
    };
    let style = match style {
        None => "",
        Some(Style::Queue) => "queue",
        Some(Style::Log) => "log",
    };
    let seconds = started.elapsed().as_secs_f64();
    Check { style: style.into(), name: name.into(), outcome, seconds }
}

fn skip(about: &About, what: &str) -> Story {
    Err(Fault::NoSuchThing(format!("{} has no {what}", about.system)))
}

fn wrong<T>(what: impl Display) -> Result<T, Fault> {
    Err(Fault::Wrong(what.to_string()))
}
