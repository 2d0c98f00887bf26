//! What a client may declare, and how: the topology's entities as AMQP 0-9-1 and RabbitMQ's
//! extensions have them. The entities themselves are `topology`'s; here is what a client sees of
//! them: the checks of a declaration in RabbitMQ's order, and its words where one is refused
//! (`rabbit_channel`, `rabbit_exchange`, `rabbit_binding`, `rabbit_amqqueue`).
//!
//! * [`exchanges`], [`queues`], [`bindings`]: declare, delete, bind
//! * `arguments`: what a queue's arguments may be; `values`: how they are compared and shown
//! * `refusals`: why the topology refuses, as exceptions
//! * `message`: a message as routing looks at it

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

/// Line ends do not belong to names.
fn without_line_ends(name: &str) -> String {
    name.replace(['\r', '\n'], "")
}

fn refuse_default(exchange: &str) -> Result<(), Exception> {
    if exchange.is_empty() { Err(ChangeError::DefaultExchange.into()) } else { Ok(()) }
}
