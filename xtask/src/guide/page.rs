//! What is to be typed, as a page of the documentation has it.

/// A section of the page, with the lines of its blocks of shell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) commands: Vec<String>,
}

impl Section {
    /// A name for a folder.
    pub(super) fn folder(&self) -> String {
        self.title.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
    }
}

/// Blocks may be indented, as those in lists are.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut is_shell = false;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title: title.to_owned(), commands: Vec::new() });
            continue;
        }
        let line = line.trim();
        if line.starts_with("```") {
            is_shell = line == "```sh";
        } else if is_shell
            && !line.is_empty()
            && let Some(section) = sections.last_mut()
        {
            section.commands.push(line.to_owned());
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_shell_are_commands_and_no_others_are() {
        let text = "# T\n\n## One\nwords\n```sh\na --b\n\nc\n```\n```text\nsaid\n```\n## Two\n* x\n  ```sh\n  d\n  ```\n";
        let section = |title: &str, commands: &[&str]| Section {
            title: title.to_owned(),
            commands: commands.iter().map(|&it| it.to_owned()).collect(),
        };
        assert_eq!(sections(text), [section("One", &["a --b", "c"]), section("Two", &["d"])]);
        assert_eq!(section("What a day: is", &[]).folder(), "what-a-day--is");
    }
}
