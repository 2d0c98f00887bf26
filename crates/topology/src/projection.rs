//! Memory follows the documents. After a change was committed, its author applies all changed documents to memory, in
//! the order of the log and including its own. A task applies the changes of other nodes. Nothing else changes
//! vhosts, exchanges, declared queues, bindings and policies in memory.
//!
//! The input is state and not history: a changed document is read in its newest version. All changed documents are
//! read at one moment, and entities before their bindings. A binding's document names the identity of its ends
//! ([`crate::store::BindingEnds`]). A document whose ends do not exist is *stale*: it does not route, and is deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use broker::{DocumentChanges, DocumentNames, DocumentWatch};
use documents::MalformedDocument;
use documents::store::Raw;
use operations::amqp::PolicyDefinition;
use serde::de::DeserializeOwned;

use crate::exchange::{Destination, Exchange, ExchangeKind, NewExchange};
use crate::names::DEFAULT_VHOST;
use crate::policy::{Policy, PolicyError, PolicyScope, Subject};
use crate::queue::{Owner, OwnerId, Queue, QueueSettings, queue_name};
use crate::store::{
    BINDINGS, BindingsDocument, DocumentId, EXCHANGES, ExchangeDocument, OPERATOR_POLICIES,
    OwnerDocument, POLICIES, QUEUES, QueueDocument, Run, SPACES, USES, UseDocument, VHOST_METADATA,
    VHOSTS, bindings_name, policy_space,
};
use crate::topics;
use crate::virtual_host::{METADATA_NAME, Registry, VirtualHost};

/// A document that this version cannot use.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error(transparent)]
    Malformed(#[from] MalformedDocument),
    #[error("document {name:?} in {space} is of no use: {reason}")]
    Inconsistent { space: &'static str, name: String, reason: String },
    #[error("policy {name:?} does not hold any more: {source}")]
    Policy { name: String, source: Box<PolicyError> },
}

/// The current version of a changed document; `None`: deleted.
struct ChangedDocument {
    id: DocumentId,
    parts: Vec<String>,
    document: Option<Raw>,
}

impl ChangedDocument {
    fn part(&self, place: usize) -> Result<&str, DocumentError> {
        let part = self.parts.get(place).map(String::as_str);
        part.ok_or_else(|| self.inconsistent("its name has too few parts"))
    }

    fn inconsistent(&self, reason: &str) -> DocumentError {
        let (space, name) = (self.id.0, self.id.1.to_string());
        DocumentError::Inconsistent { space, name, reason: reason.to_owned() }
    }

    /// Decodes the document with its version; `None`: it was deleted.
    fn read<T: DeserializeOwned>(&self) -> Result<Option<(T, u64)>, DocumentError> {
        let Some(raw) = &self.document else { return Ok(None) };
        let found = documents::store::decode(self.id.0, self.id.1.to_string(), raw.clone())?;
        Ok(Some((found.body, found.stored.version)))
    }
}

impl Registry {
    /// Applies all changed documents to memory. Unreadable documents are logged and skipped.
    pub(crate) fn catch_up(&self) {
        for error in self.project() {
            // A later version may have written it.
            tracing::error!(%error, "what was declared is passed over");
        }
    }

    /// Like [`Registry::catch_up`]. Returns the errors of unreadable documents.
    pub(crate) fn project(&self) -> Vec<DocumentError> {
        let watch = self.watch.lock();
        let names = match watch.take() {
            DocumentChanges::Named(names) if names.is_empty() => return Vec::new(),
            DocumentChanges::Named(names) => names,
            DocumentChanges::All => self.all_names(),
        };
        let mut changed = self.read(names);
        // A vhost precedes its contents, and entities precede their bindings.
        changed.sort_by_key(|it| SPACES.iter().position(|space| *space == it.id.0));
        let mut errors = Vec::new();
        let mut policed = BTreeSet::new();
        for changed in &changed {
            let done = match changed.id.0 {
                VHOSTS => self.project_vhost(changed),
                VHOST_METADATA => self.project_metadata(changed),
                POLICIES => self.project_policy(PolicyScope::User, changed, &mut policed),
                OPERATOR_POLICIES => {
                    self.project_policy(PolicyScope::Operator, changed, &mut policed)
                }
                EXCHANGES => self.project_exchange(changed),
                QUEUES => self.project_queue(changed),
                USES => self.project_use(changed),
                _ => self.project_bindings(changed),
            };
            errors.extend(done.err());
        }
        for vhost in policed.iter().filter_map(|name| self.vhost(name)) {
            vhost.take_policies();
        }
        errors
    }

    /// Names of all existing documents, and of all that memory contains.
    fn all_names(&self) -> DocumentNames {
        let mut names = DocumentNames::new();
        {
            let catalog = self.broker.catalog();
            for space in SPACES {
                let documents = catalog.documents(space);
                names.extend(documents.map(|(name, _)| (*space, Arc::from(name))));
            }
        }
        let mut add = |space, parts: &[&str]| {
            names.insert((space, Arc::from(documents::join(parts))));
        };
        for vhost in self.all_vhosts() {
            let name = vhost.name();
            add(VHOSTS, &[name]);
            add(VHOST_METADATA, &[name, METADATA_NAME]);
            let entities = vhost.entities().read();
            for scope in [PolicyScope::User, PolicyScope::Operator] {
                let policies = entities.policies.list(scope).iter();
                policies.for_each(|policy| add(policy_space(scope), &[name, &policy.name]));
            }
            let exchanges = entities.exchanges().filter(|exchange| exchange.version != 0);
            exchanges.for_each(|exchange| add(EXCHANGES, &[name, &exchange.name]));
            let queues = entities.queues().filter(|queue| queue.declared);
            queues.for_each(|queue| add(QUEUES, &[name, &queue.name]));
        }
        for vhost in self.all_vhosts() {
            let entities = vhost.entities().read();
            for ((source, destination), pair) in &entities.pairs {
                names.extend(pair.chunks.keys().map(|number| {
                    let name = bindings_name(vhost.name(), source, destination, *number);
                    (BINDINGS, Arc::from(name))
                }));
            }
        }
        self.shared.kept.add_names_to(&mut names);
        names
    }

    fn read(&self, names: DocumentNames) -> Vec<ChangedDocument> {
        let catalog = self.broker.catalog();
        let read = names.into_iter().map(|id| {
            let found = catalog.document(id.0, &id.1);
            let document = found.map(|found| (found.version, Arc::clone(&found.body)));
            ChangedDocument { parts: documents::split(&id.1), id, document }
        });
        read.collect()
    }

    fn project_vhost(&self, changed: &ChangedDocument) -> Result<(), DocumentError> {
        let name = changed.part(0)?;
        if name == DEFAULT_VHOST {
            return Ok(());
        }
        let version = changed.document.as_ref().map_or(0, |(version, _)| *version);
        let known = self.vhost(name).map_or(0, |vhost| vhost.version());
        if version == known {
            return Ok(());
        }
        let mut vhosts = self.vhosts.write();
        match version {
            0 => drop(vhosts.remove(name)),
            version => {
                let vhost = VirtualHost::new(name, version, &self.broker, &self.shared);
                vhosts.insert(Arc::from(name), vhost);
            }
        }
        drop(vhosts);
        if known != 0 {
            // Sessions of the vhost must close their connections.
            self.note_change();
        }
        Ok(())
    }

    /// The vhost of a document. Without it, the document is stale.
    fn vhost_of(&self, changed: &ChangedDocument) -> Result<Option<VirtualHost>, DocumentError> {
        let vhost = self.vhost(changed.part(0)?);
        let version = changed.document.as_ref().map(|(version, _)| *version);
        self.shared.kept.set_stale(&changed.id, version.filter(|_| vhost.is_none()));
        if vhost.is_none() {
            self.shared.kept.set_run(&changed.id, None);
        }
        Ok(vhost)
    }

    fn project_metadata(&self, changed: &ChangedDocument) -> Result<(), DocumentError> {
        let Some(vhost) = self.vhost_of(changed)? else { return Ok(()) };
        let (metadata, version) = changed.read()?.unwrap_or_default();
        vhost.take_metadata(metadata, version);
        Ok(())
    }

    fn project_policy(
        &self,
        scope: PolicyScope,
        changed: &ChangedDocument,
        policed: &mut BTreeSet<Arc<str>>,
    ) -> Result<(), DocumentError> {
        let Some(vhost) = self.vhost_of(changed)? else { return Ok(()) };
        let name = changed.part(1)?;
        match changed.read::<PolicyDefinition>()? {
            None => drop(vhost.entities().write().policies.remove(scope, name)),
            Some((set, version)) => {
                let mut policy = Policy::new(scope, name, set).map_err(|source| {
                    DocumentError::Policy { name: name.to_owned(), source: source.into() }
                })?;
                policy.version = version;
                vhost.entities().write().policies.set(scope, policy);
            }
        }
        policed.insert(Arc::clone(vhost.shared_name()));
        Ok(())
    }

    fn project_exchange(&self, changed: &ChangedDocument) -> Result<(), DocumentError> {
        let Some(vhost) = self.vhost_of(changed)? else { return Ok(()) };
        let name = changed.part(1)?;
        let read = changed.read::<ExchangeDocument>()?;
        let owner =
            read.as_ref().and_then(|(document, _)| self.owner(document.owner, document.durable));
        self.shared.kept.set_run(&changed.id, owner.map(|owner| owner.run));
        let mut entities = vhost.entities().write();
        let known = entities.exchange(name).map(|exchange| exchange.version);
        let version = read.as_ref().map_or(0, |(_, version)| *version);
        // A predeclared exchange has no document.
        if known == Some(version) || known == Some(0) {
            return Ok(());
        }
        self.note_stale(entities.chunks_of(&Destination::Exchange(Arc::from(name))));
        entities.remove_exchange(name);
        let Some((document, version)) = read else { return Ok(()) };
        let kind = ExchangeKind::named(&document.kind).ok_or_else(|| {
            changed.inconsistent(&format!("unknown exchange type '{}'", document.kind))
        })?;
        let new = NewExchange {
            name,
            kind,
            durable: document.durable,
            auto_delete: document.auto_delete,
            internal: document.internal,
            arguments: &document.arguments,
        };
        entities.add_exchange(Exchange::new(vhost.shared_name(), &new, version));
        Ok(())
    }

    /// Marks documents of bindings as stale when one of their ends is removed. Those deleted in the same change are
    /// among the changed documents, which are applied after the entities.
    fn note_stale(&self, chunks: Vec<(String, u64)>) {
        for (name, version) in chunks {
            self.shared.kept.set_stale(&(BINDINGS, Arc::from(name)), Some(version));
        }
    }

    /// The owner of a transient entity. A document without one was written by a version that knew a single node and
    /// did not count its runs.
    fn owner(&self, owner: Option<OwnerDocument>, durable: bool) -> Option<OwnerDocument> {
        let earlier = Run { node: self.run.node, boot: 0 };
        let unknown = || OwnerDocument { run: earlier, connection: None };
        (!durable).then(|| owner.unwrap_or_else(unknown))
    }

    fn project_queue(&self, changed: &ChangedDocument) -> Result<(), DocumentError> {
        let Some(vhost) = self.vhost_of(changed)? else { return Ok(()) };
        let name = changed.part(1)?;
        let read = changed.read::<QueueDocument>()?;
        let owner =
            read.as_ref().and_then(|(document, _)| self.owner(document.owner, document.durable));
        self.shared.kept.set_run(&changed.id, owner.map(|owner| owner.run));
        let known = vhost.entities().read().queue_entry(name).map(|entry| entry.version);
        let version = read.as_ref().map_or(0, |(_, version)| *version);
        if known == Some(version) {
            return Ok(());
        }
        if known.is_some_and(|version| version != 0) {
            let end = Destination::Queue(Arc::from(name));
            self.note_stale(vhost.entities().read().chunks_of(&end));
            vhost.forget(name);
        }
        let Some((document, version)) = read else { return Ok(()) };
        let topic = topics::named(&self.broker, document.topic(name));
        let Some(topic) = topic.filter(|topic| document.is_of(&topic.uuid)) else {
            // Another protocol deleted the topic.
            self.shared.kept.set_stale(&changed.id, Some(version));
            return Ok(());
        };
        let kind = document.kind();
        let owner = owner.and_then(|owner| {
            let connection = owner.connection.map(OwnerId)?;
            Some(if owner.run == self.run { Owner::Here(connection) } else { Owner::Elsewhere })
        });
        let values = &self.shared.values;
        let mut entities = vhost.entities().write();
        let policies = entities.policies.find(Subject::Queue(name, kind));
        let settings = QueueSettings::new(kind, &document.arguments, &policies);
        let queue = Arc::new(Queue::new(
            vhost.shared_name(),
            queue_name(name, &topic.name),
            (topic.id, Arc::clone(&topic.name)),
            kind,
            (document.durable, document.auto_delete),
            owner,
            values.arguments(document.arguments),
            true,
            values.settings(settings),
        ));
        topic.group.iter().for_each(|group| queue.set_group(*group));
        // It may have been known as a topic of another protocol.
        entities.remove_queue(name);
        entities.add_queue(Arc::clone(&queue), version);
        drop(entities);
        self.shared.expiry.watch(&queue);
        Ok(())
    }

    fn project_use(&self, changed: &ChangedDocument) -> Result<(), DocumentError> {
        if self.vhost_of(changed)?.is_some() {
            let read = changed.read::<UseDocument>()?;
            self.shared.kept.set_run(&changed.id, read.map(|(document, _)| document.run));
        }
        Ok(())
    }

    fn project_bindings(&self, changed: &ChangedDocument) -> Result<(), DocumentError> {
        let Some(vhost) = self.vhost_of(changed)? else { return Ok(()) };
        let (source, name) = (Arc::from(changed.part(1)?), Arc::from(changed.part(3)?));
        let destination = match changed.part(2)? {
            "queue" => Destination::Queue(name),
            "exchange" => Destination::Exchange(name),
            _ => return Err(changed.inconsistent("it leads neither to a queue nor an exchange")),
        };
        let number = changed.part(4)?.parse();
        let number = number.map_err(|_| changed.inconsistent("it has no number"))?;
        let read = changed.read::<BindingsDocument>()?;
        if let (Destination::Queue(name), true) = (&destination, read.is_some()) {
            vhost.adopt(name);
        }
        let version = read.as_ref().map(|(_, version)| *version);
        let is_theirs = vhost.entities().write().set_chunk(&source, &destination, number, read);
        self.shared.kept.set_stale(&changed.id, version.filter(|_| !is_theirs));
        Ok(())
    }
}

/// Applies the changes of all nodes, until the topology is dropped.
pub(crate) async fn run(topology: Weak<Registry>, more: DocumentWatch) {
    while more.changed().await {
        more.take();
        let Some(topology) = topology.upgrade() else { return };
        topology.catch_up();
    }
}
