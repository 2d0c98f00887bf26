//! Filters of quotas, for Kafka's DescribeClientQuotas.

use access_rules::quota::{Entity, EntityType, Values};

use super::Table;

/// Condition on a part of an entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Match {
    Name(String),
    /// The default for all without a quota of their own.
    Default,
    /// The part is present, with any name.
    Any,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    pub of: EntityType,
    pub matches: Match,
}

/// All components must match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    pub components: Vec<Component>,
    /// Entities with other parts do not match.
    pub strict: bool,
}

impl Filter {
    pub fn fits(&self, entity: &Entity) -> bool {
        let fits = |component: &Component| match (entity.name(component.of), &component.matches) {
            (None, _) => false,
            (Some(_), Match::Any) => true,
            (Some(name), Match::Default) => name.is_none(),
            (Some(name), Match::Name(wanted)) => name == Some(wanted),
        };
        self.components.iter().all(fits)
            && !(self.strict && entity.0.len() != self.components.len())
    }

    /// The matching entries of a table.
    pub fn of<'a>(&self, table: &'a Table) -> impl Iterator<Item = (&'a Entity, &'a Values)> {
        table.iter().filter(|(entity, _)| self.fits(entity))
    }
}
