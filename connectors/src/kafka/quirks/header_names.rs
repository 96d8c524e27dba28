//! Headers whose names are not UTF-8.
//!
//! - Behaviour: Kafka's names of headers are any bytes; `BorrowedHeaders::try_get` of rdkafka 0.39
//!   panics on a name that is not UTF-8, and has no other way to the name or the value.
//! - Workaround: the panic is caught, and a panic hook does not print it. The message is told as
//!   unreadable, with the position of the header.
//! - May go with an rdkafka that returns the bytes of a name.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use rdkafka::message::{BorrowedHeaders, Header, Headers as _};

thread_local! {
    /// Whether this thread reads a header.
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// The header at this index; `None` if its name is not UTF-8.
pub(in crate::kafka) fn get(list: &BorrowedHeaders, index: usize) -> Option<Header<'_, &[u8]>> {
    quiet(|| list.try_get(index)).flatten()
}

/// Runs the work; `None` if it panicked, which nothing prints.
fn quiet<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !READING.get() {
                print(panic);
            }
        }));
    });
    READING.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    READING.set(false);
    result.ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs itself once more: the output of a test is shared with others.
    #[test]
    fn only_the_panic_of_a_header_is_not_printed() {
        const NAME: &str =
            "kafka::quirks::header_names::tests::only_the_panic_of_a_header_is_not_printed";
        const INSIDE: &str = "DWELL_TEST_HEADER_PANIC";
        if std::env::var_os(INSIDE).is_some() {
            assert!(quiet::<()>(|| panic!("of a header")).is_none());
            assert!(catch_unwind::<_, ()>(|| panic!("of something else")).is_err());
            return;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        assert!(
            printed.contains("of something else") && !printed.contains("of a header"),
            "{printed}"
        );
    }
}
