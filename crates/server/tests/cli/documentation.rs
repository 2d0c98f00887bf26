//! The documentation matches the code.

use std::path::Path;

use tasks::Task;

#[test]
fn every_task_is_in_the_documentation() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/failure.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let end = cells.nth(1)?;
        Some((name.to_owned(), end.to_owned()))
    });
    let documented: Vec<_> = rows.collect();
    let named = |task: &Task| (task.name().to_owned(), task.end().name().to_owned());
    assert_eq!(documented, Task::ALL.iter().map(named).collect::<Vec<_>>());
}
