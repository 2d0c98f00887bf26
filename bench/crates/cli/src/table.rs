//! Tables for a terminal, with columns as wide as their content.

/// Renders the rows under the heads, in columns.
pub(crate) fn render(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| {
            let missing = width - cell.chars().count();
            format!("{cell}{}", " ".repeat(missing))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut table = line(&mut heads.iter().copied());
    table += &line(
        &mut widths
            .iter()
            .map(|width| "-".repeat(*width))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str),
    );
    for row in rows {
        table += &line(&mut row.iter().map(String::as_str));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "longer".to_owned()], vec!["ü".into(), "b".into()]];
        let table = render(&["one", "two"], &rows);
        assert_eq!(table, "one  two\n---  ------\na    longer\nü    b\n");
    }
}
