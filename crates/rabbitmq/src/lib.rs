//! RabbitMQ's rules, independent of a wire protocol: which declarations and publishes are valid, the rights they
//! need, and the texts of refusals. AMQP 0-9-1 and the management API are two front ends to them.
//!
//! * [`declarations`]: the declarations of a client. The entities themselves are in `topology`
//! * [`rights`]: permission checks; users are managed by `access`
//! * [`publishing`], [`publisher`], [`body`]: from a message to the batches that are appended
//! * [`rerouting`]: messages for deleted queues
//! * [`dead_letter`]: the routing of dead letters
//! * [`live`]: snapshots of sessions for the management API
//! * [`errors`]: reply codes and texts of refusals; [`table`], [`erlang`]: values in RabbitMQ's texts

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
