//! Layouts of requests: their fields in the order of the wire, and the versions that have each.

/// Not a version: the message has no compact encoding.
pub const NEVER: i16 = i16::MAX;

#[derive(Debug)]
pub struct MessageShape {
    /// First version with compact lengths, and tagged fields at the end of structs.
    pub flexible_since: i16,
    pub fields: Fields,
}

/// A struct's fields, in the order of the wire.
#[derive(Debug)]
pub struct Fields {
    pub plain: &'static [Field],
    pub tagged: &'static [(u32, Field)],
}

/// A field and the versions that have it.
#[derive(Debug)]
pub struct Field {
    pub since: i16,
    pub until: i16,
    pub name: &'static str,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// This number of bytes.
    Fixed(usize),
    Text,
    Blob,
    /// An array of primitives.
    List(&'static Kind),
    /// An array of structs.
    Rows(&'static Fields),
    /// A struct.
    Row(&'static Fields),
    /// A nullable struct: its first byte is 1 if it is present.
    Maybe(&'static Fields),
}

pub const fn plain(plain: &'static [Field]) -> Fields {
    Fields { plain, tagged: &[] }
}

pub const fn field(name: &'static str, kind: Kind) -> Field {
    Field { since: 0, until: i16::MAX, name, kind }
}

pub const fn since(since: i16, name: &'static str, kind: Kind) -> Field {
    Field { since, until: i16::MAX, name, kind }
}

pub const fn until(since: i16, until: i16, name: &'static str, kind: Kind) -> Field {
    Field { since, until, name, kind }
}
