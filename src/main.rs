//! The one binary.

use std::process::ExitCode;

/// On macOS jemalloc has no threads of its own in the background, which it is built with here.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    dwell::cli::main().await
}
