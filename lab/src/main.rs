//! `dwell-lab`: shows Dwell at work, measures it, and tests it under faults.

use std::process::ExitCode;

/// The allocator of `dwell`, so that measurements in this process match the shipped program.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    dwell_lab::cli::main().await
}
