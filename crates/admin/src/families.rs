//! Operations of other parts of the node. This module selects the family and passes the document on.

use operations::family::{Effect, NamedFamilies, OperationFamily};
use serde_json::Value;

use crate::AdminError;

/// The families of the node.
#[derive(Debug)]
pub(crate) struct Families(NamedFamilies);

impl Families {
    pub(crate) fn new(families: NamedFamilies) -> Self {
        Self(families)
    }

    fn find(&self, family: &str) -> Option<&dyn OperationFamily> {
        self.0.iter().find(|(name, _)| *name == family).map(|(_, found)| &**found)
    }

    /// The effect of an operation. An unknown family or operation counts as a change.
    pub(crate) fn effect(&self, family: &str, operation: &Value) -> Effect {
        let document = serde_json::to_vec(operation).unwrap_or_default();
        self.find(family).map_or(Effect::Change(String::new()), |found| found.effect(&document))
    }

    /// Whether the operation holds megabytes of stored data while it runs.
    pub(crate) fn holds_data(&self, family: &str, operation: &Value) -> bool {
        let document = serde_json::to_vec(operation).unwrap_or_default();
        self.find(family).is_some_and(|found| found.holds_data(&document))
    }

    pub(crate) async fn carry_out(
        &self,
        family: &str,
        operation: &Value,
    ) -> Result<Vec<u8>, AdminError> {
        let Some(found) = self.find(family) else {
            return Err(AdminError::Invalid(format!("this node has no operations of {family}")));
        };
        let operation = serde_json::to_vec(operation)
            .map_err(|error| AdminError::Invalid(format!("the operation is no JSON: {error}")))?;
        Ok(found.carry_out(operation).await?)
    }
}
