//! The configuration of openraft.

use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

use crate::error::StartError;

const HEARTBEAT_MS: u64 = 150;
const ELECTION_MS_MIN: u64 = 500;
const ELECTION_MS_MAX: u64 = 800;

/// The leader lease: no node votes for another one within this time after a leader's last message. A leader
/// without replies of a majority for this long may have been replaced.
pub(crate) const LEASE: Duration = Duration::from_millis(ELECTION_MS_MAX);

/// Longest extension for a leader on a starved machine. The sum is a follower's wait before it campaigns: a leader
/// that is cut off has stepped down before another one is elected.
pub(crate) const STARVED_MAX: Duration = Duration::from_millis(ELECTION_MS_MIN);

pub(crate) fn of(has_group: bool, stands: bool) -> Result<Config, StartError> {
    let mut config = match has_group {
        true => in_a_group(),
        false => alone(),
    };
    config.enable_elect &= stands;
    config.validate().map_err(|error| StartError::Engine(error.to_string()))
}

fn alone() -> Config {
    Config {
        cluster_name: "postroad".to_owned(),
        // Alone, a node elects itself at once and sends no heartbeats.
        heartbeat_interval: 250,
        election_timeout_min: 1_000,
        election_timeout_max: 2_000,
        enable_pre_vote: Some(true),
        // A restart begins a new term: entries that a dead process appended and never synced must not share an
        // epoch with their replacements.
        enable_leader_restore: Some(false),
        // The log reader bounds bytes; a bound on entries would only cut small ones short.
        max_payload_entries: base::limits::APPEND_ENTRIES_MAX as u64,
        // `Snapshots` decides, by bytes; openraft counts entries.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    }
}

fn in_a_group() -> Config {
    Config {
        heartbeat_interval: HEARTBEAT_MS,
        // Replicated entries replace a heartbeat meanwhile.
        heartbeat_min_interval: Some(50),
        // A follower replies once all its received entries are durable: a disk that stalls for 400 ms must not
        // cost the lease.
        election_timeout_min: ELECTION_MS_MIN,
        election_timeout_max: ELECTION_MS_MAX,
        // A leader that still sends, but receives nothing, would keep the others from electing for ever.
        quorum_loss_probe_interval: Some(2_000),
        // Followers apply simultaneous entries in large pieces; a full channel blocks the core.
        state_machine_channel_size: Some(8_192),
        // `Retention` decides.
        max_in_snapshot_log_to_keep: u64::MAX,
        ..alone()
    }
}
