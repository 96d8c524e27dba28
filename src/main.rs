//! The binary.

use std::process::ExitCode;

/// On macOS this build of jemalloc has no background threads.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    dwell::cli::main()
}
