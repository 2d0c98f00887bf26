//! From subscriptions and topics to what each member is to have.

use std::collections::{BTreeMap, BTreeSet};

use crate::Text;
use tracing::{debug, info};
use uuid::Uuid;

use super::{ConsumerGroup, Pattern};
use crate::assignor::Subscriber;
use crate::subscription::{Catalog, Topic, compile_pattern};

impl ConsumerGroup {
    /// Looks up what the members want, if that or the catalog changed. True if the outcome differs.
    pub(super) fn resolve(&mut self, has_changed: bool, catalog: &impl Catalog) -> bool {
        // Asked before the topics: a change in between is seen at the next heartbeat.
        let stamp = catalog.stamp();
        if self.stamp == Some(stamp) && !has_changed {
            return false;
        }
        let mut topics = BTreeMap::new();
        self.match_patterns(self.stamp != Some(stamp), catalog, &mut topics);
        self.stamp = Some(stamp);
        let mut ids: BTreeMap<Text, Option<Uuid>> = BTreeMap::new();
        let mut differs = false;
        for member in self.members.values_mut() {
            let mut wanted = BTreeSet::new();
            for name in &member.names {
                let id = *ids.entry(name.clone()).or_insert_with(|| {
                    let topic = catalog.topic(name)?;
                    let id = topic.id;
                    topics.insert(id, topic);
                    Some(id)
                });
                wanted.extend(id);
            }
            if let Some(pattern) = member.pattern.as_ref().and_then(|text| self.patterns.get(text))
            {
                wanted.extend(&pattern.topics);
            }
            differs |= member.topics != wanted;
            member.topics = wanted;
        }
        differs |= self.topics != topics;
        self.topics = topics;
        differs
    }

    /// Matches patterns against all topics: the new ones, or all if the catalog changed. Adds what
    /// they match to `topics`.
    fn match_patterns(
        &mut self,
        is_catalog_new: bool,
        catalog: &impl Catalog,
        topics: &mut BTreeMap<Uuid, Topic>,
    ) {
        let wanted: BTreeSet<_> =
            self.members.values().filter_map(|member| member.pattern.clone()).collect();
        let known = self.patterns.len();
        self.patterns.retain(|text, _| wanted.contains(text));
        if wanted.is_empty() {
            return;
        }
        debug!(group = %self.name, patterns = wanted.len(), known, is_catalog_new, "matching patterns");
        let all = catalog.topics();
        for text in wanted {
            let is_new = !self.patterns.contains_key(&text);
            if is_new {
                // It was compiled before the member was taken in.
                let Ok(regex) = compile_pattern(&text) else { continue };
                self.patterns.insert(text.clone(), Pattern { regex, topics: BTreeSet::new() });
            }
            let Some(pattern) = self.patterns.get_mut(&text) else { continue };
            if is_new || is_catalog_new {
                let matching = all.iter().filter(|topic| pattern.regex.is_match(&topic.name));
                pattern.topics = matching.map(|topic| topic.id).collect();
            }
        }
        let matched: BTreeSet<_> =
            self.patterns.values().flat_map(|pattern| &pattern.topics).copied().collect();
        let of_patterns = all.into_iter().filter(|topic| matched.contains(&topic.id));
        topics.extend(of_patterns.map(|topic| (topic.id, topic)));
    }

    /// Computes what every member is to have in the group's epoch.
    pub(super) fn assign(&mut self) {
        let assignor = self.assignor();
        let partitions = self.topics.iter().map(|(&id, topic)| (id, topic.partitions)).collect();
        let subscribers: Vec<_> = self
            .members
            .values()
            .map(|member| Subscriber {
                id: &member.id,
                instance_id: member.instance_id.as_ref(),
                topics: &member.topics,
                target: &member.state.target,
            })
            .collect();
        let targets = assignor.assign(&subscribers, &partitions);
        for (member, target) in self.members.values_mut().zip(targets) {
            member.state.target = target;
        }
        self.target_epoch = self.epoch;
        info!(group = %self.name, epoch = self.epoch, members = self.members.len(),
            assignor = assignor.name(), "assigned anew");
    }
}
