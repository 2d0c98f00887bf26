//! Rules for the layout of the source: sizes, folders, and dependencies between the modules of a crate. Dependencies
//! between crates have no cycles by construction. The test prints a table of all crates:
//!
//! ```text
//! cargo test -p tasks --test layout -- --nocapture
//! ```

mod common;
#[path = "common/product.rs"]
mod product;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use common::sources;
use product::before_tests;

/// Lines of product code in a crate.
const LINES_MAX: usize = 18_000;
/// Source files in a folder, its folders not included.
const FILES_MAX: usize = 20;

/// The crate that exceeds [`LINES_MAX`], with the size that it may have, which only falls.
const LARGE: (&str, usize) = ("xtask", 19_500);

/// Modules of a crate: files and folders of its first level, and within its `delivery` each of its own.
struct Crate {
    name: String,
    folder: PathBuf,
    lines: usize,
    /// The modules that each module uses.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Crate {
    fn read(name: &str, folder: PathBuf) -> Self {
        let mut files = Vec::new();
        sources(&folder, &mut files);
        let is_test = |file: &PathBuf| {
            file.ends_with("tests.rs") || file.components().any(|it| it.as_os_str() == "tests")
        };
        files.retain(|file| !is_test(file));
        let mut read = Self { name: name.to_owned(), folder, lines: 0, uses: BTreeMap::new() };
        let paths: Vec<Vec<String>> = files.iter().map(|file| read.path_of(file)).collect();
        for path in &paths {
            read.uses.entry(Self::module(path)).or_default();
        }
        for (file, path) in files.iter().zip(&paths) {
            let text = std::fs::read_to_string(file).expect("text");
            let product = before_tests(&text);
            read.lines += product.lines().count();
            let code: String = product
                .lines()
                .flat_map(|line| [line.split("//").next().unwrap_or_default(), "\n"])
                .collect();
            let from = Self::module(path);
            let mut used: BTreeSet<String> =
                paths_in(&code, path).iter().map(|used| read.module_of(used)).collect();
            used.remove(&from);
            // Items at the root are re-exports: their modules are unknown here.
            used.remove("");
            read.uses.entry(from).or_default().extend(used);
        }
        read
    }

    /// `delivery/driver/mod.rs` is `delivery::driver`; `lib.rs` is the root.
    fn path_of(&self, file: &Path) -> Vec<String> {
        let below = file.strip_prefix(&self.folder).expect("below it").with_extension("");
        let mut path: Vec<String> =
            below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        path.pop_if(|last| last == "mod" || last == "lib" || last == "main");
        path
    }

    fn module(path: &[String]) -> String {
        let depth = if path.first().is_some_and(|first| first == "delivery") { 2 } else { 1 };
        path[..depth.min(path.len())].join("::")
    }

    /// The module with the item; an unknown path belongs to its nearest known parent.
    fn module_of(&self, path: &[String]) -> String {
        (0..=path.len())
            .rev()
            .map(|length| Self::module(&path[..length]))
            .find(|name| self.uses.contains_key(name))
            .unwrap_or_default()
    }

    fn arrows(&self) -> usize {
        self.uses.values().map(BTreeSet::len).sum()
    }

    /// Modules that use themselves through others.
    fn cyclic(&self) -> Vec<&str> {
        let reached = |from: &str| {
            let mut reached = BTreeSet::new();
            let mut next: Vec<&str> = self.uses[from].iter().map(String::as_str).collect();
            while let Some(module) = next.pop() {
                if reached.insert(module) {
                    next.extend(self.uses[module].iter().map(String::as_str));
                }
            }
            reached
        };
        self.uses.keys().map(String::as_str).filter(|from| reached(from).contains(from)).collect()
    }

    /// The folder with the most source files, and their number.
    fn largest_folder(&self) -> (String, usize) {
        let mut files = Vec::new();
        sources(&self.folder, &mut files);
        let mut counts = BTreeMap::new();
        for file in files {
            let folder = file.parent().expect("a folder");
            let below = folder.strip_prefix(&self.folder).expect("below it").display().to_string();
            *counts.entry(below).or_insert(0) += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
    }
}

/// The paths named by code in the module `here`: from the crate's root, from a parent, or from a child module that it
/// declares.
fn paths_in(code: &str, here: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        add_paths(&code[at + "crate::".len()..], Vec::new(), &mut found);
    }
    let is_first = |at: usize| !code[..at].ends_with("super::");
    for (at, _) in code.match_indices("super::").filter(|(at, _)| is_first(*at)) {
        let (mut rest, mut base) = (&code[at..], here.to_vec());
        while let Some(above) = rest.strip_prefix("super::") {
            rest = above;
            base.pop();
        }
        add_paths(rest, base, &mut found);
    }
    for declared in code.lines().filter_map(|line| line.trim().strip_suffix(';')) {
        if let Some((before, name)) = declared.rsplit_once("mod ")
            && (before.is_empty() || before.starts_with("pub"))
        {
            found.push([here, &[name.to_owned()]].concat());
        }
    }
    found
}

/// The paths at the beginning of `code`, which may be `a::B` or `{a::B, c::{D, E}}`.
fn add_paths(code: &str, base: Vec<String>, found: &mut Vec<Vec<String>>) {
    let code = code.trim_start();
    let Some(group) = code.strip_prefix('{') else {
        let name: String = code.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let path = [base, vec![name.clone()]].concat();
        return match code[name.len()..].strip_prefix("::") {
            Some(rest) => add_paths(rest, path, found),
            None => found.push(path),
        };
    };
    let (mut depth, mut begins) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                if !group[begins..at].trim().is_empty() {
                    add_paths(&group[begins..at], base.clone(), found);
                }
                begins = at + 1;
                if c == '}' {
                    return;
                }
            }
            _ => {}
        }
    }
}

fn crates() -> Vec<Crate> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for parent in ["crates", "crates/gateways"] {
        for entry in std::fs::read_dir(root.join(parent)).expect("a folder") {
            let folder = entry.expect("an entry").path();
            if folder.join("Cargo.toml").is_file() {
                let name = folder.strip_prefix(root.join("crates")).expect("below it");
                found.push(Crate::read(&name.display().to_string(), folder.join("src")));
            }
        }
    }
    found.push(Crate::read("xtask", root.join("xtask/src")));
    found.sort_by_key(|it| std::cmp::Reverse(it.lines));
    assert!(found.len() > 20, "only {} crates were found", found.len());
    found
}

#[test]
fn crates_and_folders_are_small_and_modules_have_no_dependency_cycles() {
    println!(
        "{:<20} {:>7} {:>8} {:>7} {:>7}  most files in a folder",
        "crate", "lines", "modules", "arrows", "cyclic"
    );
    let mut found = Vec::new();
    for it in crates() {
        let (folder, files) = it.largest_folder();
        let cyclic = it.cyclic();
        println!(
            "{:<20} {:>7} {:>8} {:>7} {:>7}  {files} in src/{folder}",
            it.name,
            it.lines,
            it.uses.len(),
            it.arrows(),
            cyclic.len(),
        );
        let lines_max = if it.name == LARGE.0 { LARGE.1 } else { LINES_MAX };
        if it.lines > lines_max {
            found.push(format!(
                "{} has {} lines: move a part to a crate of its own",
                it.name, it.lines
            ));
        }
        if files > FILES_MAX {
            found.push(format!("{}/{folder} has {files} files: make folders by subject", it.name));
        }
        if !cyclic.is_empty() {
            let modules = cyclic.join(", ");
            found.push(format!(
                "{}: move what these modules share to one of its own: {modules}",
                it.name
            ));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
