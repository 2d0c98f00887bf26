//! Declarations of clients: the topology's entities as defined by AMQP 0-9-1 and RabbitMQ's extensions. The entities
//! themselves are in `topology`. This module has their client side: the checks of a declaration in RabbitMQ's order,
//! and the texts of its refusal (`rabbit_channel`, `rabbit_exchange`, `rabbit_binding`, `rabbit_amqqueue`).
//!
//! * [`exchanges`], [`queues`], [`bindings`]: declare, delete, bind
//! * `arguments`: checks of a queue's arguments; `values`: their comparison and representation
//! * `refusals`: errors of the topology as exceptions
//! * `message`: a message as routing reads it

mod arguments;
pub mod bindings;
pub mod exchanges;
mod message;
pub mod queues;
mod refusals;
mod values;

#[cfg(test)]
mod tests;

pub use exchanges::ExchangeDeclaration;
pub use message::MessageHeaders;
pub use queues::QueueDeclaration;

use topology::ChangeError;

use crate::errors::Exception;

/// Removes line ends, which are not part of a name.
fn without_line_ends(name: &str) -> String {
    name.replace(['\r', '\n'], "")
}

fn refuse_default(exchange: &str) -> Result<(), Exception> {
    if exchange.is_empty() { Err(ChangeError::DefaultExchange.into()) } else { Ok(()) }
}
