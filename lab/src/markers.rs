//! Pages that people and programs write together: the generated part stands between two marker
//! lines.

/// The two marker lines around the generated part of a page.
#[derive(Debug, Clone, Copy)]
pub struct Markers {
    /// The line before the generated part.
    pub begin: &'static str,
    /// The line after the generated part.
    pub end: &'static str,
}

impl Markers {
    /// Replaces the generated part of a page and leaves the rest as it is. Appends the part to a
    /// page without markers.
    pub fn splice(self, page: &str, generated: &str) -> String {
        let Markers { begin, end } = self;
        let (before, after) = match (page.find(begin), page.find(end)) {
            (Some(from), Some(to)) if from < to => {
                (page[..from].to_owned(), &page[to + end.len()..])
            }
            _ => (format!("{}\n\n", page.trim_end()), "\n"),
        };
        format!("{before}{begin}\n\n{}\n{end}{after}", generated.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_generated_part_is_replaced() {
        let markers = Markers { begin: "<!-- begin -->", end: "<!-- end -->" };
        let first = markers.splice("# Mine\n", "old");
        assert_eq!(first, "# Mine\n\n<!-- begin -->\n\nold\n<!-- end -->\n");
        let second = markers.splice(&format!("{first}\nMore.\n"), "\nnew\n");
        assert_eq!(second, "# Mine\n\n<!-- begin -->\n\nnew\n<!-- end -->\n\nMore.\n");
        assert_eq!(markers.splice(&second, "new"), second);
    }
}
