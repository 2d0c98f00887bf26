//! Commands on AMQP's virtual hosts and their policies.

pub(crate) mod amqp;
pub(crate) mod policy;
pub(crate) mod vhost;
