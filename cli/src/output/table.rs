//! Tables with columns as wide as their widest cell, laid out as `kubectl` prints them.

use std::io::Write as _;

use tabwriter::TabWriter;

use super::style::{HEAD, paint};

/// Rows of cells. A cell is a text of one line, which [`paint`] may have coloured.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    indent: &'static str,
}

impl Table {
    pub fn titled(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|title| paint(HEAD, title)).collect()], indent: "" }
    }

    /// A table without titles, two columns to the right.
    pub fn indented() -> Self {
        Self { rows: Vec::new(), indent: "  " }
    }

    /// Adds a row, which may have fewer cells than others.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The lines of the table, without blanks at their ends.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut writer = TabWriter::new(Vec::new()).minwidth(0).padding(2).ansi(true);
        for row in &self.rows {
            // A column ends at the first row that lacks its cell, so each row has all cells.
            let missing = "\t".repeat(columns - row.len());
            // Writing to memory does not fail.
            let _ = writeln!(writer, "{}{}{missing}", self.indent, row.join("\t"));
        }
        let text = writer.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_short_rows_has_aligned_columns_without_trailing_blanks() {
        let mut table = Table::titled(&["NAME", "N", "NODE"]);
        table.push(vec!["├─ a".into(), "10".into(), "node-1".into()]);
        table.push(vec!["longer".into(), String::new()]);
        let text = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(text, "NAME    N   NODE\n├─ a    10  node-1\nlonger\n");
    }

    #[test]
    fn table_coloured_cell_keeps_width_of_its_text() {
        let mut table = Table::indented();
        table.push(vec![paint(super::super::BAD, "a"), "b".into()]);
        table.push(vec!["aa".into(), "b".into()]);
        assert_eq!(anstream::adapter::strip_str(&table.render()).to_string(), "  a   b\n  aa  b\n");
        assert!(table.render().contains('\u{1b}'));
    }
}
