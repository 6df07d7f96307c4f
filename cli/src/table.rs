//! Columns of text without borders.

use comfy_table::{CellAlignment, Color, Table};
use jiff::Timestamp;

use crate::text::brief;

/// A column of a list of `T`.
pub(crate) struct Column<T: ?Sized> {
    pub title: &'static str,
    /// Shown only where there is room.
    pub wide: bool,
    pub cell: fn(&T, Timestamp) -> Cell,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub text: String,
    pub tone: Tone,
    side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Change,
    Bad,
}

impl Cell {
    pub(crate) fn plain(text: impl ToString) -> Self {
        Cell::toned(text, Tone::Plain)
    }

    /// What people add up with their eyes: at the right.
    pub(crate) fn number(text: impl ToString) -> Self {
        Cell { side: Side::Right, ..Cell::plain(text) }
    }

    /// `-` where there is nothing.
    pub(crate) fn maybe(text: Option<impl ToString>) -> Self {
        text.map_or_else(|| Cell::plain("-"), Cell::plain)
    }

    pub(crate) fn toned(text: impl ToString, tone: Tone) -> Self {
        Cell { text: text.to_string(), tone, side: Side::Left }
    }

    /// Words that may be many.
    pub(crate) fn words(text: Option<&str>, most: usize) -> Self {
        Cell::maybe(text.map(|text| brief(text, most)))
    }
}

/// Rows under a header, as lines.
pub(crate) fn render<T>(columns: &[Column<T>], rows: &[T], wide: bool, now: Timestamp) -> String {
    let columns: Vec<_> = columns.iter().filter(|column| wide || !column.wide).collect();
    let header: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let rows =
        rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row, now)).collect()).collect();
    lines(header, rows)
}

/// The same, for columns that are known only when they are there.
pub(crate) fn lines(header: Vec<String>, rows: Vec<Vec<Cell>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).enforce_styling();
    table.style_text_only();
    table.set_header(&header);
    let first = rows.first().cloned().unwrap_or_default();
    for row in rows {
        table.add_row(row.into_iter().map(styled));
    }
    for index in 0..header.len() {
        let Some(column) = table.column_mut(index) else { continue };
        let is_last = index + 1 == header.len();
        column.set_padding((0, if is_last { 0 } else { 3 }));
        if first.get(index).is_some_and(|cell| cell.side == Side::Right) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn styled(cell: Cell) -> comfy_table::Cell {
    let text = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        Tone::Plain => text,
        Tone::Good => text.fg(Color::DarkGreen),
        Tone::Change => text.fg(Color::DarkYellow),
        Tone::Bad => text.fg(Color::DarkRed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_their_colour() {
        let rows = vec![
            vec![Cell::plain("a"), Cell::toned("ready", Tone::Good), Cell::words(Some("x\ny"), 9)],
            vec![Cell::plain("longer"), Cell::plain("-"), Cell::words(None, 9)],
        ];
        let header = ["UNIT", "STATUS", "REASON"].map(str::to_owned).to_vec();
        let text = lines(header, rows);
        assert!(text.contains("\u{1b}["), "{text:?}");
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
        UNIT     STATUS   REASON
        a        ready    x…
        longer   -        -
        ");
    }
}
