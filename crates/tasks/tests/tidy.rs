//! Nothing in the product starts a task or a thread past this crate: one that nobody has in the
//! table would end without a word.

use std::path::{Path, PathBuf};

/// What starts one.
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

/// What runs in no node: a command's process ends with its main thread and says so to whoever typed
/// it, and the tasks of a client end with the connection that they serve, which its caller hears.
const OUTSIDE_A_NODE: [&str; 2] = ["client/src/", "server/src/commands/"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// In `src`, and neither a test's nor outside a node.
fn is_a_nodes(path: &str) -> bool {
    path.contains("/src/")
        && !path.starts_with("tasks/")
        && !path.starts_with("sim/")
        && !path.contains("/tests/")
        && !path.ends_with("tests.rs")
        && !OUTSIDE_A_NODE.iter().any(|folder| path.starts_with(folder))
}

/// Tests stand at the end of a file.
fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
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
        if !is_a_nodes(&name) {
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
        "broker",
        "consensus",
        "documents",
        "gateways/amqp",
        "gateways/kafka",
        "journal",
        "machine",
        "message",
        "topology",
    ];
    for name in of_a_node {
        let manifest = crates.join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        let product = text.split("[dev-dependencies]").next().unwrap_or_default();
        assert!(!product.contains("\nclient"), "{name} depends on a client");
    }
}

/// Where a process hears signals: no simulation runs it.
const NOT_SIMULATED: [&str; 1] = ["server/"];

/// Where several things are ready, tokio would draw which is looked at first, by numbers that no seed fixes.
#[test]
fn what_is_waited_for_is_looked_at_in_a_fixed_order() {
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
