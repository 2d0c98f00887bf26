use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;

/// A message to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The lane is the message's key. Messages of one lane keep their order if the topology
    /// requires it.
    pub lane: u32,
    pub body: Bytes,
}

impl Message {
    /// The lane as a key, for systems that have keys.
    pub fn key(&self) -> String {
        format!("lane-{}", self.lane)
    }

    /// An identifier derived from the body: different bodies have different ones.
    pub fn id(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.body.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// Identifies a delivery. Only meaningful to the receiver that got it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryId(pub u64);

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    pub id: DeliveryId,
    pub body: Bytes,
    /// The system's redelivery mark. `None`: the system has none.
    pub redelivered: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Settle {
    /// The message is done and never redelivered.
    Accept,
    /// The message is not done and is redelivered soon.
    Release,
}
