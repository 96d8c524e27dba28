//! libFuzzer over one target, which `DWELL_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("DWELL_FUZZ_TARGET").unwrap_or_default();
    let names = dwell_fuzz::TARGETS.map(|(name, _)| name).join(", ");
    let found = dwell_fuzz::TARGETS.into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("DWELL_FUZZ_TARGET is {name:?}: name one of {names}")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
