//! `dwell-lab`: shows Dwell at work, measures it, and breaks it on purpose.

use std::process::ExitCode;

/// The allocator of `dwell`, so that what is measured in this process is measured as it is shipped.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    dwell_lab::cli::main().await
}
