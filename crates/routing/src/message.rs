//! Messages, and the values of headers.

/// A message being routed.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a, H: ?Sized> {
    /// Its routing key, and additional ones (CC, BCC). Never empty.
    pub keys: &'a [&'a str],
    pub headers: &'a H,
    /// Requests a delay by the first node that defers messages ([`crate::NodeOptions::defers`]).
    pub deferred: bool,
}

/// A broker that forwarded a message, by RabbitMQ's header `x-received-from`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    pub cluster: String,
    pub vhost: String,
}

/// A message's headers, and the properties that can be hashed.
pub trait Headers {
    fn get(&self, name: &str) -> Option<Value<'_>>;
    /// Every header. A repeated name may be passed repeatedly; [`Headers::get`] decides which one
    /// counts.
    fn each(&self, see: &mut dyn FnMut(&str, Value<'_>));
    fn property(&self, property: Property) -> Option<Value<'_>>;
    /// Brokers that forwarded the message, in any order.
    fn hops(&self) -> Vec<Hop> {
        Vec::new()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    CorrelationId,
    MessageId,
    Timestamp,
}

/// A header's value. Values are equal if they have the same kind and value: 1 differs from 1.0, and
/// the width of an integer is irrelevant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Present, without a value. As a pattern: any value matches.
    Void,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Bytes(&'a [u8]),
    /// Any composite value, in its encoding.
    Encoded(&'a [u8]),
}

/// A message without headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn get(&self, _name: &str) -> Option<Value<'_>> {
        None
    }

    fn each(&self, _see: &mut dyn FnMut(&str, Value<'_>)) {}

    fn property(&self, _property: Property) -> Option<Value<'_>> {
        None
    }
}
