//! Who leads.

use crate::errors::Fault;
use crate::gateway::Gateway;

use ::operations::document::Elected;

pub(super) async fn elect(gateway: &Gateway) -> Result<Elected, Fault> {
    let term = gateway.broker.elect_anew().await?;
    Ok(Elected { term })
}
