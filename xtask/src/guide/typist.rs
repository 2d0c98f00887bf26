//! Types a page with `console` blocks by its plan.

use std::fs;
use std::path::Path;

use super::Tally;
use super::compare::difference;
use super::console::{Step, steps};
use super::page::Section;
use super::places::mapped;
use super::plans::{Extent, PagePart};
use super::shell::{SERVE, Shell, shows};
use super::skips::skipped;
use crate::failure::{Context, Failure, Outcome};
use crate::paths;

/// Typed at a password prompt.
const PASSWORD: &str = "secret\n";
/// `curl` ends with this code at the time that `--max-time` sets.
const CURL_TIMED_OUT: i32 = 28;
/// Part of every HTTP problem document.
const PROBLEM: &str = "\"type\":\"/problems/";

/// Types all sections of a page. Each part of the plan has a folder and a node of its own.
pub(super) fn types(
    page: &str,
    sections: &[Section],
    plan: &[PagePart],
    binary: &Path,
    folder: &Path,
    tally: &mut Tally,
) -> Outcome {
    let with_commands = || sections.iter().filter(|section| section.has_commands());
    if let Some(section) = with_commands().find(|it| !plan.iter().any(|part| part.covers(it))) {
        return Err(Failure::new(format!("'{}' has commands and no plan", section.title))
            .remedy("add the section to xtask/src/guide/plans.rs"));
    }
    for (place, part) in plan.iter().enumerate() {
        let mut typist = Typist {
            page,
            part,
            shell: Shell::new(binary, &folder.join(place.to_string()))?,
            tally,
            not_compared: Vec::new(),
        };
        for (path, file) in part.links {
            typist.links(path, file)?;
        }
        typist.prepares(part.before)?;
        for section in with_commands().filter(|section| part.covers(section)) {
            println!("\n## {}", section.title);
            typist.types_section(section).map_err(|failure| {
                Failure::new(format!("'{}': {failure}", section.title))
                    .remedy(format!("logs of nodes are in {}", typist.shell.folder().display()))
            })?;
        }
        typist.shell.stops_all()?;
        typist.shell.clears()?;
    }
    Ok(())
}

struct Typist<'a> {
    page: &'a str,
    part: &'a PagePart,
    shell: Shell,
    tally: &'a mut Tally,
    /// Beginnings of commands whose output depends on one that was skipped.
    not_compared: Vec<&'static str>,
}

impl Typist<'_> {
    /// Links a file of the repository into the folder.
    fn links(&self, path: &str, file: &str) -> Outcome {
        let (from, to) = (paths::root().join(path), self.shell.folder().join(file));
        std::os::unix::fs::symlink(from, to).context(|| format!("cannot link {path}"))
    }

    fn prepares(&mut self, commands: &[&str]) -> Outcome {
        for command in commands {
            println!("# prepared:");
            let command = mapped(command, self.shell.folder());
            self.shell.types(&command)?;
            self.shell.all_ready()?;
        }
        Ok(())
    }

    fn types_section(&mut self, section: &Section) -> Outcome {
        self.writes_files(section)?;
        for block in section.blocks_in("console") {
            for step in steps(&block.lines)? {
                self.types_step(section, &step)?;
            }
        }
        Ok(())
    }

    fn writes_files(&self, section: &Section) -> Outcome {
        for file in self.part.files.iter().filter(|file| file.section == section.title) {
            let block = section.blocks_in(file.language).nth(file.place);
            let block = block.ok_or_else(|| {
                Failure::new(format!("there is no {} for {}", file.language, file.name))
            })?;
            let text = mapped(&block.lines.join("\n"), self.shell.folder());
            fs::write(self.shell.folder().join(file.name), format!("{text}\n"))
                .context(|| format!("cannot write {}", file.name))?;
        }
        Ok(())
    }

    fn types_step(&mut self, section: &Section, step: &Step) -> Outcome {
        for event in self.part.events {
            if step.command.starts_with(event.before) {
                self.prepares(event.commands)?;
            }
        }
        if let Some(skipped) = skipped(self.page, &step.command, &self.shell)? {
            println!("$ {}\n# skipped: {}", step.command, skipped.reason);
            self.tally.skipped += 1;
            if !skipped.instead.is_empty() {
                println!("# instead:");
                self.shell.types(skipped.instead)?;
                self.not_compared.extend(skipped.then_differ);
            }
            return Ok(());
        }
        let command = self.typed(&step.command);
        if command.starts_with(SERVE) {
            // One node at a time: the page starts one in place of the former.
            self.shell.stops_all()?;
        }
        let printed = if command.starts_with(SERVE) && !step.shows_an_error() {
            let name = self.shell.serves(&command)?;
            self.shell.all_ready()?;
            let printed = self.shell.printed_by(&name)?;
            shows(&printed);
            printed
        } else {
            self.enters(step, &command)?
        };
        self.tally.typed += 1;
        self.compares(section, step, &printed);
        Ok(())
    }

    /// A command with the places and the values of this run.
    fn typed(&self, command: &str) -> String {
        let mut command = mapped(command, self.shell.folder());
        for (shown, typed) in self.part.values {
            command = command.replace(shown, typed);
        }
        command
    }

    fn enters(&mut self, step: &Step, command: &str) -> Outcome<String> {
        let input = if step.shows_a_password_prompt() { PASSWORD } else { "" };
        let entered = self.shell.enters(command, input)?;
        let is_timed = command.contains("--max-time");
        if step.shows_an_error() {
            if entered.status.success() {
                return Err(Failure::new(format!(
                    "`{command}` succeeded, and the page shows its error"
                )));
            }
        } else if !(is_timed && entered.status.code() == Some(CURL_TIMED_OUT)) {
            entered.succeeded(command)?;
        }
        let shows_a_problem = step.output.iter().any(|line| line.contains(PROBLEM));
        if entered.printed.contains(PROBLEM) && !shows_a_problem {
            return Err(Failure::new(format!("`{command}`: {}", entered.printed)));
        }
        Ok(entered.printed)
    }

    fn compares(&mut self, section: &Section, step: &Step, printed: &str) {
        if self.not_compared.iter().any(|it| step.command.starts_with(it)) {
            println!("# not compared, since a command before was skipped");
            return;
        }
        let mut shown: Vec<_> =
            step.piped_output().iter().map(|line| mapped(line, self.shell.folder())).collect();
        let extent = self.part.extents.iter().find(|it| step.command.starts_with(it.command));
        if let Some(Extent { lines, reason, .. }) = extent {
            shown.truncate(*lines);
            println!("# compared: {lines} lines, since {reason}");
        }
        let is_unordered = self.part.unordered.iter().any(|it| step.command.starts_with(it));
        let difference = if is_unordered {
            shown.chunks(1).find_map(|line| difference(line, printed))
        } else {
            difference(&shown, printed)
        };
        if let Some(difference) = difference {
            println!("# DIFFERS: {difference}");
            let title = &section.title;
            let page = self.page;
            let difference = format!("{page}, '{title}': `{}`: {difference}", step.command);
            self.tally.differences.push(difference);
        }
    }
}
