//! Selects the parts of the prelude that a script needs: Redis runs the whole text at each call,
//! and creates each of its functions again.

use std::collections::HashSet;

/// The line of a script that stands for what only the rest of its block needs of the prelude.
const PLACE: &str = "-- PRELUDE\n";
/// Where such a block ends: it begins and ends at the start of a line.
const BLOCK_END: &str = "\nend\n";

/// The script behind the definitions of `prelude` that it needs. Those that only a block needs stand
/// in this block: a call that skips the block does not create them.
pub(super) fn with_prelude(prelude: &str, script: &str) -> String {
    let mut pieces = script.split(PLACE);
    let before = pieces.next().unwrap_or_default();
    // Each block, and what follows it.
    let blocks: Vec<(&str, &str)> =
        pieces.map(|piece| piece.split_at(piece.find(BLOCK_END).unwrap_or(piece.len()))).collect();
    let outside: String =
        [before].into_iter().chain(blocks.iter().map(|(_, after)| *after)).collect();
    let everywhere = parts_for(prelude, &outside);
    let known: HashSet<&str> = definitions(&everywhere).into_iter().flat_map(names).collect();
    let mut text = everywhere.clone() + before;
    for (block, after) in blocks {
        let own = parts_for(prelude, block);
        let is_new = |piece: &&str| !names(piece).any(|name| known.contains(name));
        text.extend(definitions(&own).into_iter().filter(is_new));
        text += block;
        text += after;
    }
    text
}

/// The definitions of `prelude` that `script` names, directly or through other definitions, in
/// their order. Every definition begins with `local` at the start of a line; lines without a name
/// (a loop that fills a table) belong to the definition before them.
fn parts_for(prelude: &str, script: &str) -> String {
    let definitions = definitions(prelude);
    let mut kept = Vec::with_capacity(definitions.len());
    let mut named: HashSet<&str> = words(script).collect();
    // A definition names only earlier ones.
    for definition in definitions.into_iter().rev() {
        if names(definition).any(|name| named.contains(name)) {
            kept.push(definition);
            named.extend(words(definition));
        }
    }
    kept.reverse();
    kept.concat()
}

/// The prelude, split into definitions.
fn definitions(prelude: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    for line in prelude.split_inclusive('\n') {
        if line.starts_with("local ") {
            starts.push(at);
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([prelude.len()]);
    starts.iter().zip(ends).map(|(start, end)| &prelude[*start..end]).collect()
}

/// The names that a definition defines.
fn names(definition: &str) -> impl Iterator<Item = &str> {
    let rest = definition.strip_prefix("local ").unwrap_or_default();
    let list = match rest.strip_prefix("function ") {
        Some(function) => function.split('(').next(),
        None => rest.split(['=', '\n']).next(),
    };
    list.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The words of all lines except comments.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    code.flat_map(|line| line.split(|one: char| !one.is_ascii_alphanumeric() && one != '_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::scripts::{Name, PRELUDE};

    #[test]
    fn the_scripts_know_how_far_a_claim_reaches() {
        let line = format!(
            "local CLAIM_AHEAD = {}\n",
            crate::store::jobs::claim::MAX_CLAIM_AHEAD.as_millis()
        );
        assert!(PRELUDE.contains(&line), "{line}");
    }

    #[test]
    fn each_bucket_remembers_its_share_of_a_million_and_what_chance_adds() {
        for (buckets, share) in [(1, 1_000_000), (16, 63_468), (1024, 1101)] {
            let line = format!("local MEMORY_MAX = {share}\n");
            assert!(
                Name::Complete.source(buckets).contains(&line)
                    && Name::Cancel.source(buckets).contains(&line),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_named_is_kept_with_what_that_names() {
        let prelude = "-- head\nlocal a, b = 1, 2\nlocal function f(x)\n  return a + x\nend\n-- of g\nlocal function g() return 3 end\nlocal t = {}\n\
                       for i = 1, 2 do t[i] = i end\n";
        assert_eq!(
            parts_for(prelude, "return f(1)"),
            "local a, b = 1, 2\nlocal function f(x)\n  return a + x\nend\n-- of g\n"
        );
        assert_eq!(
            parts_for(prelude, "return t[1]"),
            "local t = {}\nfor i = 1, 2 do t[i] = i end\n"
        );
        assert_eq!(parts_for(prelude, "-- g\nreturn age, fg, b2"), "");
        assert_eq!(
            parts_for(prelude, "return b, g()"),
            "local a, b = 1, 2\nlocal function g() return 3 end\n"
        );
    }

    #[test]
    fn what_only_a_block_needs_stands_in_the_block() {
        let prelude = "local a = 1\nlocal function f() return a end\nlocal function g() return f() end\n\
                       local b = 2\n";
        let script = "if x then\n-- PRELUDE\n  if y then\n    g()\n  end\nend\nreturn a\n";
        assert_eq!(
            with_prelude(prelude, script),
            "local a = 1\nif x then\nlocal function f() return a end\nlocal function g() return f() end\n  \
             if y then\n    g()\n  end\nend\nreturn a\n"
        );
        let two = "if x then\n-- PRELUDE\n  b()\nend\nif y then\n-- PRELUDE\n  b(f)\nend\nf()\n";
        assert_eq!(
            with_prelude(prelude, two),
            "local a = 1\nlocal function f() return a end\nif x then\nlocal b = 2\n  b()\nend\n\
             if y then\nlocal b = 2\n  b(f)\nend\nf()\n"
        );
        assert_eq!(with_prelude(prelude, "return b\n"), parts_for(prelude, "b") + "return b\n");
    }

    #[test]
    fn a_schedule_of_a_new_job_creates_only_what_it_needs() {
        let source = Name::Schedule.source(16);
        let (always, block) = source.split_once("\nif not is_plain then\n").unwrap();
        assert!(
            !always.contains("local function read_state(")
                && block.contains("local function read_state(")
        );
        assert_eq!(source.matches("\nlocal NOW_US =").count(), 1, "one clock");
        assert_eq!(source.matches("\nlocal ALL_CLAIMS\n").count(), 1, "one list of claims");
    }

    #[test]
    fn the_prelude_is_nothing_but_definitions() {
        let pieces = definitions(PRELUDE);
        let head = &PRELUDE[..PRELUDE.len() - pieces.concat().len()];
        assert!(head.lines().all(|line| line.starts_with("--") || line.is_empty()), "{head}");
        assert!(pieces.iter().all(|piece| names(piece).next().is_some()));
        let all: Vec<&str> = pieces.iter().flat_map(|piece| names(piece)).collect();
        for name in Name::ALL {
            let source = name.source(16);
            for defined in &all {
                let is_there = definitions(&source)
                    .iter()
                    .any(|piece| names(piece).any(|name| name == *defined));
                assert!(
                    is_there || !words(&source).any(|word| word == *defined),
                    "{} names {defined}",
                    name.as_str()
                );
            }
        }
        assert!(
            !Name::Complete.source(16).contains("function see_master"),
            "what it does not need is left out"
        );
    }
}
