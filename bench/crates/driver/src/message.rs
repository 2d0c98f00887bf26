use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;

/// A message on its way to the system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Messages of one lane (a key) are in order among themselves, if the topology says so.
    pub lane: u32,
    pub body: Bytes,
}

impl Message {
    /// The lane as a key, for systems that have keys.
    pub fn key(&self) -> String {
        format!("lane-{}", self.lane)
    }

    /// Of a message with another body it is another.
    pub fn id(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.body.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// Names a delivery to the receiver that got it. Only that receiver knows what it means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryId(pub u64);

/// A message that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    pub id: DeliveryId,
    pub body: Bytes,
    /// Whether the system says that it gave this message to somebody before. `None`: it does not
    /// say.
    pub redelivered: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Settle {
    /// Done: never again.
    Accept,
    /// Not done: to somebody again, soon.
    Release,
}
