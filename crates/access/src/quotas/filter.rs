//! Which quotas are listed, as Kafka's DescribeClientQuotas asks.

use super::{Entity, EntityType, Table, Values};

/// What is asked of a part of an entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Match {
    Name(String),
    /// The one for all that have none of their own.
    Default,
    /// It has this part, whatever it says.
    Any,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    pub of: EntityType,
    pub matches: Match,
}

/// All components have to fit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    pub components: Vec<Component>,
    /// Entities with other parts do not fit.
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

    /// What fits of all that is set.
    pub fn of<'a>(&self, table: &'a Table) -> impl Iterator<Item = (&'a Entity, &'a Values)> {
        table.iter().filter(|(entity, _)| self.fits(entity))
    }
}
