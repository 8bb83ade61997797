//! Columns that are as wide as their widest cell, as `kubectl` prints them.

use anstyle::Style;

use super::style::{HEAD, paint};

/// Between two columns.
const GAP: usize = 2;

/// One cell: a text and its style.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A text in this style.
    pub fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

/// Rows of cells. The last column is not padded and may be of any length.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
    indent: usize,
}

impl Table {
    /// A table with these titles.
    pub fn titled(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|title| Cell::new(HEAD, *title)).collect()], indent: 0 }
    }

    /// A table without titles, so many columns to the right.
    pub fn indented(indent: usize) -> Self {
        Self { rows: Vec::new(), indent }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The lines.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let texts = self.rows.iter().filter_map(|row| row.get(column));
            texts.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            let last = row.iter().rposition(|cell| !cell.text.is_empty());
            for (column, cell) in row.iter().enumerate().take_while(|(column, _)| Some(*column) <= last) {
                line += &paint(cell.style, &cell.text);
                if Some(column) < last {
                    line += &" ".repeat(widths[column] - cell.text.chars().count() + GAP);
                }
            }
            text += &line;
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_nothing_ends_in_blanks() {
        let mut table = Table::titled(&["NAME", "N", "NODE"]);
        table.push(vec!["├─ a".into(), "10".into(), "node-1".into()]);
        table.push(vec!["longer".into(), Cell::default(), Cell::default()]);
        let text = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(text, "NAME    N   NODE\n├─ a    10  node-1\nlonger\n");
    }

    #[test]
    fn a_style_takes_no_room() {
        let mut table = Table::indented(2);
        table.push(vec![Cell::new(super::super::BAD, "a"), "b".into()]);
        table.push(vec!["aa".into(), "b".into()]);
        assert_eq!(anstream::adapter::strip_str(&table.render()).to_string(), "  a   b\n  aa  b\n");
        assert!(table.render().contains('\u{1b}'));
    }
}
