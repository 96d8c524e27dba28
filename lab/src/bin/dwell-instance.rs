//! `dwell`, built together with this package, so that its tests never run an older build.

use std::process::ExitCode;

fn main() -> ExitCode {
    dwell::cli::main()
}
