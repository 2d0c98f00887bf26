//! The methods that declare and delete queues, exchanges and bindings: decodes them, applies them to the topology,
//! and encodes the replies.

use std::sync::Arc;

use access::Operation;
use access::user_limits::{Limit, LimitTarget};
use topology::{BindingRequest, Destination};

use crate::codec::fields::EncodedTable;
use crate::codec::methods::{
    ExchangeBind, ExchangeBindOk, ExchangeDeclare, ExchangeDeclareOk, ExchangeDelete,
    ExchangeDeleteOk, ExchangeUnbind, ExchangeUnbindOk, QueueBind, QueueBindOk, QueueDeclare,
    QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk, QueueUnbind, QueueUnbindOk,
};
use crate::codec::table::{FieldTable, FieldValue};
use crate::declarations::{ExchangeDeclaration, QueueDeclaration, bindings, exchanges, queues};
use crate::errors::{Exception, ReplyCode, Resource};
use crate::failure::table;
use crate::gateway::replies::{REPLY_TO, REPLY_TO_PREFIX};
use crate::session::Session;
use crate::session::operation::{OperationResult, replied};

/// A requested binding, for [`Session::change_binding`].
struct Binding<'a> {
    source: &'a str,
    destination: Destination,
    key: &'a str,
    arguments: EncodedTable<'a>,
    removes: bool,
}

impl Session {
    // -------------------------------------------------------------------------- exchanges

    pub(crate) fn declare_exchange(
        &mut self,
        number: u16,
        declare: &ExchangeDeclare<'_>,
    ) -> Result<(), Exception> {
        let (_, vhost, _) = self.at_hand()?;
        let (name, kind) = (declare.exchange.to_owned(), declare.kind.to_owned());
        let arguments = table(declare.arguments)?;
        let (passive, no_wait) = (declare.passive, declare.no_wait);
        let (durable, auto_delete) = (declare.durable, declare.auto_delete);
        let internal = declare.internal;
        let rights = self.rights()?;
        match passive {
            true => self.check_exchange(Operation::Describe, &name)?,
            false => self.check_exchange(Operation::DeclareExchange, &name)?,
        }
        let future = async move {
            if passive {
                exchanges::check(&vhost, &name).await?;
            } else {
                if let Some(alternate) = text(&arguments, "alternate-exchange")
                    && exchanges::check(&vhost, &name).await.is_err()
                {
                    let own = Resource::exchange(&name, vhost.name());
                    rights.check_forwarding(own, alternate)?;
                }
                let declaration = ExchangeDeclaration {
                    name: &name,
                    kind: &kind,
                    durable,
                    auto_delete,
                    internal,
                    arguments: &arguments,
                };
                exchanges::declare(&vhost, declaration).await?;
            }
            Ok(replied(number, no_wait, ExchangeDeclareOk::default()))
        };
        self.begin(number, ExchangeDeclare::ID, future);
        Ok(())
    }

    pub(crate) fn delete_exchange(
        &mut self,
        number: u16,
        delete: &ExchangeDelete<'_>,
    ) -> Result<(), Exception> {
        let (_, vhost, _) = self.at_hand()?;
        let name = delete.exchange.to_owned();
        // Built-in exchanges are rejected as such later, for every user.
        if !name.starts_with("amq.") {
            self.check_exchange(Operation::DeleteExchange, &name)?;
        }
        let (if_unused, no_wait) = (delete.if_unused, delete.no_wait);
        let future = async move {
            exchanges::delete(&vhost, &name, if_unused).await?;
            Ok(replied(number, no_wait, ExchangeDeleteOk::default()))
        };
        self.begin(number, ExchangeDelete::ID, future);
        Ok(())
    }

    pub(crate) fn bind_exchange(
        &mut self,
        number: u16,
        bind: &ExchangeBind<'_>,
    ) -> Result<(), Exception> {
        let binding = Binding {
            source: bind.source,
            destination: Destination::Exchange(bind.destination.into()),
            key: bind.routing_key,
            arguments: bind.arguments,
            removes: false,
        };
        let done = replied(number, bind.no_wait, ExchangeBindOk::default());
        self.change_binding(number, ExchangeBind::ID, binding, done)
    }

    pub(crate) fn unbind_exchange(
        &mut self,
        number: u16,
        unbind: &ExchangeUnbind<'_>,
    ) -> Result<(), Exception> {
        let binding = Binding {
            source: unbind.source,
            destination: Destination::Exchange(unbind.destination.into()),
            key: unbind.routing_key,
            arguments: unbind.arguments,
            removes: true,
        };
        let done = replied(number, unbind.no_wait, ExchangeUnbindOk::default());
        self.change_binding(number, ExchangeUnbind::ID, binding, done)
    }

    // ----------------------------------------------------------------------------- queues

    pub(crate) fn declare_queue(
        &mut self,
        number: u16,
        declare: &QueueDeclare<'_>,
    ) -> Result<(), Exception> {
        let (_, vhost, id) = self.at_hand()?;
        let no_wait = declare.no_wait;
        if declare.queue == REPLY_TO || declare.queue.starts_with(REPLY_TO_PREFIX) {
            return self.declare_reply_queue(number, declare);
        }
        let name = declare.queue.to_owned();
        let arguments = table(declare.arguments)?;
        let (passive, durable) = (declare.passive, declare.durable);
        let (exclusive, auto_delete) = (declare.exclusive, declare.auto_delete);
        let rights = self.rights()?;
        let charged = self.charged();
        let most =
            self.gateway.users.limit(LimitTarget::VirtualHost(vhost.name()), Limit::MaxQueues);
        if passive {
            self.check_queue(Operation::Describe, &name)?;
        } else {
            // Stands for the name that the server generates later.
            let made_up =
                if name.is_empty() { vhost.generated_queue_name() } else { String::new() };
            let checked = if name.is_empty() { &made_up } else { &name };
            self.check_queue(Operation::Create, checked)?;
        }
        let future = async move {
            let queue = if passive {
                let queue = queues::check(&vhost, id, &name).await?;
                vhost.use_queue(&queue).await?;
                queue
            } else {
                if let Some(dead_letters) = text(&arguments, "x-dead-letter-exchange")
                    && vhost.find_queue(&name).is_none()
                {
                    let own = Resource::queue(&name, vhost.name());
                    rights.check_forwarding(own, dead_letters)?;
                }
                let declaration = QueueDeclaration {
                    name: &name,
                    durable,
                    exclusive,
                    auto_delete,
                    arguments: &arguments,
                };
                let declared = queues::declare(&vhost, id, declaration, most).await?;
                if declared.is_new {
                    charged.changed_a_queue();
                }
                declared.queue
            };
            let messages = if no_wait { 0 } else { vhost.message_count(&queue).await? };
            let consumers = if no_wait { 0 } else { vhost.consumer_count(&queue).await };
            Ok(OperationResult::Declared {
                queue: Arc::clone(&queue.name),
                messages,
                consumers,
                no_wait,
            })
        };
        self.begin(number, QueueDeclare::ID, future);
        Ok(())
    }

    /// Such a queue exists while a client consumes it, and has that one consumer.
    fn declare_reply_queue(
        &mut self,
        number: u16,
        declare: &QueueDeclare<'_>,
    ) -> Result<(), Exception> {
        let name = declare.queue;
        if name != REPLY_TO && !self.gateway.replies.exists(name) {
            let (_, vhost, _) = self.at_hand()?;
            return Err(Exception::not_found(Resource::queue(name, vhost.name())));
        }
        let (queue, no_wait) = (Arc::from(name), declare.no_wait);
        let done = OperationResult::Declared { queue, messages: 0, consumers: 1, no_wait };
        self.begin(number, QueueDeclare::ID, std::future::ready(Ok(done)));
        Ok(())
    }

    pub(crate) fn delete_queue(
        &mut self,
        number: u16,
        delete: &QueueDelete<'_>,
    ) -> Result<(), Exception> {
        let (_, vhost, id) = self.at_hand()?;
        let name = self.queue_name(number, delete.queue)?;
        self.check_queue(Operation::Delete, &name)?;
        let (if_unused, if_empty) = (delete.if_unused, delete.if_empty);
        let (no_wait, charged) = (delete.no_wait, self.charged());
        let future = async move {
            let was_there = vhost.find_queue(&name).is_some();
            let messages = queues::delete(&vhost, id, &name, if_unused, if_empty).await?;
            if was_there {
                charged.changed_a_queue();
            }
            let message_count = u32::try_from(messages).unwrap_or(u32::MAX);
            let ok = QueueDeleteOk { message_count, ..QueueDeleteOk::default() };
            Ok(replied(number, no_wait, ok))
        };
        self.begin(number, QueueDelete::ID, future);
        Ok(())
    }

    pub(crate) fn purge_queue(
        &mut self,
        number: u16,
        purge: &QueuePurge<'_>,
    ) -> Result<(), Exception> {
        let (gateway, vhost, id) = self.at_hand()?;
        let name = self.queue_name(number, purge.queue)?;
        self.check_queue(Operation::Purge, &name)?;
        let (no_wait, rights) = (purge.no_wait, self.rights()?);
        let future = async move {
            let purged = queues::purge(&gateway.broker, &vhost, id, &name, &rights).await?;
            let message_count = u32::try_from(purged).unwrap_or(u32::MAX);
            let ok = QueuePurgeOk { message_count, ..QueuePurgeOk::default() };
            Ok(replied(number, no_wait, ok))
        };
        self.begin(number, QueuePurge::ID, future);
        Ok(())
    }

    pub(crate) fn bind_queue(
        &mut self,
        number: u16,
        bind: &QueueBind<'_>,
    ) -> Result<(), Exception> {
        let queue = self.queue_name(number, bind.queue)?;
        // Both are empty: the queue declared last, bound under its own name.
        let key = if bind.queue.is_empty() && bind.routing_key.is_empty() {
            &queue
        } else {
            bind.routing_key
        };
        let binding = Binding {
            source: bind.exchange,
            destination: Destination::Queue(queue.as_str().into()),
            key,
            arguments: bind.arguments,
            removes: false,
        };
        let done = replied(number, bind.no_wait, QueueBindOk::default());
        self.change_binding(number, QueueBind::ID, binding, done)
    }

    pub(crate) fn unbind_queue(
        &mut self,
        number: u16,
        unbind: &QueueUnbind<'_>,
    ) -> Result<(), Exception> {
        let queue = self.queue_name(number, unbind.queue)?;
        let key = if unbind.queue.is_empty() && unbind.routing_key.is_empty() {
            &queue
        } else {
            unbind.routing_key
        };
        let binding = Binding {
            source: unbind.exchange,
            destination: Destination::Queue(queue.as_str().into()),
            key,
            arguments: unbind.arguments,
            removes: true,
        };
        let done = replied(number, false, QueueUnbindOk::default());
        self.change_binding(number, QueueUnbind::ID, binding, done)
    }

    fn change_binding(
        &mut self,
        number: u16,
        method: crate::codec::methods::MethodId,
        binding: Binding<'_>,
        done: OperationResult,
    ) -> Result<(), Exception> {
        let (_, vhost, id) = self.at_hand()?;
        if let Destination::Queue(name) = &binding.destination
            && name.starts_with(REPLY_TO_PREFIX)
        {
            let text = "cannot bind or unbind to a volatile (direct reply-to) queue";
            return Err(Exception::new(ReplyCode::AccessRefused, text));
        }
        self.check_binding(binding.source, &binding.destination)?;
        let (source, key) = (binding.source.to_owned(), binding.key.to_owned());
        let (destination, removes) = (binding.destination, binding.removes);
        let arguments = table(binding.arguments)?;
        let future = async move {
            let request = BindingRequest {
                source: &source,
                destination: &destination,
                key: &key,
                arguments: &arguments,
            };
            if removes {
                bindings::unbind(&vhost, id, request).await?;
            } else {
                bindings::bind(&vhost, id, request).await?;
            }
            Ok(done)
        };
        self.begin(number, method, future);
        Ok(())
    }
}

fn text<'a>(arguments: &'a FieldTable, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(FieldValue::as_str)
}
