//! Adds and removes bindings of a virtual host.
//!
//! The existence of both ends is a condition of a new binding. The deletion of an end deletes the bindings that its
//! node knows. A binding that another node adds at that moment names a deleted end, and does not route.

use broker::Check;
use documents::{Change, WritePrecondition};
use values::Table;

use super::{AttemptOutcome, Attempts, refuse_default};
use crate::arguments::sorted;
use crate::entities::{BindingPlan, Entities};
use crate::error::{BindingError, ChangeError, Entity};
use crate::exchange::{Destination, ExchangeKind};
use crate::matched::matched;
use crate::queue::OwnerId;
use crate::store::{BINDINGS, EXCHANGES};
use crate::stripes::{Access, Key, StripeGuard};
use crate::virtual_host::VirtualHost;

/// A binding to be added or removed.
#[derive(Clone, Copy, Debug)]
pub struct BindingRequest<'a> {
    pub source: &'a str,
    pub destination: &'a Destination,
    pub key: &'a str,
    pub arguments: &'a Table,
}

impl VirtualHost {
    /// Binds a queue or an exchange to an exchange. `user` must own the queue, if that has an owner.
    pub async fn bind(
        &self,
        user: OwnerId,
        request: BindingRequest<'_>,
    ) -> Result<(), ChangeError> {
        let BindingRequest { source, destination, .. } = request;
        refuse_default_ends(source, destination)?;
        let _held = self.lock_binding(source, destination).await;
        let (mut attempts, mut is_current) = (Attempts::default(), false);
        loop {
            self.catch_up();
            if self.check_ends(source, destination).is_err() {
                self.refresh().await?;
            }
            self.check_ends(source, destination)?;
            let Some(plan) = self.plan_bind(user, &request)? else {
                if std::mem::replace(&mut is_current, true) {
                    return Ok(());
                }
                // Another node may have removed the binding in this node's memory.
                self.refresh().await?;
                continue;
            };
            let mut change = Change::new();
            let stale = || self.shared().kept.stale_version(BINDINGS, &plan.name);
            let version = plan.version.unwrap_or_else(stale);
            self.check_same_ends(&plan, source, destination, &mut change);
            change.put(BINDINGS, plan.name, &plan.document, WritePrecondition::Version(version))?;
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    fn plan_bind(
        &self,
        user: OwnerId,
        request: &BindingRequest<'_>,
    ) -> Result<Option<BindingPlan>, ChangeError> {
        let BindingRequest { source, destination, key, arguments } = *request;
        let arguments = sorted(arguments);
        let entities = self.entities().read();
        let Some(exchange) = entities.exchange(source) else {
            return Err(not_found(Entity::exchange(source, self.name())));
        };
        matched(&exchange.matching(), key, &arguments)?;
        let only_queues = exchange.kind == ExchangeKind::LocalRandom;
        if only_queues && matches!(destination, Destination::Exchange(_)) {
            return Err(BindingError::QueuesOnly.into());
        }
        check_destination(&entities, user, destination)?;
        Ok(entities.plan_bind(exchange, destination, key, &arguments))
    }

    fn check_same_ends(
        &self,
        plan: &BindingPlan,
        source: &str,
        destination: &Destination,
        change: &mut Change,
    ) {
        let exchange = |name: &str| documents::join(&[self.name(), name]);
        // A predeclared exchange always exists.
        if plan.ends.source != 0 {
            change.check_version(EXCHANGES, exchange(source), plan.ends.source);
        }
        match destination {
            Destination::Queue(_) => {
                // The value was a topic id when the ends were read.
                let topic = u32::try_from(plan.ends.destination).unwrap_or(u32::MAX);
                change.check(Check::Topic(base::TopicId(topic)));
            }
            Destination::Exchange(name) if plan.ends.destination != 0 => {
                change.check_version(EXCHANGES, exchange(name), plan.ends.destination);
            }
            Destination::Exchange(_) => {}
        }
    }

    /// Removes a binding. A missing binding counts as removed.
    pub async fn unbind(
        &self,
        user: OwnerId,
        request: BindingRequest<'_>,
    ) -> Result<(), ChangeError> {
        let BindingRequest { source, destination, key, .. } = request;
        refuse_default_ends(source, destination)?;
        let _held = self.lock_binding(source, destination).await;
        let arguments = sorted(request.arguments);
        let plan = || {
            let entities = self.entities().read();
            entities.plan_unbind(entities.exchange(source)?, destination, key, &arguments)
        };
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            let known = plan();
            if known.is_none() {
                self.refresh().await?;
            }
            let Some(plan) = known.or_else(plan) else { return Ok(()) };
            check_destination(&self.entities().read(), user, destination)?;
            let mut change = Change::new();
            match plan.document.bindings.is_empty() {
                true if plan.is_last => {
                    let removal =
                        self.entities().read().plan_pair_removal(&source.into(), destination);
                    removal.add_to(self.name(), &mut change);
                }
                true => change.delete(&plan.stored()),
                false => {
                    let expect = WritePrecondition::Version(plan.version.unwrap_or(0));
                    change.put(BINDINGS, plan.name.clone(), &plan.document, expect)?;
                }
            }
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    async fn lock_binding(&self, source: &str, destination: &Destination) -> Vec<StripeGuard<'_>> {
        let end = match destination {
            Destination::Queue(name) => Key::Queue(name),
            Destination::Exchange(name) => Key::Exchange(name),
        };
        let pair = Key::Pair(source, destination);
        let keys =
            [(Key::Exchange(source), Access::Keep), (end, Access::Keep), (pair, Access::Change)];
        self.lock(&keys).await
    }

    fn check_ends(&self, source: &str, destination: &Destination) -> Result<(), ChangeError> {
        let vhost = self.name();
        if let Destination::Queue(name) = destination {
            self.adopt(name);
        }
        let entities = self.entities().read();
        if entities.exchange(source).is_none() {
            return Err(not_found(Entity::exchange(source, vhost)));
        }
        match destination {
            Destination::Queue(name) if entities.queue(name).is_none() => {
                Err(not_found(Entity::queue(name, vhost)))
            }
            Destination::Exchange(name) if entities.exchange(name).is_none() => {
                Err(not_found(Entity::exchange(name, vhost)))
            }
            _ => Ok(()),
        }
    }
}

fn not_found(entity: Entity) -> ChangeError {
    ChangeError::NotFound(entity)
}

fn check_destination(
    entities: &Entities,
    user: OwnerId,
    destination: &Destination,
) -> Result<(), ChangeError> {
    match destination {
        Destination::Queue(name) => {
            entities.queue(name).map_or(Ok(()), |queue| queue.check_owner(user))
        }
        Destination::Exchange(_) => Ok(()),
    }
}

fn refuse_default_ends(source: &str, destination: &Destination) -> Result<(), ChangeError> {
    if let Destination::Exchange(name) = destination {
        refuse_default(name)?;
    }
    refuse_default(source)
}
