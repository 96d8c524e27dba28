//! `dwell` itself, built along with this package: so its tests never run an older one.

use std::process::ExitCode;

use dwell::cli::Cli;

#[tokio::main]
async fn main() -> ExitCode {
    // Redis and NATS take the process's provider of cryptography: it must be there before their first TLS connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Cli::read() {
        Ok(cli) => cli.run().await,
        Err(exit) => exit,
    }
}
