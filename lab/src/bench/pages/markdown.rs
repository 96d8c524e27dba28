//! The page as Markdown, with its plots in separate files.

use std::fmt::Write;

use super::block::Block;

/// The page.
pub(super) fn page(blocks: &[Block]) -> String {
    let mut page = String::new();
    for block in blocks {
        let text = match block {
            Block::Heading(text) => format!("## {text}"),
            Block::Text(text) => text.clone(),
            Block::List(items) => {
                items.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n")
            }
            Block::Code(text) => format!("```sh\n{text}\n```"),
            Block::Table { head, rows } => table(head, rows),
            Block::Picture { name, title, .. } => format!("![{title}](images/{name})"),
        };
        page += &text;
        page += "\n\n";
    }
    page
}

/// The files of the plots.
pub(super) fn pictures(blocks: &[Block]) -> impl Iterator<Item = (&str, &str)> {
    blocks.iter().filter_map(|block| match block {
        Block::Picture { name, svg, .. } => Some((name.as_str(), svg.as_str())),
        _ => None,
    })
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        format!(
            "| {} |",
            cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | ")
        )
    };
    let mut table = line(head);
    // Writing to a String does not fail.
    let _ = write!(table, "\n|{}", "---|".repeat(head.len()));
    for row in rows {
        let _ = write!(table, "\n{}", line(row));
    }
    table
}
