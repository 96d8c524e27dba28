//! Files import one another in one direction. Each package has a list of the circles that are left,
//! by their size: the list only becomes shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::tidy::files;

/// A module, by its path in its package.
pub(crate) type Module = Vec<String>;

/// The circles of each package, the largest first.
const CIRCLES: [(&str, &[usize]); 8] = [
    ("src", &[]),
    ("engine/src", &[]),
    ("store/src", &[]),
    ("connectors/src", &[]),
    ("core/src", &[]),
    ("schedule/src", &[]),
    ("lab/src", &[]),
    ("testkit/src", &[]),
];

/// The paths of a tree of imports, such as `a::{b, c::{d, e}}`.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let body = rest.trim().strip_suffix('}').unwrap_or(rest);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in body.chars() {
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => {
                depth += i32::from(letter == '{') - i32::from(letter == '}');
                parts.last_mut().unwrap().push(letter);
            }
        }
    }
    let whole = |part: &String| paths(&format!("{}{}", prefix.trim(), part.trim()));
    parts.iter().filter(|part| !part.trim().is_empty()).flat_map(whole).collect()
}

/// The module of a file of this package.
fn module_of(package: &Path, file: &Path) -> Module {
    let path = file.strip_prefix(package).unwrap().with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The modules that this text of `own` imports. Its ancestors and descendants do not count: a
/// module gathers what its parts define.
pub(crate) fn imports(own: &Module, text: &str, known: &BTreeSet<Module>) -> BTreeSet<Module> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = product
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = BTreeSet::new();
    for statement in
        code.split("use ").skip(1).filter_map(|rest| rest.split_once(';')).map(|(tree, _)| tree)
    {
        for path in paths(&statement.split_whitespace().collect::<Vec<_>>().join(" ")) {
            let path = path.split(" as ").next().unwrap_or_default();
            let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
            let mut target: Module = match parts[0] {
                "crate" => Vec::new(),
                "self" | "super" => own.clone(),
                first if known.contains(&[own.as_slice(), &[first.to_owned()]].concat()) => {
                    own.clone()
                }
                _ => continue,
            };
            while parts.first().is_some_and(|first| ["crate", "self", "super"].contains(first)) {
                if parts.remove(0) == "super" {
                    target.pop();
                }
            }
            target.extend(parts.iter().map(|part| (*part).to_owned()));
            while !target.is_empty() && !known.contains(&target) {
                target.pop();
            }
            if !target.starts_with(own) && !own.starts_with(&target) {
                found.insert(target);
            }
        }
    }
    found
}

/// The modules that this one reaches by imports.
fn reached(from: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen
}

/// The modules of a package without those of tests, each with its text.
pub(crate) fn modules(package: &str) -> BTreeMap<Module, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
    files(&[package], ".rs")
        .into_iter()
        .filter(|path| !path.iter().any(|part| part == "tests") && !path.ends_with("tests.rs"))
        .map(|path| (module_of(&folder, &path), fs::read_to_string(&path).unwrap()))
        .collect()
}

fn circles(package: &str) -> BTreeSet<BTreeSet<Module>> {
    let all = modules(package);
    let known: BTreeSet<Module> = all.keys().cloned().collect();
    let edges: BTreeMap<Module, BTreeSet<Module>> =
        all.iter().map(|(module, text)| (module.clone(), imports(module, text, &known))).collect();
    let closure: BTreeMap<&Module, BTreeSet<Module>> =
        known.iter().map(|module| (module, reached(module, &edges))).collect();
    let circle = |module: &Module| -> BTreeSet<Module> {
        closure[module].iter().filter(|other| closure[*other].contains(module)).cloned().collect()
    };
    known.iter().filter(|module| closure[*module].contains(*module)).map(circle).collect()
}

#[test]
fn a_tree_of_imports_is_taken_apart() {
    assert_eq!(
        paths("crate::a::{self, b::{c, d as e}, f}"),
        ["crate::a::self", "crate::a::b::c", "crate::a::b::d as e", "crate::a::f"]
    );
}

#[test]
fn a_circle_is_found_and_a_facade_is_none() {
    let module = |name: &str| -> Module { name.split("::").map(str::to_owned).collect() };
    let known = BTreeSet::from(["a", "a::b", "c"].map(module));
    assert_eq!(
        imports(&module("a::b"), "use super::{X, super::c::Y};\nuse super::super::c;", &known),
        BTreeSet::from([module("c")])
    );
    assert_eq!(
        imports(&module("a"), "mod b;\npub use b::X;\nuse crate::c::Y;", &known),
        BTreeSet::from([module("c")])
    );
}

#[test]
fn imports_go_one_way() {
    for (package, known) in CIRCLES {
        let found = circles(package);
        let mut sizes: Vec<usize> = found.iter().map(BTreeSet::len).collect();
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        let named: Vec<Vec<String>> = found
            .iter()
            .map(|circle| circle.iter().map(|module| module.join("::")).collect())
            .collect();
        assert_eq!(
            sizes, known,
            "{package}: a larger circle is new, a smaller one belongs into the list: {named:#?}"
        );
    }
}
