//! A page of the documentation as sections with their fenced blocks.

/// Languages of blocks with commands.
const SHELLS: [&str; 5] = ["sh", "console", "bash", "shell", "shell-session"];

/// A fenced block, without its fences and the indentation of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) language: String,
    pub(super) lines: Vec<String>,
}

/// The blocks below a heading of the second level. Those above the first such heading have an empty title.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

impl Section {
    /// The lines of the blocks in `sh`, each of which is a command.
    pub(super) fn commands(&self) -> Vec<&str> {
        let lines = self.blocks_in("sh").flat_map(|block| &block.lines);
        lines.map(|line| line.trim()).filter(|line| !line.is_empty()).collect()
    }

    pub(super) fn blocks_in(&self, language: &str) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.language == language)
    }

    pub(super) fn has_commands(&self) -> bool {
        self.blocks.iter().any(|block| SHELLS.contains(&block.language.as_str()))
    }

    /// The language of a block with commands, if it differs from the language of the page.
    pub(super) fn other_shell(&self, language: &str) -> Option<&str> {
        let mut languages = self.blocks.iter().map(|block| block.language.as_str());
        languages.find(|it| *it != language && SHELLS.contains(it))
    }

    /// A name for a folder.
    pub(super) fn folder(&self) -> String {
        self.title.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
    }
}

/// Reads the sections of a page. A line in a block is never a heading.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let section = |title: &str| Section { title: title.to_owned(), blocks: Vec::new() };
    let mut sections = vec![section("")];
    // The open block with the indentation of its fence.
    let mut open: Option<(Block, usize)> = None;
    for line in text.lines() {
        let inner = line.trim_start();
        let fence = inner.strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                open = Some((Block { language, lines: Vec::new() }, line.len() - inner.len()));
            }
            (None, None) => {
                if let Some(title) = line.strip_prefix("## ") {
                    sections.push(section(title));
                }
            }
            (Some(_), Some(_)) => {
                let last = sections.last_mut().expect("there is always a section");
                last.blocks.extend(open.take().map(|(block, _)| block));
            }
            (Some((block, indent)), None) => {
                let is_indented = line.len() >= *indent
                    && line.as_bytes()[..*indent].iter().all(|&it| it == b' ');
                block.lines.push(if is_indented { &line[*indent..] } else { inner }.to_owned());
            }
        }
    }
    if let Some((block, _)) = open {
        sections.last_mut().expect("there is always a section").blocks.push(block);
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_sh_blocks_are_commands_and_no_others_are() {
        let text = "# T\n\n## One\nwords\n```sh\na --b\n\nc\n```\n```text\nsaid\n```\n## Two\n* x\n  ```sh\n  d\n  ```\n";
        let sections = sections(text);
        let titles: Vec<_> = sections.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["", "One", "Two"]);
        assert!(!sections[0].has_commands());
        assert_eq!(sections[1].commands(), ["a --b", "c"]);
        assert_eq!(sections[2].commands(), ["d"]);
    }

    #[test]
    fn blocks_keep_their_language_and_lose_the_indentation_of_the_list() {
        let sections = sections("```toml\na = 1\n```\n* x\n  ```console\n  $ b\n    c\n\n  ```\n");
        let block = |language: &str, lines: &[&str]| Block {
            language: language.to_owned(),
            lines: lines.iter().map(|&it| it.to_owned()).collect(),
        };
        let blocks = [block("toml", &["a = 1"]), block("console", &["$ b", "  c", ""])];
        assert_eq!(sections[0].blocks, blocks);
        assert!(sections[0].has_commands());
    }

    #[test]
    fn line_of_a_block_that_looks_like_a_heading_begins_no_section() {
        let sections = sections("## One\n```console\n$ a\n## b\n```\n");
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[1].blocks[0].lines, ["$ a", "## b"]);
    }

    #[test]
    fn block_of_commands_in_another_language_is_found() {
        let section = &sections("```bash\na\n```\n```toml\nb = 1\n```")[0];
        assert!(section.has_commands());
        assert_eq!(section.other_shell("console"), Some("bash"));
        assert_eq!(section.other_shell("bash"), None);
    }

    #[test]
    fn folder_of_a_section_has_letters_digits_and_dashes() {
        let section = Section { title: "What a day: is".to_owned(), blocks: Vec::new() };
        assert_eq!(section.folder(), "what-a-day--is");
    }
}
