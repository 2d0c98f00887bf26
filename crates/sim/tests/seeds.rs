//! Reproducibility of a seed: the same seed twice gives the same trace, and no invariant is violated.

use std::process::{Command, Output};

use sim::profile::Profile;

/// The seed for each profile. `sim search` runs thousands, also of the slowest profiles, which are not here:
/// `spread` and `images`.
const SEED: u64 = 1;

fn run(seed: u64, profile: Profile) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(["run", "--seed", &seed.to_string(), "--profile", profile.name()])
        .output()
        .expect("the program runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn repeats(profile: Profile) {
    let [first, second] = [run(SEED, profile), run(SEED, profile)];
    assert!(first.status.success(), "{}", text(&first));
    assert_eq!(text(&first), text(&second), "seed {SEED} is not the same run twice");
    let says = format!("seed {SEED}: ok, trace ");
    assert!(text(&first).lines().last().is_some_and(|last| last.starts_with(&says)));
}

#[test]
fn seed_repeats_its_run_with_power_losses() {
    repeats(Profile::Power);
}

#[test]
fn seed_repeats_its_run_with_kills() {
    repeats(Profile::Kill);
}

#[test]
fn seed_repeats_its_run_with_a_failing_disk() {
    repeats(Profile::Disk);
}

#[test]
fn seed_repeats_its_run_with_clock_steps() {
    repeats(Profile::Clock);
}

#[test]
fn seed_repeats_its_run_with_elections() {
    repeats(Profile::Elections);
}

#[test]
fn seed_repeats_its_run_with_all_faults() {
    repeats(Profile::All);
}

#[test]
fn seed_repeats_its_run_in_a_cluster() {
    repeats(Profile::Cluster);
}

#[test]
fn seed_repeats_its_run_in_a_cluster_with_leases() {
    repeats(Profile::Relays);
}

#[test]
fn seed_repeats_its_run_in_a_cluster_with_queues() {
    repeats(Profile::Queues);
}

#[test]
fn seed_repeats_its_run_in_a_cluster_with_committed_offsets() {
    repeats(Profile::Registers);
}

#[test]
fn seed_repeats_its_run_in_a_cluster_with_stalled_writes() {
    repeats(Profile::Stalls);
}

#[test]
fn seed_repeats_its_run_in_a_cluster_of_five() {
    repeats(Profile::Five);
}

#[test]
fn seed_repeats_its_run_with_joining_and_leaving_nodes() {
    repeats(Profile::Members);
}

#[test]
fn seed_repeats_its_run_with_bit_flips() {
    repeats(Profile::Damage);
}

#[test]
fn seed_repeats_its_run_with_moving_partitions() {
    repeats(Profile::Moves);
}

#[test]
fn seed_repeats_its_run_with_upgrades() {
    repeats(Profile::Upgrade);
}

/// All requests of a client may fail in a run without a violation.
#[test]
fn clients_of_queues_declare_and_count_some() {
    let seed = SEED.to_string();
    let traced = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(["run", "--seed", &seed, "--profile", Profile::Queues.name(), "--trace"])
        .output()
        .expect("the program runs");
    let text = text(&traced);
    let has = |request: &str, reply: &str| {
        text.lines().any(|line| line.contains(request) && line.contains(reply))
    };
    assert!(has(": Declare at ", "Ok(Ok(Done))") && has(": Count at ", "Ok(Ok(Counted("));
}

#[test]
fn different_seeds_are_different_runs() {
    assert_ne!(run(1, Profile::All).stdout, run(2, Profile::All).stdout);
}
