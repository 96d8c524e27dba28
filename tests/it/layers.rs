//! Modules that must not know others. A further rule is a line.

use std::collections::BTreeSet;

use super::broker_names::code;
use super::circles::{Module, imports, modules};

/// A package, a module of it, the module that its files must not name, and the reason.
const RULES: [(&str, &str, &str, &str); 2] = [
    ("src", "http::server", "http::api", "the server knows no call"),
    ("src", "http::server", "http::dashboard", "the server knows no page"),
];

fn module(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

#[test]
fn no_module_names_what_it_must_not_know() {
    for (package, from, to, reason) in RULES {
        let all = modules(package);
        let known: BTreeSet<Module> = all.keys().cloned().collect();
        for path in [from, to] {
            assert!(known.contains(&module(path)), "{package} has no module {path}");
        }
        let names = |own: &Module, text: &str| {
            imports(own, text, &known).iter().any(|target| target.starts_with(&module(to)))
                || code(text).any(|(_, line)| line.contains(&format!("crate::{to}::")))
        };
        let found: Vec<String> = all
            .iter()
            .filter(|(own, text)| own.starts_with(&module(from)) && names(own, text))
            .map(|(own, _)| own.join("::"))
            .collect();
        assert!(found.is_empty(), "{reason}, but {to} is named in {found:?}");
    }
}
