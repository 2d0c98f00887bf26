//! Declares and deletes exchanges.

use documents::{Change, StoreError, WritePrecondition};

use super::{AttemptOutcome, Attempts, refuse_default, unless_gone};
use crate::error::{ChangeError, Entity};
use crate::exchange::{Exchange, NewExchange};
use crate::store::{BINDINGS, EXCHANGES, ExchangeDocument, OwnerDocument, prefix};
use crate::stripes::{Access, Key};
use crate::virtual_host::VirtualHost;

/// Prefix of the names of exchanges that clients may neither declare nor delete.
const RESERVED_PREFIX: &str = "amq.";

impl VirtualHost {
    /// Creates an exchange unless one of its name exists. `judge` is called first: with an existing exchange it
    /// decides whether the declaration equals it, without one whether the exchange may be created.
    pub async fn declare_exchange<E: From<ChangeError>>(
        &self,
        new: NewExchange<'_>,
        judge: impl Fn(Option<&Exchange>) -> Result<(), E>,
    ) -> Result<(), E> {
        refuse_default(new.name)?;
        let _held = self.lock(&[(Key::Exchange(new.name), Access::Change)]).await;
        let (mut attempts, mut is_current) = (Attempts::default(), false);
        loop {
            self.catch_up();
            // Another node may have deleted the exchange in this node's memory.
            if self.has_exchange(new.name) && !std::mem::replace(&mut is_current, true) {
                self.refresh().await.map_err(ChangeError::from)?;
                continue;
            }
            if let Some(present) = self.entities().read().exchange(new.name) {
                return judge(Some(present));
            }
            if new.name.starts_with(RESERVED_PREFIX) {
                let entity = Entity::exchange(new.name, self.name());
                return Err(ChangeError::ReservedName(entity).into());
            }
            judge(None)?;
            if let AttemptOutcome::Done = self.create_exchange(&new, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    async fn create_exchange(
        &self,
        new: &NewExchange<'_>,
        attempts: &mut Attempts,
    ) -> Result<AttemptOutcome, ChangeError> {
        let document = ExchangeDocument {
            kind: new.kind.name().to_owned(),
            auto_delete: new.auto_delete,
            internal: new.internal,
            arguments: new.arguments.clone(),
            durable: new.durable,
            owner: match new.durable {
                true => None,
                false => Some(OwnerDocument { run: self.topology()?.run, connection: None }),
            },
        };
        let (mut change, kept) = (Change::new(), documents::join(&[self.name(), new.name]));
        let expect = WritePrecondition::Version(self.shared().kept.stale_version(EXCHANGES, &kept));
        change.put(EXCHANGES, kept, &document, expect)?;
        self.make(change, attempts).await
    }

    /// Deletes an exchange and its bindings. A missing exchange counts as deleted.
    pub async fn delete_exchange(&self, name: &str, if_unused: bool) -> Result<(), ChangeError> {
        refuse_default(name)?;
        if name.starts_with(RESERVED_PREFIX) {
            return Err(ChangeError::SystemExchange(Entity::exchange(name, self.name())));
        }
        let _held = self.lock(&[(Key::Exchange(name), Access::Change)]).await;
        if !self.has_exchange(name) {
            self.refresh().await?;
        }
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            let mut change = Change::new();
            {
                let entities = self.entities().read();
                let Some(removal) = entities.plan_exchange_removal(name) else { return Ok(()) };
                if if_unused && entities.exchange_in_use(name) {
                    return Err(ChangeError::InUse(Entity::exchange(name, self.name())));
                }
                removal.add_to(self.name(), &mut change);
            }
            if if_unused {
                // There must be no binding that this node does not know yet either.
                change.check_under(BINDINGS, prefix(self.name(), name), 0);
            }
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    /// Deletes an exchange whose run has ended.
    pub(crate) async fn delete_left_exchange(&self, name: &str) -> Result<(), StoreError> {
        unless_gone(self.delete_exchange(name, false).await)
    }
}
