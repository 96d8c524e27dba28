//! The pieces of a page.

use super::super::report::Figure;

/// A piece of a page.
pub(super) enum Block {
    Heading(String),
    Text(String),
    List(Vec<String>),
    Code(String),
    Table {
        head: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// File name, caption and plot.
    Picture {
        name: String,
        title: String,
        svg: String,
    },
}

/// A value in a table.
pub(super) fn cell(figure: &Figure) -> String {
    let range = figure.range_without_unit();
    if range.is_empty() { figure.shown() } else { format!("{} ({range})", figure.shown()) }
}
