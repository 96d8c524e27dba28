//! The page as one HTML file with its style and plots.

use super::block::Block;

const STYLE: &str = ":root{color-scheme:light dark;--ink:#1f2933;--ground:#fff;--line:#d8dee6}\
@media (prefers-color-scheme:dark){:root{--ink:#e5e7eb;--ground:#151a21;--line:#3b4452}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);max-width:76rem;margin:2rem auto;padding:0 1rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}th,td{border-bottom:1px solid var(--line);padding:.35rem .6rem;text-align:left;vertical-align:top}\
pre{border:1px solid var(--line);padding:.75rem;overflow-x:auto}figure{margin:1rem 0}svg{max-width:100%;height:auto}";

/// The page.
pub(super) fn page(blocks: &[Block]) -> String {
    let mut body = String::new();
    for block in blocks {
        body += &match block {
            Block::Heading(text) => format!("<h2>{}</h2>", escaped(text)),
            Block::Text(text) => format!("<p>{}</p>", escaped(text)),
            Block::List(items) => format!("<ul>{}</ul>", cells("li", items)),
            Block::Code(text) => format!("<pre>{}</pre>", escaped(text)),
            Block::Table { head, rows } => {
                let rows: String =
                    rows.iter().map(|row| format!("<tr>{}</tr>", cells("td", row))).collect();
                format!(
                    "<div class=\"wide\"><table><tr>{}</tr>{rows}</table></div>",
                    cells("th", head)
                )
            }
            Block::Picture { title, svg, .. } => {
                format!("<figure aria-label=\"{}\">{svg}</figure>", escaped(title))
            }
        };
        body.push('\n');
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Dwell: performance</title>\n<style>{STYLE}</style>\n<h1>Dwell: performance</h1>\n{body}</html>\n"
    )
}

fn cells(tag: &str, texts: &[String]) -> String {
    texts.iter().map(|text| format!("<{tag}>{}</{tag}>", escaped(text))).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
