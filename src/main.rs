//! The one binary.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    dwell::cli::main().await
}
