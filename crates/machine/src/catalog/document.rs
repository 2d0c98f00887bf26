//! Small replicated documents of gateways: declarations of a protocol that the broker has no
//! concept for. A space belongs to one gateway (its bindings, its policies); the machine reads no
//! body.

use std::ops::Bound;
use std::sync::Arc;

use crate::limits::{
    DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENT_SPACE_BYTES_MAX, DOCUMENTS_BYTES_MAX,
    DOCUMENTS_MAX,
};
use base::SharedMap;

use crate::outcome::Refusal;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// The version of the last change of this document. All documents of a shard share one counter.
    pub version: u64,
    pub body: Arc<[u8]>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Documents {
    spaces: SharedMap<Arc<str>, SharedMap<Arc<str>, Document>>,
    /// Version of the last change.
    version: u64,
    count: usize,
    /// Bytes of names and bodies.
    bytes: u64,
}

impl Documents {
    pub(crate) fn get(&self, space: &str, name: &str) -> Option<&Document> {
        self.spaces.get(space)?.get(name)
    }

    /// Sorted by name.
    pub(crate) fn in_space(&self, space: &str) -> impl Iterator<Item = (&str, &Document)> {
        let documents = self.spaces.get(space).into_iter().flatten();
        documents.map(|(name, document)| (&**name, document))
    }

    /// Documents with this prefix.
    pub(crate) fn under(
        &self,
        space: &str,
        prefix: &str,
    ) -> impl Iterator<Item = (&str, &Document)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let documents = self.spaces.get(space).into_iter();
        let names = documents.flat_map(move |documents| documents.range::<str, _>(from));
        let named = names.map(|(name, document)| (&**name, document));
        named.take_while(move |(name, _)| name.starts_with(prefix))
    }

    /// Sorted by space and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Document)> {
        self.spaces.iter().flat_map(|(space, documents)| {
            documents.iter().map(|(name, found)| (&**space, &**name, found))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Whether `put` would accept the document.
    pub(crate) fn check_put(
        &self,
        space: &str,
        name: &str,
        body: &[u8],
        expect: Option<u64>,
    ) -> Result<(), Refusal> {
        self.check(space, name, body)?;
        let present = self.expected(space, name, expect)?;
        let freed = present.map_or(0, |held| weight(space, name, &held.body));
        let count = self.count + usize::from(present.is_none());
        let bytes = self.bytes - freed + weight(space, name, body);
        if count > DOCUMENTS_MAX || bytes > DOCUMENTS_BYTES_MAX {
            return Err(Refusal::TooManyDocuments { documents: self.count, bytes: self.bytes });
        }
        Ok(())
    }

    pub(crate) fn put(
        &mut self,
        space: &str,
        name: &str,
        body: &[u8],
        expect: Option<u64>,
    ) -> Result<u64, Refusal> {
        self.check_put(space, name, body, expect)?;
        self.version += 1;
        let document = Document { version: self.version, body: body.into() };
        self.insert(space, name.into(), document);
        Ok(self.version)
    }

    /// The bytes that `delete` would free, or why it is refused.
    pub(crate) fn check_delete(
        &self,
        space: &str,
        name: &str,
        expect: Option<u64>,
    ) -> Result<u64, Refusal> {
        let present = self.expected(space, name, expect)?;
        let unknown = || Refusal::UnknownDocument { space: space.into(), name: name.into() };
        Ok(weight(space, name, &present.ok_or_else(unknown)?.body))
    }

    pub(crate) fn delete(
        &mut self,
        space: &str,
        name: &str,
        expect: Option<u64>,
    ) -> Result<(), Refusal> {
        let freed = self.check_delete(space, name, expect)?;
        if let Some(documents) = self.spaces.get_mut(space) {
            documents.remove(name);
            if documents.is_empty() {
                self.spaces.remove(space);
            }
        }
        self.count -= 1;
        self.bytes -= freed;
        self.version += 1;
        Ok(())
    }

    /// Restores a document of a snapshot. Returns whether `put` could have created it.
    pub(crate) fn restore(&mut self, space: &str, name: &str, document: Document) -> bool {
        let sound = self.check(space, name, &document.body).is_ok()
            && self.get(space, name).is_none()
            && (1..=self.version).contains(&document.version)
            && self.count < DOCUMENTS_MAX
            && self.bytes + weight(space, name, &document.body) <= DOCUMENTS_BYTES_MAX;
        if sound {
            self.insert(space, name.into(), document);
        }
        sound
    }

    fn insert(&mut self, space: &str, name: Arc<str>, document: Document) {
        self.bytes += weight(space, &name, &document.body);
        self.count += 1;
        let names = (space.len() + name.len()) as u64;
        if !self.spaces.contains_key(space) {
            self.spaces.insert(space.into(), SharedMap::new());
        }
        let Some(documents) = self.spaces.get_mut(space) else { return };
        if let Some(old) = documents.insert(name, document) {
            self.bytes -= names + old.body.len() as u64;
            self.count -= 1;
        }
    }

    fn check(&self, space: &str, name: &str, body: &[u8]) -> Result<(), Refusal> {
        let names = [
            ("space of documents", space, DOCUMENT_SPACE_BYTES_MAX),
            ("document", name, DOCUMENT_NAME_BYTES_MAX),
        ];
        for (what, name, at_most) in names {
            if !(1..=at_most).contains(&name.len()) {
                let what = what.into();
                return Err(Refusal::InvalidDocumentName { what, bytes: name.len(), at_most });
            }
        }
        let (bytes, at_most) = (body.len(), DOCUMENT_BYTES_MAX);
        if bytes > at_most { Err(Refusal::DocumentTooLarge { bytes, at_most }) } else { Ok(()) }
    }

    /// The document, if it has the expected version.
    fn expected(
        &self,
        space: &str,
        name: &str,
        expect: Option<u64>,
    ) -> Result<Option<&Document>, Refusal> {
        let present = self.get(space, name);
        let version = present.map_or(0, |document| document.version);
        match expect {
            Some(expected) if expected != version => Err(Refusal::DocumentConflict {
                space: space.to_owned(),
                name: name.to_owned(),
                version,
                expected,
            }),
            _ => Ok(present),
        }
    }
}

fn weight(space: &str, name: &str, body: &[u8]) -> u64 {
    (space.len() + name.len() + body.len()) as u64
}
