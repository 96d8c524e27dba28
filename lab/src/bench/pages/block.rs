//! The pieces of a page, in Markdown and in HTML.

use super::super::report::Figure;

/// A piece of a page.
pub(super) enum Block {
    Heading(String),
    Text(String),
    List(Vec<String>),
    Code(String),
    /// The first row is the head.
    Table(Vec<Vec<String>>),
    /// File name, caption and plot.
    Picture {
        name: String,
        title: String,
        svg: String,
    },
}

impl Block {
    /// In Markdown; a plot is a link to its file.
    pub(super) fn markdown(&self) -> String {
        match self {
            Block::Heading(text) => format!("## {text}"),
            Block::Text(text) => text.clone(),
            Block::List(items) => format!("- {}", items.join("\n- ")),
            Block::Code(text) => format!("```sh\n{text}\n```"),
            Block::Table(rows) => {
                let line = |row: &Vec<String>| {
                    let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
                    format!("| {} |", cells.join(" | "))
                };
                let mut lines: Vec<String> = rows.iter().map(line).collect();
                lines.insert(1, format!("|{}", "---|".repeat(rows[0].len())));
                lines.join("\n")
            }
            Block::Picture { name, title, .. } => format!("![{title}](images/{name})"),
        }
    }

    /// In HTML, with the plot itself.
    pub(super) fn html(&self) -> String {
        match self {
            Block::Heading(text) => format!("<h2>{}</h2>", escaped(text)),
            Block::Text(text) => format!("<p>{}</p>", escaped(text)),
            Block::List(items) => format!("<ul>{}</ul>", cells("li", items)),
            Block::Code(text) => format!("<pre>{}</pre>", escaped(text)),
            Block::Table(rows) => {
                let tags = std::iter::once("th").chain(std::iter::repeat("td"));
                let rows = tags.zip(rows).map(|(tag, row)| format!("<tr>{}</tr>", cells(tag, row)));
                format!("<div class=\"wide\"><table>{}</table></div>", rows.collect::<String>())
            }
            Block::Picture { title, svg, .. } => {
                format!("<figure aria-label=\"{}\">{svg}</figure>", escaped(title))
            }
        }
    }
}

fn cells(tag: &str, texts: &[String]) -> String {
    texts.iter().map(|text| format!("<{tag}>{}</{tag}>", escaped(text))).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A value in a table.
pub(super) fn cell(figure: &Figure) -> String {
    let range = figure.range_without_unit();
    if range.is_empty() { figure.shown() } else { format!("{} ({range})", figure.shown()) }
}
