//! RabbitMQ's limits: connections and channels of a user, connections and queues of a virtual host. All of them are
//! in one document; a limit is deleted with its user or virtual host.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::Broker;
use documents::WritePrecondition;
use documents::store::{put, read};
use serde::{Deserialize, Serialize};

use super::Users;
use crate::error::{OpenError, UserError};

pub(crate) const SPACE: &str = "access.limits";
const DOCUMENT: &str = "rabbitmq";

/// Limited resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    MaxConnections,
    /// Applies to users.
    MaxChannels,
    /// Applies to virtual hosts.
    MaxQueues,
}

/// The user or virtual host that a limit applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitTarget<'a> {
    User(&'a str),
    VirtualHost(&'a str),
}

impl LimitTarget<'_> {
    fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::VirtualHost(name) => name,
        }
    }

    /// Parses the name of a limit that applies to this kind.
    pub fn limit(&self, word: &str) -> Option<Limit> {
        match (self, word) {
            (_, "max-connections") => Some(Limit::MaxConnections),
            (Self::User(_), "max-channels") => Some(Limit::MaxChannels),
            (Self::VirtualHost(_), "max-queues") => Some(Limit::MaxQueues),
            _ => None,
        }
    }
}

impl Limit {
    /// RabbitMQ's name of it.
    pub fn word(self) -> &'static str {
        match self {
            Self::MaxConnections => "max-connections",
            Self::MaxChannels => "max-channels",
            Self::MaxQueues => "max-queues",
        }
    }
}

/// Limits that are set; a negative value means no limit.
pub type LimitsSet = BTreeMap<Limit, i64>;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    #[serde(default)]
    pub users: BTreeMap<String, LimitsSet>,
    #[serde(default)]
    pub virtual_hosts: BTreeMap<String, LimitsSet>,
}

impl Limits {
    pub fn of(&self, of: LimitTarget<'_>) -> Option<&LimitsSet> {
        match of {
            LimitTarget::User(name) => self.users.get(name),
            LimitTarget::VirtualHost(name) => self.virtual_hosts.get(name),
        }
    }

    fn all_of(&mut self, of: LimitTarget<'_>) -> &mut BTreeMap<String, LimitsSet> {
        match of {
            LimitTarget::User(_) => &mut self.users,
            LimitTarget::VirtualHost(_) => &mut self.virtual_hosts,
        }
    }
}

/// The limits in the document, and its version.
fn current(broker: &Broker) -> Result<(u64, Limits), OpenError> {
    let found = read::<Limits>(broker, SPACE, DOCUMENT)?;
    Ok(found.map_or_else(Default::default, |found| (found.stored.version, found.body)))
}

impl Users {
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.0.limits.read())
    }

    /// The limit in effect; `None`: unlimited.
    pub fn limit(&self, of: LimitTarget<'_>, limit: Limit) -> Option<u64> {
        let limits = self.0.limits.read();
        u64::try_from(*limits.of(of)?.get(&limit)?).ok()
    }

    /// Sets a limit; `None` removes it. Returns whether anything changed.
    pub async fn set_limit(
        &self,
        of: LimitTarget<'_>,
        limit: Limit,
        value: Option<i64>,
    ) -> Result<bool, UserError> {
        self.change_limits(|limits| {
            let all = limits.all_of(of);
            match value {
                Some(value) => {
                    all.entry(of.name().to_owned()).or_default().insert(limit, value);
                }
                None => {
                    let Some(set) = all.get_mut(of.name()) else { return };
                    set.remove(&limit);
                    if set.is_empty() {
                        all.remove(of.name());
                    }
                }
            }
        })
        .await
    }

    /// Removes the limits of a deleted user or virtual host.
    pub(crate) async fn forget_limits(&self, of: LimitTarget<'_>) -> Result<(), UserError> {
        if self.limits().of(of).is_none() {
            return Ok(());
        }
        let forget = |limits: &mut Limits| drop(limits.all_of(of).remove(of.name()));
        self.change_limits(forget).await.map(drop)
    }

    async fn change_limits(&self, change: impl Fn(&mut Limits)) -> Result<bool, UserError> {
        self.catch_up().await?;
        loop {
            let (version, before) = current(self.broker())?;
            let mut limits = before.clone();
            change(&mut limits);
            if limits == before {
                return Ok(false);
            }
            let (name, expect) = (DOCUMENT.to_owned(), WritePrecondition::Version(version));
            match put(self.broker(), SPACE, name, &limits, expect).await {
                Err(error) if error.is_conflict() => {}
                written => {
                    written?;
                    self.read_limits()?;
                    return Ok(true);
                }
            }
        }
    }

    /// Reads the document into memory.
    pub(crate) fn read_limits(&self) -> Result<(), OpenError> {
        // Under the lock, so that older state never replaces newer.
        let mut limits = self.0.limits.write();
        *limits = Arc::new(current(self.broker())?.1);
        Ok(())
    }
}
