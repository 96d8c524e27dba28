//! `dwell` itself, built along with this package: so its tests never run an older one.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    dwell::cli::main().await
}
