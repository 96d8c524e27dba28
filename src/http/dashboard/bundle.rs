//! Joins the files of the dashboard into one script and one style for its page (`page.rs`).
//!
//! A browser takes 190 ms to load thirty small files over six connections
//! (`tests/browser/pace.py`). The sources stay separate files, and need no build step.
//!
//! Each module becomes a function that is called once, after the modules it imports, so that names
//! stay local. The bundler reads what these files use, one statement a line: `import { a, b } from
//! './x.js';`, `import * as x from './x.js';` and `export` before a function, class or constant. It
//! refuses everything else; a test reads all files.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::assets::text_of;

/// In the order of their precedence, the lowest first.
const STYLES: [&str; 3] = ["base.css", "parts.css", "pages.css"];

/// The script: `main.js` after the modules that it needs. Fails with the line that cannot be read.
pub(super) fn script() -> Result<String, String> {
    let mut bundle = Bundle::default();
    bundle.add("main.js", &mut Vec::new())?;
    Ok(bundle.text)
}

/// The style.
pub(super) fn style() -> Result<String, String> {
    STYLES.iter().map(|path| text_of(path)).collect()
}

#[derive(Default)]
struct Bundle {
    text: String,
    added: BTreeSet<String>,
}

impl Bundle {
    /// Adds a module after those that it imports. `above`: the chain of importers.
    fn add(&mut self, path: &str, above: &mut Vec<String>) -> Result<(), String> {
        if self.added.contains(path) {
            return Ok(());
        }
        if above.iter().any(|importer| importer == path) {
            return Err(format!("{path} imports itself, by way of {}", above.join(" and ")));
        }
        above.push(path.to_owned());
        let (mut body, mut exports) = (String::new(), Vec::new());
        for line in text_of(path)?.lines() {
            let unknown = || format!("{path} has a line that the bundle cannot read: {line}");
            if let Some(import) = line.strip_prefix("import ") {
                let (names, from) = import.split_once(" from './").ok_or_else(unknown)?;
                let from = from.strip_suffix("';").ok_or_else(unknown)?;
                self.add(from, above)?;
                let names = names.strip_prefix("* as ").unwrap_or(names).replace(" as ", ": ");
                let _ = writeln!(body, "const {names} = {};", variable(from));
            } else if let Some(declared) = line.strip_prefix("export ") {
                exports.push(exported(declared).ok_or_else(unknown)?);
                let _ = writeln!(body, "{declared}");
            } else {
                let _ = writeln!(body, "{line}");
            }
        }
        above.pop();
        let _ = writeln!(
            self.text,
            "const {} = (() => {{\n{body}return {{ {} }};\n}})();",
            variable(path),
            exports.join(", ")
        );
        self.added.insert(path.to_owned());
        Ok(())
    }
}

/// The variable that holds a module's exports.
fn variable(path: &str) -> String {
    format!("module_{}", path.trim_end_matches(".js"))
}

/// The declared name. `let` is refused: importers would keep its first value.
fn exported(declared: &str) -> Option<String> {
    let starts =
        ["async function* ", "async function ", "function* ", "function ", "class ", "const "];
    let rest = starts.iter().find_map(|start| declared.strip_prefix(start))?;
    let name: String =
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::assets::scripts;
    use super::*;

    #[test]
    fn every_module_is_in_the_script_once_and_behind_what_it_imports() {
        let script = script().unwrap();
        for path in scripts() {
            let begins = format!("const {} = (", variable(&path));
            assert_eq!(script.matches(&begins).count(), 1, "{path}");
            let here = script.find(&begins).unwrap();
            for line in text_of(&path).unwrap().lines().filter(|line| line.starts_with("import ")) {
                let from = line.rsplit_once("'./").unwrap().1.trim_end_matches("';");
                assert!(
                    script.find(&format!("const {} = (", variable(from))).unwrap() < here,
                    "{path} comes before {from}"
                );
            }
        }
        assert!(
            !script.lines().any(|line| line.starts_with("import ") || line.starts_with("export "))
        );
    }

    #[test]
    fn a_declaration_gives_its_name() {
        let named = [
            ("async function* every(x) {", "every"),
            ("const LATE_MS = 5;", "LATE_MS"),
            ("class Problem extends Error {", "Problem"),
        ];
        for (declared, name) in named {
            assert_eq!(exported(declared).as_deref(), Some(name));
        }
        for unread in ["let x = 1;", "default function () {", "{ a };", "* from './x.js';"] {
            assert_eq!(exported(unread), None, "{unread}");
        }
    }
}
