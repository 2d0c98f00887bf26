//! Names of groups.

use base::limits::GROUP_NAME_BYTES_MAX;

use crate::outcome::Refusal;

pub(crate) fn validate_group_name(name: &str) -> Result<(), Refusal> {
    if (1..=GROUP_NAME_BYTES_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(Refusal::InvalidGroupName { bytes: name.len(), at_most: GROUP_NAME_BYTES_MAX })
    }
}
