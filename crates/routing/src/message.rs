//! What is asked of a message, and the values that headers have.

use crate::upstream::Hop;

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a, H: ?Sized> {
    /// Its routing key, and those that it has besides (CC, BCC). Never empty.
    pub keys: &'a [&'a str],
    pub headers: &'a H,
    /// It asks to be held back by the first node that holds messages back
    /// ([`crate::NodeOptions::defers`]).
    pub deferred: bool,
}

/// A message's headers and the properties that a hash may be taken of.
pub trait Headers {
    fn get(&self, name: &str) -> Option<Value<'_>>;
    /// Every header. A name that occurs twice may come twice; [`Headers::get`] says which counts.
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

/// A header's value. Values are equal when they are of one kind and equal: 1 is no 1.0, and the
/// width of an integer does not count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// There, without a value. As a pattern: any value will do.
    Void,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Bytes(&'a [u8]),
    /// Anything composite, as it is encoded.
    Encoded(&'a [u8]),
}

/// A message without any.
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
