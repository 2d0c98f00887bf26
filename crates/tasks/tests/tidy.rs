//! Rules for the whole source. A failure names the offending place.

mod common;
#[path = "common/product.rs"]
mod product;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::sources;
use product::before_tests;

/// Calls that start a task or a thread. Only this crate uses them: the end of a task outside its table would go
/// unnoticed.
const FORBIDDEN: [&str; 9] = [
    "tokio::spawn(",
    "task::spawn(",
    "spawn_blocking",
    "spawn_local",
    "block_in_place",
    "JoinSet",
    "thread::spawn",
    "thread::Builder",
    "thread::scope",
];

/// Code outside a node. A command's process ends with its main thread and reports that to its user. The tasks of a
/// client end with their connection, which its caller notices.
const OUTSIDE_A_NODE: [&str; 3] = ["client/src/", "cli/src/", "test-cluster/src/"];

/// Whether the file is source of a node, not of a test.
fn is_node_source(path: &str) -> bool {
    path.contains("/src/")
        && !path.starts_with("tasks/")
        && !path.starts_with("sim/")
        && !path.contains("/tests/")
        && !path.ends_with("tests.rs")
        && !OUTSIDE_A_NODE.iter().any(|folder| path.starts_with(folder))
}

#[test]
fn tasks_and_threads_are_started_by_this_crate_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut files = Vec::new();
    sources(crates, &mut files);
    let mut looked_at = 0;
    let mut strays = Vec::new();
    for file in files {
        let name = file.strip_prefix(crates).expect("below it").to_string_lossy().into_owned();
        if !is_node_source(&name) {
            continue;
        }
        looked_at += 1;
        let text = std::fs::read_to_string(&file).expect("text");
        let product = before_tests(&text);
        for (number, line) in product.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if FORBIDDEN.iter().any(|forbidden| code.contains(forbidden)) {
                strays.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(looked_at > 200, "only {looked_at} files were found");
    assert!(strays.is_empty(), "use `tasks` instead:\n{}", strays.join("\n"));
}

/// Otherwise its tasks would run in a node without being in the table.
#[test]
fn no_part_of_a_node_uses_a_client() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let of_a_node = [
        "access",
        "admin",
        "broker",
        "cluster",
        "consensus",
        "consumer-groups",
        "coordinator",
        "delivery",
        "documents",
        "gateways/amqp",
        "gateways/http",
        "gateways/kafka",
        "journal",
        "links",
        "machine",
        "message",
        "rabbitmq",
        "shard",
        "shard-peers",
        "topology",
        "upkeep",
    ];
    for name in of_a_node {
        let manifest = crates.join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        let product = text.split("[dev-dependencies]").next().unwrap_or_default();
        assert!(!product.contains("\nclient"), "{name} depends on a client");
    }
}

/// The broker and the crates of its shards hold the state. A backup applies its logs, to derive each shard's knowledge of the others. The command
/// line reads journals of stopped nodes.
const KNOW_THE_MACHINE: [&str; 8] =
    ["machine", "backup", "shard", "shard-peers", "delivery", "upkeep", "broker", "cli"];
const READS_JOURNALS: &str = "cli/src/journal";

/// Otherwise a protocol would depend on the placement of state on nodes.
#[test]
fn only_the_broker_uses_the_machine() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut files = Vec::new();
    sources(crates, &mut files);
    let manifests: BTreeSet<PathBuf> = files
        .iter()
        .filter_map(|file| file.ancestors().find(|folder| folder.join("Cargo.toml").exists()))
        .map(|folder| folder.join("Cargo.toml"))
        .collect();
    assert!(manifests.len() > 15, "only {} crates were found", manifests.len());
    for manifest in manifests {
        let name = manifest.parent().and_then(|folder| folder.strip_prefix(crates).ok());
        let name = name.expect("below it").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        let may = KNOW_THE_MACHINE.contains(&&*name);
        assert!(may || !text.contains("\nmachine"), "{name} depends on the machine");
    }
    for file in files {
        let name = file.strip_prefix(crates).expect("below it").to_string_lossy().into_owned();
        if name.starts_with("cli/src/") && !name.starts_with(READS_JOURNALS) {
            let text = std::fs::read_to_string(&file).expect("text");
            assert!(!text.contains("machine::"), "{name} asks the machine");
        }
    }
}

/// Signal handling of a process, and commands, which no simulation runs.
const NOT_SIMULATED: [&str; 2] = ["server/", "cli/"];

/// Without `biased` tokio polls the branches in a random order that no seed fixes.
#[test]
fn every_select_polls_its_branches_in_a_fixed_order() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut files = Vec::new();
    sources(crates, &mut files);
    let mut strays = Vec::new();
    for file in files {
        let name = file.strip_prefix(crates).expect("below it").to_string_lossy().into_owned();
        let simulated = !NOT_SIMULATED.iter().any(|folder| name.starts_with(folder));
        if !name.contains("/src/") || !simulated {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("text");
        let mut lines = before_tests(&text).lines().map(str::trim).enumerate();
        while let Some((number, line)) = lines.next() {
            let first = |(_, line): &(usize, &str)| !line.starts_with("//");
            if line.ends_with("select! {") && lines.find(first).map(|it| it.1) != Some("biased;") {
                strays.push(format!("{name}:{}", number + 1));
            }
        }
    }
    assert!(strays.is_empty(), "begin with `biased;`:\n{}", strays.join("\n"));
}

/// A file has one subject, which fits into this many lines.
const LINES_MAX: usize = 900;

/// A variant that is stored or sent by its ordinal may be newer than another node.
#[test]
fn append_only_enums_declare_the_level_of_each_variant() {
    let mut files = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    sources(crates, &mut files);
    let mut without = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let grows = "only ever added at the end";
        for (place, _) in text.match_indices(grows) {
            let is_one = |line: &&str| line.starts_with("enum ") || line.starts_with("pub");
            let after = text[place..].lines().map(str::trim).filter(is_one);
            let Some((_, name)) = after.filter_map(|line| line.split_once("enum ")).next() else {
                continue;
            };
            let name = name.split([' ', '<']).next().unwrap_or_default();
            let says = [format!("levels!({name} "), format!("Levelled for {name} ")];
            if !says.iter().any(|said| text.contains(said)) {
                without.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert_eq!(without, Vec::<String>::new(), "see `base::levels!`");
}

#[test]
fn no_documentation_has_an_example_to_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "bench"] {
        sources(&root.join(folder), &mut files);
    }
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().trim_start_matches("///").trim_start_matches("//!");
            let Some(language) = comment.trim().strip_prefix("```") else { continue };
            let is_comment = line.trim_start().starts_with("//");
            if is_comment && !inside && !["text", "json", "console"].contains(&language) {
                found.push(format!("{}:{}", file.display(), number + 1));
            }
            inside = is_comment && !inside;
        }
    }
    assert!(
        found.is_empty(),
        "no test runs examples: write a test, or name the language:\n{}",
        found.join("\n")
    );
}

#[test]
fn no_source_file_is_longer_than_900_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 500, "only {} files were found", files.len());
    let mut too_long = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("below it").to_string_lossy().into_owned();
        let lines = std::fs::read_to_string(&file).expect("text").lines().count();
        if lines > LINES_MAX {
            too_long.push(format!("{name} has {lines} lines"));
        }
    }
    assert!(too_long.is_empty(), "{LINES_MAX} at most, split by subject:\n{}", too_long.join("\n"));
}
