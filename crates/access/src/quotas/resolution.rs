//! Selection of the quota that applies to a client.
//!
//! The most specific one applies, separately for each kind of quota (KIP-13, KIP-257):
//!
//! ```text
//! user and client   user, default client   user   default user and client   default user and default client
//! default user   client   default client
//! ```

use std::net::IpAddr;

use access_rules::quota::{Entity, EntityType, Quota, Values};

use super::Table;

/// A part of an entity: absent, the default, or a name.
type EntityName = Option<Option<String>>;

/// The rate that applies to a client, and whether it is specific to the user and to the client.
pub(super) fn resolve(
    table: &Table,
    quota: Quota,
    user: &str,
    client: &str,
) -> Option<(f64, bool, bool)> {
    let named = |name: &str| Some(Some(name.to_owned()));
    let (is_default, none) = (Some(None), None);
    let order: [(EntityName, EntityName); 8] = [
        (named(user), named(client)),
        (named(user), is_default.clone()),
        (named(user), none.clone()),
        (is_default.clone(), named(client)),
        (is_default.clone(), is_default.clone()),
        (is_default.clone(), none.clone()),
        (none.clone(), named(client)),
        (none, is_default),
    ];
    order.into_iter().find_map(|(user, client)| {
        let (of_user, of_client) = (user.is_some(), client.is_some());
        let user = user.map(|name| (EntityType::User, name));
        let client = client.map(|name| (EntityType::ClientId, name));
        let entity = Entity::of(user.into_iter().chain(client));
        Some((*table.get(&entity)?.get(&quota)?, of_user, of_client))
    })
}

/// Connection rate of an address, per second.
pub(super) fn resolve_address(table: &Table, address: IpAddr) -> Option<f64> {
    let of = |entity: &Entity| match entity.name(EntityType::Address) {
        Some(Some(name)) => name.parse::<IpAddr>().is_ok_and(|it| it.to_canonical() == address),
        _ => false,
    };
    let quota = |values: &Values| values.get(&Quota::ConnectionCreationRate).copied();
    let own = table.iter().find(|(entity, _)| of(entity)).and_then(|(_, values)| quota(values));
    own.or_else(|| quota(table.get(&Entity::of([(EntityType::Address, None)]))?))
}
