//! `dwell completions SHELL`: completions of commands and flags.

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use super::common::line;
use super::exit::{Exit, Stop};

/// `dwell completions SHELL`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    pub shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<Exit, Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dwell", &mut script);
    line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Ok)
}
