//! Turns a surviving node into a cluster of its own after the permanent loss of the majority.
//!
//! An operator decides this, on the directory of a stopped node. Records that the lost nodes had acknowledged and this
//! one did not have are gone; the report has the last entry of each shard. Other nodes rejoin with empty directories.

use std::collections::BTreeSet;
use std::path::Path;

use base::ShardId;
use broker::recovery::{RecoverError, RecoveryOutcome, ShardLogState, survey};
use broker::{BrokerOptions, Catalog};
use cluster::{DirectoryError, SurvivorDirectory, SurvivorError};
use documents::{Change, StoreError, WritePrecondition};
use serde::Serialize;
use uuid::Uuid;
use world::World;

use crate::registry::{DECISIONS, Decision, LAST_DECISION, NodeLifecycle, Registration, SPACE};

/// Contents of a directory, and the outcome of its recovery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    pub node: u64,
    /// Fellow members that are neither lost nor this node: their directories are useless after a recovery.
    pub others: Vec<u64>,
    /// The catalog first.
    pub shards: Vec<Shard>,
    /// `None`: nothing was changed.
    pub recovered: Option<Outcome>,
}

/// Last entry of a shard in the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shard {
    pub shard: u32,
    pub voters: Vec<u64>,
    pub last_term: u64,
    /// The index of its last entry.
    pub last_index: u64,
    /// Time of its last entry, ms since the epoch, if the log still has it.
    pub last_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Outcome {
    pub cluster: Uuid,
    /// Recently created topics that only the lost nodes knew completely: their local remains are dropped.
    pub topics_dropped: usize,
    /// Committed offsets beyond the surviving records: they are reset to the end of the partition.
    pub offsets_set_back: usize,
    /// Gaps in the messages between shards (dead letters, moved records).
    pub gaps: Vec<Gap>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Gap {
    pub from: u32,
    pub to: u32,
    /// Upper bound of the lost records.
    pub records: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Survivor(#[from] SurvivorError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Shards(#[from] RecoverError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("node {0} is the one that this directory is of: name those that are lost")]
    OfItself(u64),
    #[error("node {node} votes in no shard of this directory; its members are {members:?}")]
    Unknown { node: u64, members: Vec<u64> },
    #[error(
        "the nodes {left:?} are not lost, and a majority of {of}: start them, and they go on without losing anything; \
         a node that is lost is replaced by `postroad node replace N --with NEW`"
    )]
    MajorityLeft { left: Vec<u64>, of: usize },
    #[error("node {0}, of which the directory says that it is, is no node of a cluster")]
    NotANumber(u64),
    #[error("the directory does not say where its node is reached")]
    NoAddress,
}

/// Inspects a directory. Changes nothing that the node's next start would not change.
#[tasks::boxed]
pub async fn inspect(
    world: &World,
    dir: &Path,
    options: BrokerOptions,
    lost: &BTreeSet<u64>,
) -> Result<Report, RecoveryError> {
    let survivor = SurvivorDirectory::claim(world, dir).await?;
    let node = survivor.node().0;
    let shards = survey(world, dir, &node_options(options, node)?).await?;
    check(node, &shards, lost, survivor.is_recovering())?;
    Ok(report(node, &shards, lost))
}

/// Lets the node of a directory continue without the lost nodes. After an interruption, repeat it.
#[tasks::boxed]
pub async fn recover(
    world: &World,
    dir: &Path,
    options: BrokerOptions,
    lost: &BTreeSet<u64>,
) -> Result<Report, RecoveryError> {
    let survivor = SurvivorDirectory::claim(world, dir).await?;
    let node = survivor.node().0;
    let address = survivor.address().map(str::to_owned).ok_or(RecoveryError::NoAddress)?;
    let options = node_options(options, node)?;
    let shards = survey(world, dir, &options).await?;
    check(node, &shards, lost, survivor.is_recovering())?;
    let mut report = report(node, &shards, lost);
    // Must precede the first change of a shard: from here on no lost node is admitted.
    let recovering = survivor.begin().await?;
    let change = |catalog: &Catalog| without_others(catalog, node).map(Change::into_inner);
    let recovered = broker::recovery::recover(world, dir, &options, &address, change).await?;
    let RecoveryOutcome { gaps, topics_dropped, offsets_set_back, .. } = recovered?;
    let cluster = recovering.cluster();
    recovering.finish().await?;
    let gaps = gaps.into_iter().map(|gap| Gap {
        from: gap.from.0,
        to: gap.to.0,
        records: gap.numbers.end - gap.numbers.start,
    });
    let gaps = gaps.collect();
    report.recovered = Some(Outcome { cluster, topics_dropped, offsets_set_back, gaps });
    Ok(report)
}

pub(crate) fn node_options(
    options: BrokerOptions,
    node: u64,
) -> Result<BrokerOptions, RecoveryError> {
    let number = u32::try_from(node).map_err(|_| RecoveryError::NotANumber(node))?;
    let journal = journal::Options { keep_log: true, ..options.journal };
    Ok(BrokerOptions { node: number, journal, cluster: None, ..options })
}

/// Marks all other nodes of the catalog as removed, and this one as active.
fn without_others(catalog: &Catalog, here: u64) -> Result<Change, StoreError> {
    let mut change = others_removed(catalog, here)?;
    let document = catalog.documents(SPACE).find(|(name, _)| **name == *here.to_string());
    if let Some((name, document)) = document
        && let Ok(node) = serde_json::from_slice::<Registration>(&document.body)
        && node.standing != NodeLifecycle::Active
    {
        let active = Registration { standing: NodeLifecycle::Active, ..node };
        change.put(
            SPACE,
            name.to_owned(),
            &active,
            WritePrecondition::Version(document.version),
        )?;
    }
    Ok(change)
}

/// Marks all other nodes of the catalog as removed, and leaves this one unchanged.
pub(crate) fn others_removed(catalog: &Catalog, here: u64) -> Result<Change, StoreError> {
    let mut change = Change::new();
    for (name, document) in catalog.documents(SPACE) {
        let Ok(id) = name.parse::<u64>() else { continue };
        // An unreadable document registers no node.
        let Ok(node) = serde_json::from_slice::<Registration>(&document.body) else { continue };
        if id != here && node.standing != NodeLifecycle::Removed {
            let removed = Registration { standing: NodeLifecycle::Removed, ..node };
            change.put(
                SPACE,
                name.to_owned(),
                &removed,
                WritePrecondition::Version(document.version),
            )?;
        }
    }
    let words = Decision { was: "the former nodes of the cluster are gone" };
    change.put(DECISIONS, LAST_DECISION.to_owned(), &words, WritePrecondition::Anything)?;
    Ok(change)
}

fn check(
    node: u64,
    shards: &[ShardLogState],
    lost: &BTreeSet<u64>,
    is_recovering: bool,
) -> Result<(), RecoveryError> {
    if lost.contains(&node) {
        return Err(RecoveryError::OfItself(node));
    }
    // Some shards have only this node by now.
    if is_recovering {
        return Ok(());
    }
    let members = members_of(shards);
    if let Some(unknown) = lost.iter().find(|lost| !members.contains(lost)) {
        let members = members.into_iter().collect();
        return Err(RecoveryError::Unknown { node: *unknown, members });
    }
    let has_majority = |found: &ShardLogState| {
        let voters = &found.standing.members.voters;
        voters.keys().filter(|voter| !lost.contains(voter)).count() > voters.len() / 2
    };
    if shards.iter().filter(|it| !it.standing.members.voters.is_empty()).all(has_majority) {
        let left = members.difference(lost).copied().collect();
        return Err(RecoveryError::MajorityLeft { left, of: members.len() });
    }
    Ok(())
}

fn members_of(shards: &[ShardLogState]) -> BTreeSet<u64> {
    shards.iter().flat_map(|it| it.standing.members.voters.keys().copied()).collect()
}

fn report(node: u64, shards: &[ShardLogState], lost: &BTreeSet<u64>) -> Report {
    let others = members_of(shards).into_iter().filter(|it| *it != node && !lost.contains(it));
    let shard = |found: &ShardLogState| {
        let ShardLogState { shard: ShardId(shard), standing, last_ms } = found;
        let voters = standing.members.voters.keys().copied().collect();
        let last = standing.last.unwrap_or_default();
        let (last_term, last_index, last_ms) = (last.term, last.index, *last_ms);
        Shard { shard: *shard, voters, last_term, last_index, last_ms }
    };
    let shards = shards.iter().map(shard).collect();
    Report { node, others: others.collect(), shards, recovered: None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn shards(voters: &[&[u64]]) -> Vec<ShardLogState> {
        let of = |(shard, voters): (usize, &&[u64])| {
            let voters = voters.iter().map(|voter| (*voter, format!("n{voter}:1")));
            let mut found = ShardLogState {
                shard: ShardId(shard as u32),
                standing: Default::default(),
                last_ms: None,
            };
            found.standing.members.voters = voters.collect::<BTreeMap<_, _>>();
            found
        };
        voters.iter().enumerate().map(of).collect()
    }

    fn checked(node: u64, voters: &[&[u64]], lost: &[u64]) -> Result<(), String> {
        let lost = lost.iter().copied().collect();
        check(node, &shards(voters), &lost, false).map_err(|error| error.to_string())
    }

    #[test]
    fn recovery_is_rejected_while_every_shard_has_a_majority() {
        let three: [&[u64]; 2] = [&[1, 2, 3], &[1, 2, 3]];
        assert_eq!(checked(1, &three, &[2, 3]), Ok(()));
        for lost in [&[][..], &[2]] {
            let refused = checked(1, &three, lost).expect_err("two of three are there");
            assert!(refused.contains("node replace"), "{refused}");
        }
        // The lost majority of one shard is enough.
        assert_eq!(checked(1, &[&[1, 2, 3, 4, 5], &[1, 2, 3]], &[2, 3]), Ok(()));
    }

    #[test]
    fn only_other_members_can_be_lost() {
        let three: [&[u64]; 1] = [&[1, 2, 3]];
        assert!(checked(1, &three, &[1, 2]).expect_err("it is here").contains("node 1"));
        assert!(checked(1, &three, &[2, 9]).expect_err("nobody").contains("[1, 2, 3]"));
    }

    #[test]
    fn report_names_other_survivors() {
        let lost = BTreeSet::from([3, 4, 5]);
        assert_eq!(report(1, &shards(&[&[1, 2, 3, 4, 5]]), &lost).others, [2]);
    }
}
