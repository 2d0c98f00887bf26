//! RabbitMQ's rules, apart from how they are said on a wire: what its clients may declare and publish, with which
//! rights, and in which words something is refused. AMQP 0-9-1 and the management API are two ways to them.
//!
//! * [`declarations`]: what a client may declare. The entities themselves are `topology`'s
//! * [`rights`]: what a user may do; who users are is `access`'s
//! * [`publishing`], [`publisher`], [`body`]: from a message to the batches that are appended
//! * [`rerouting`]: messages whose queue was gone
//! * [`dead_letter`]: the way of dead letters
//! * [`live`]: what sessions have open, for those who look
//! * [`errors`]: what a client is told when something is refused; [`table`], [`erlang`]: values in RabbitMQ's texts

pub mod body;
pub mod dead_letter;
pub mod declarations;
pub mod erlang;
pub mod errors;
pub mod live;
pub mod publisher;
pub mod publishing;
pub mod rerouting;
pub mod rights;
pub mod table;

pub use body::{ArrivingBody, Body};
pub use errors::{Exception, ReplyCode, Resource};
