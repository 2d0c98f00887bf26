//! Findings: the inspected item, its verdict, and advice if it is not well.

use std::path::Path;

use operations::cluster::Status as ClusterStatus;
use operations::time::now_ms;
use serde::Serialize;

use super::host::{Disk, Kernel};
use super::node::Node;
use super::settings::Settings;
use crate::output::{bytes, counted};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Well,
    /// The operator should know it.
    Note,
    /// The operator should act.
    Bad,
    /// The item could not be inspected.
    Unknown,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Note => "note",
            Self::Bad => "BAD",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) finding: String,
    /// Advice; empty if there is nothing to do.
    pub(super) advice: String,
}

fn check(
    name: &'static str,
    verdict: Verdict,
    finding: impl Into<String>,
    advice: impl Into<String>,
) -> Check {
    Check { name, verdict, finding: finding.into(), advice: advice.into() }
}

fn well(name: &'static str, finding: impl Into<String>) -> Check {
    check(name, Verdict::Well, finding, "")
}

/// Alarms of the metrics, in words.
const ALARMS: [(&str, &str, &str); 3] = [
    (
        "disk",
        "the disk is as full as it may be",
        "Free some of it, or give the node a larger one: producers are refused.",
    ),
    (
        "sync_hung",
        "a sync does not come back",
        "Look at the disk and its driver (dmesg); a cluster's other nodes lead meanwhile.",
    ),
    (
        "no_leader",
        "the node knows no leader",
        "See that a majority of the nodes runs and that they reach one another.",
    ),
];
/// Each connection takes one, and so does each file of a journal.
const OPEN_FILES_MIN: u64 = 10_000;
/// Need of a node by itself, with room for the kernel's cache.
const MEMORY_MIN: u64 = 512 << 20;
const SYNC_MICROS_NOTE: u64 = 10_000;
const SYNC_MICROS_BAD: u64 = 100_000;
/// Free part of the disk, in hundredths.
const FREE_NOTE: u64 = 15;
const FREE_BAD: u64 = 5;
/// File systems whose syncs guarantee nothing, or nothing to a disconnected node.
const NO_DISKS: [&str; 3] = ["tmpfs", "ramfs", "overlay"];
const NETWORK_DISKS: [&str; 5] = ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"];
const DAY_SECS: f64 = 86_400.0;

pub(super) fn all(
    settings: &Settings,
    kernel: &Kernel,
    disk: &Disk,
    node: &Node,
    data: &Path,
) -> Vec<Check> {
    let mut checks = vec![answers(node), metrics(node)];
    checks.extend(cluster_checks(node));
    checks.extend(alarms(node));
    checks.extend(disk_checks(disk, data));
    checks.extend(kernel_checks(kernel, node));
    checks.extend(settings_checks(settings));
    checks.extend(certificate(node));
    checks
}

fn answers(node: &Node) -> Check {
    match &node.shards {
        Ok(list) => {
            well("node", format!("answers, and has {}", counted(list.shards.len() as u64, "shard")))
        }
        Err(why) => check(
            "node",
            Verdict::Bad,
            why.clone(),
            "See that it runs, and name it with --bootstrap; from another machine or where users log in, with --tls-ca, --login or \
             --token-file.",
        ),
    }
}

fn metrics(node: &Node) -> Check {
    match &node.metrics {
        Ok(text) => well("metrics", format!("{} lines", text.lines().count())),
        Err(why) => check(
            "metrics",
            Verdict::Unknown,
            why.clone(),
            "Name the node's HTTP with --http. They are asked for with the operators' token of --data.",
        ),
    }
}

fn cluster_checks(node: &Node) -> Vec<Check> {
    let Ok(status) = &node.cluster else { return Vec::new() };
    let mut checks = Vec::new();
    let gone: Vec<String> =
        status.nodes.iter().filter(|it| !it.live).map(|it| it.node.to_string()).collect();
    // Nodes join and are replaced by decisions of the catalog's majority.
    let advice = match lacks_majority(status) {
        true => {
            "Start them again. If their disks are lost: `postroad recover`, which the documentation of clusters describes."
        }
        false => "Start them again, or replace what does not come back (postroad node replace).",
    };
    checks.push(match gone.is_empty() {
        true => well("cluster", all_live(status.nodes.len())),
        false => check("cluster", Verdict::Bad, format!("gone: node {}", gone.join(", ")), advice),
    });
    checks.extend(status.at_risk.iter().enumerate().map(|(place, risk)| {
        // Once, for all of them.
        let is_last = place + 1 == status.at_risk.len();
        let advice = "`postroad cluster status` shows whether it goes on by itself.";
        check("cluster", Verdict::Bad, risk.clone(), if is_last { advice } else { "" })
    }));
    checks.extend(status.stored.iter().flat_map(|stored| &stored.damaged).map(|damage| {
        let advice = "Another node repairs it; of a node that is alone, restore a backup.";
        check("stored", Verdict::Bad, damage.clone(), advice)
    }));
    checks
}

/// Whether the catalog has no majority of live voters.
fn lacks_majority(status: &ClusterStatus) -> bool {
    let is_live = |voter: &&u64| status.nodes.iter().any(|it| it.node == **voter && it.live);
    let lacks = |voters: &[u64]| voters.iter().filter(is_live).count() * 2 <= voters.len();
    let catalog = status.shards.iter().find(|it| it.shard == 0 && !it.voters.is_empty());
    catalog.is_some_and(|catalog| lacks(&catalog.voters))
}

fn all_live(nodes: usize) -> String {
    match nodes {
        1 => "1 node, which is live".to_owned(),
        nodes => format!("{nodes} nodes, all of them live"),
    }
}

fn alarms(node: &Node) -> Vec<Check> {
    let raised = |alarm: &str| {
        node.metric(&format!("postroad_alarm{{alarm=\"{alarm}\"}}")).is_some_and(|it| it > 0.0)
    };
    let raised = ALARMS.iter().filter(|(alarm, ..)| raised(alarm));
    let mut checks: Vec<Check> = raised
        .map(|(_, finding, advice)| check("alarm", Verdict::Bad, *finding, *advice))
        .collect();
    if node.metric("postroad_audit_dropped_total").is_some_and(|dropped| dropped > 0.0) {
        let advice =
            "See the log for why they are not written; audit = \"strict\" refuses changes instead.";
        checks.push(check("audit", Verdict::Bad, "events of the audit were dropped", advice));
    }
    checks
}

fn disk_checks(disk: &Disk, data: &Path) -> Vec<Check> {
    if let Some(why) = &disk.unreadable {
        let finding = format!("{}: {why}", data.display());
        let advice = "Name the data directory with --data, as a user who may read it.";
        return vec![check("disk", Verdict::Unknown, finding, advice)];
    }
    let hundredths =
        (disk.free_bytes.saturating_mul(100)).checked_div(disk.size_bytes).unwrap_or(0);
    let finding = format!("{hundredths} % of {} are free", bytes(disk.size_bytes));
    let advice = "Give topics a shorter retention, or the node a larger disk; producers are refused when the reserve is reached.";
    let mut checks = vec![match hundredths {
        ..FREE_BAD => check("disk", Verdict::Bad, finding, advice),
        FREE_BAD..FREE_NOTE => check("disk", Verdict::Note, finding, advice),
        _ => well("disk", finding),
    }];
    let file_system = disk.file_system.as_deref().unwrap_or_default();
    if NO_DISKS.contains(&file_system) {
        let advice = "Put the data on a disk: what is acknowledged there is gone with the machine or the container.";
        checks.push(check("disk", Verdict::Bad, format!("the data is on {file_system}"), advice));
    } else if NETWORK_DISKS.contains(&file_system) {
        let advice =
            "A disk of the machine's own, or a block device over the network, syncs as it says.";
        checks.push(check("disk", Verdict::Note, format!("the data is on {file_system}"), advice));
    }
    if disk.mode & 0o077 != 0 {
        let finding = format!("{} may be entered by others ({:03o})", data.display(), disk.mode);
        let advice = format!("chmod 700 {}: what is stored is not encrypted.", data.display());
        checks.push(check("disk", Verdict::Note, finding, advice));
    }
    checks.extend(syncs(disk));
    checks
}

fn syncs(disk: &Disk) -> Option<Check> {
    let at = |hundredth: usize| {
        disk.sync_micros.get(disk.sync_micros.len().saturating_sub(1) * hundredth / 100).copied()
    };
    let (median, worst) = (at(50)?, at(100)?);
    let finding = format!(
        "half of the syncs take {:.1} ms, the longest {:.1} ms",
        median as f64 / 1e3,
        worst as f64 / 1e3
    );
    let advice = "What is produced waits for a sync: a disk with a cache that outlives a loss of power takes 0.1 ms or less.";
    Some(match median {
        ..SYNC_MICROS_NOTE => well("syncs", finding),
        SYNC_MICROS_NOTE..SYNC_MICROS_BAD => check("syncs", Verdict::Note, finding, advice),
        _ => check("syncs", Verdict::Bad, finding, advice),
    })
}

fn kernel_checks(kernel: &Kernel, node: &Node) -> Vec<Check> {
    let mut checks = Vec::new();
    let of_node = node.metric("postroad_process_max_fds").map(|max| max as u64);
    if let Some(max) = of_node.or(kernel.open_files_max) {
        let whose = if of_node.is_some() { "the node" } else { "a shell" };
        let finding = format!("{whose} may have {max} files open");
        let advice =
            "Set LimitNOFILE=1048576 in the unit (or ulimit -n): each connection takes one.";
        checks.push(match max < OPEN_FILES_MIN {
            true => check("open files", Verdict::Note, finding, advice),
            false => well("open files", finding),
        });
    }
    let limit = kernel.settings.get("/sys/fs/cgroup/memory.max").and_then(|it| it.parse().ok());
    let memory = [kernel.memory_bytes, limit].into_iter().flatten().min();
    if let Some(memory) = memory {
        let finding = format!("{} MiB", memory >> 20);
        let advice = "Give it 512 MiB or more: requests and the cache of records need room.";
        checks.push(match memory < MEMORY_MIN {
            true => check("memory", Verdict::Note, finding, advice),
            false => well("memory", finding),
        });
    }
    checks
}

fn settings_checks(settings: &Settings) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(why) = &settings.unreadable {
        let advice = "Name the file that the node is started with (--config).";
        checks.push(check("settings", Verdict::Unknown, why.clone(), advice));
    }
    let is_on = |name| settings.value(name) == Some("true");
    for (name, finding, advice) in [
        (
            "insecure",
            "all clients have all rights where no log-in is required (insecure)",
            "Make a first user (admin-user), and take it away.",
        ),
        (
            "allow-plaintext-auth",
            "passwords are taken where others may hear them",
            "Let clients connect by ports that encrypt.",
        ),
        (
            "peer-plaintext",
            "nodes speak with one another in the clear",
            "Give all of them a secret (peer-secret).",
        ),
    ] {
        if is_on(name) {
            checks.push(check("settings", Verdict::Note, finding, advice));
        }
    }
    if settings.value("amqp-user").is_some() {
        let finding = "passwords stand in the settings (amqp-user)";
        let advice =
            "Use admin-user with admin-password-file, and make others by `postroad user add`.";
        checks.push(check("settings", Verdict::Note, finding, advice));
    }
    checks
}

fn certificate(node: &Node) -> Option<Check> {
    let ends = node.metric("postroad_tls_certificate_end_seconds")?;
    let now = now_ms() as f64 / 1e3;
    let days = ((ends - now) / DAY_SECS).floor();
    let finding = format!("it ends in {days} days");
    let advice = "Put another one in its place: it is read again within ten seconds.";
    Some(match days {
        ..2.0 => check("certificate", Verdict::Bad, finding, advice),
        2.0..14.0 => check("certificate", Verdict::Note, finding, advice),
        _ => well("certificate", finding),
    })
}
