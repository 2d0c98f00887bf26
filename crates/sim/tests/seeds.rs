//! A seed is the run: the same seed twice is the same trace, and no invariant is violated.

use std::process::{Command, Output};

use sim::profile::Profile;

/// Of each profile. `sim search` runs thousands, also of those that take longest, which are not here: `spread` and `images`.
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
fn a_seed_is_the_same_run_twice_with_power_losses() {
    repeats(Profile::Power);
}

#[test]
fn a_seed_is_the_same_run_twice_with_kills() {
    repeats(Profile::Kill);
}

#[test]
fn a_seed_is_the_same_run_twice_with_a_failing_disk() {
    repeats(Profile::Disk);
}

#[test]
fn a_seed_is_the_same_run_twice_with_clock_steps() {
    repeats(Profile::Clock);
}

#[test]
fn a_seed_is_the_same_run_twice_with_elections() {
    repeats(Profile::Elections);
}

#[test]
fn a_seed_is_the_same_run_twice_with_all_faults() {
    repeats(Profile::All);
}

#[test]
fn a_seed_is_the_same_run_twice_in_a_cluster() {
    repeats(Profile::Cluster);
}

#[test]
fn a_seed_is_the_same_run_twice_in_a_cluster_with_leases() {
    repeats(Profile::Relays);
}

#[test]
fn a_seed_is_the_same_run_twice_in_a_cluster_with_queues() {
    repeats(Profile::Queues);
}

#[test]
fn a_seed_is_the_same_run_twice_in_a_cluster_with_committed_offsets() {
    repeats(Profile::Registers);
}

#[test]
fn a_seed_is_the_same_run_twice_in_a_cluster_whose_writes_stall() {
    repeats(Profile::Stalls);
}

#[test]
fn a_seed_is_the_same_run_twice_in_a_cluster_of_five() {
    repeats(Profile::Five);
}

#[test]
fn a_seed_is_the_same_run_twice_where_nodes_come_and_go() {
    repeats(Profile::Members);
}

#[test]
fn a_seed_is_the_same_run_twice_where_bits_flip() {
    repeats(Profile::Damage);
}

#[test]
fn a_seed_is_the_same_run_twice_where_partitions_move() {
    repeats(Profile::Moves);
}

#[test]
fn a_seed_is_the_same_run_twice_where_nodes_are_upgraded() {
    repeats(Profile::Upgrade);
}

#[test]
fn two_seeds_are_two_runs() {
    assert_ne!(run(1, Profile::All).stdout, run(2, Profile::All).stdout);
}
