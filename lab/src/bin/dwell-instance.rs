//! `dwell`, built together with this package, so that its tests never run an older build.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    dwell::cli::main().await
}
