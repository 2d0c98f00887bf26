//! `cargo xtask guide`: types the commands of README.md and of the pages of docs/user as they are printed there.
//!
//! * A command has to succeed. One for which the page shows an error (a first line with `postroad: `) has to fail with
//!   that error.
//! * Where a page shows output, the command has to print the same: [`compare`] has the rule.
//! * A line of a block in `sh` is a command ([`cluster`]). In a block in `console` a line that begins with `$ ` is one,
//!   and the other lines are its output ([`console`]).
//! * [`plans`] has the preparation of each page: its nodes, files and records. A page with commands and without a plan
//!   fails, so that a new page is not forgotten.
//! * Paths of an installed node are in a folder of the guide, and other hosts are this machine ([`places`]). Commands
//!   that need more than that are skipped with a reason ([`skips`]).
//!
//! Nodes have the ports of the pages, which are the default ports: one guide at a time runs on a machine, and no other
//! node beside it.

mod cluster;
mod compare;
mod console;
mod page;
mod places;
mod plans;
mod shell;
mod skips;
mod typist;

use std::path::{Path, PathBuf};

use clap::Args;

use self::page::{Section, sections};
use crate::failure::{Context, Failure, Outcome};
use crate::{paths, server};

const README: &str = "README";
const CLUSTER: &str = "cluster";
const PAGES: &str = "docs/user";

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Only this page, such as `cluster` or `README` [default: all of them]
    #[arg(long)]
    page: Option<String>,
}

/// The number of commands that were typed and of those that were skipped, and the outputs that differed.
#[derive(Default)]
struct Tally {
    typed: usize,
    skipped: usize,
    differences: Vec<String>,
}

/// Types all pages against the release build.
pub(crate) fn in_ci() -> Outcome {
    run(&Options { bin: None, page: None })
}

/// Types all pages, also after one has failed, and fails with the failures of all.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut names = names()?;
    if let Some(page) = &options.page {
        names.retain(|name| name == page);
        if names.is_empty() {
            return Err(Failure::new(format!("there is no page '{page}' in {PAGES}")));
        }
    }
    let binary = server::binary(options.bin.as_deref())?;
    let folder = paths::fresh("guide")?;
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for name in &names {
        if let Err(failure) = types(name, &binary, &folder.join(name), &mut tally) {
            println!("# FAILED: {failure}");
            failures.push(format!("{name}, {failure}"));
        }
    }
    failures.extend(std::mem::take(&mut tally.differences));
    println!("\n{} commands were typed as printed, {} skipped", tally.typed, tally.skipped);
    if !failures.is_empty() {
        return Err(Failure::new(failures.join("\n"))
            .remedy("correct the page, or its plan in xtask/src/guide/plans.rs"));
    }
    paths::fresh("guide").map(drop)
}

/// The names of all pages, without their extension.
fn names() -> Outcome<Vec<String>> {
    let folder = paths::root().join(PAGES);
    let mut names = vec![README.to_owned()];
    for entry in std::fs::read_dir(&folder).context(|| format!("cannot read {PAGES}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names[1..].sort_unstable();
    Ok(names)
}

/// Where a page is, from the root of the repository.
fn path_of(name: &str) -> String {
    if name == README { "README.md".to_owned() } else { format!("{PAGES}/{name}.md") }
}

fn read(name: &str) -> Outcome<Vec<Section>> {
    let path = path_of(name);
    let text = std::fs::read_to_string(paths::root().join(&path));
    Ok(sections(&text.context(|| format!("cannot read {path}"))?))
}

fn types(name: &str, binary: &Path, folder: &Path, tally: &mut Tally) -> Outcome {
    let sections = read(name)?;
    if !sections.iter().any(Section::has_commands) {
        return Ok(());
    }
    let language = if name == CLUSTER { "sh" } else { "console" };
    if let Some(other) = sections.iter().find_map(|section| section.other_shell(language)) {
        return Err(Failure::new(format!("commands stand in a block in '{other}'"))
            .remedy(format!("commands of this page are in blocks in `{language}`")));
    }
    println!("\n# {}", path_of(name));
    if name == CLUSTER {
        return cluster::types(&sections, binary, folder, tally);
    }
    typist::types(name, &sections, plans::of(name)?, binary, folder, tally)
}

#[cfg(test)]
mod tests {
    use super::console::steps;
    use super::*;

    /// The commands of a page with the titles of their sections.
    fn commands(sections: &[Section]) -> Vec<String> {
        let blocks = sections.iter().flat_map(|section| section.blocks_in("console"));
        let steps = blocks.flat_map(|block| steps(&block.lines).expect("the block is well formed"));
        steps.map(|step| step.command).collect()
    }

    #[test]
    fn each_page_with_commands_has_a_plan_for_all_of_its_sections() {
        for name in names().expect("there are pages").iter().filter(|name| *name != CLUSTER) {
            let sections = read(name).expect("the page can be read");
            for section in sections.iter().filter(|section| section.has_commands()) {
                let plan = plans::of(name).expect("the page has a plan");
                assert!(plan.iter().any(|part| part.covers(section)), "{name}: {}", section.title);
                assert_eq!(section.other_shell("console"), None, "{name}: {}", section.title);
            }
        }
    }

    #[test]
    fn each_entry_of_the_tables_fits_a_command_of_its_page() {
        for (page, command) in skips::all().chain(plans::all_commands()) {
            let commands = commands(&read(page).expect("the page can be read"));
            assert!(commands.iter().any(|it| it.contains(command)), "{page}: {command}");
        }
    }
}
