//! Bindings of `queue.bind`, `exchange.bind` and their reverse.

use topology::{BindingRequest, Destination, OwnerId, VirtualHost};

use super::without_line_ends;
use crate::errors::Exception;

/// `queue.bind` and `exchange.bind`.
pub async fn bind(
    vhost: &VirtualHost,
    connection: OwnerId,
    request: BindingRequest<'_>,
) -> Result<(), Exception> {
    let (source, destination) = ends(&request);
    let request = BindingRequest { source: &source, destination: &destination, ..request };
    Ok(vhost.bind(connection, request).await?)
}

/// `queue.unbind` and `exchange.unbind`. A missing binding counts as removed.
pub async fn unbind(
    vhost: &VirtualHost,
    connection: OwnerId,
    request: BindingRequest<'_>,
) -> Result<(), Exception> {
    let (source, destination) = ends(&request);
    let request = BindingRequest { source: &source, destination: &destination, ..request };
    Ok(vhost.unbind(connection, request).await?)
}

/// The names without line ends.
fn ends(request: &BindingRequest<'_>) -> (String, Destination) {
    let destination = match request.destination {
        Destination::Queue(name) => Destination::Queue(without_line_ends(name).into()),
        Destination::Exchange(name) => Destination::Exchange(without_line_ends(name).into()),
    };
    (without_line_ends(request.source), destination)
}
