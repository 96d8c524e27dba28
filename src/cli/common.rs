//! The flags of every command, and its output.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::exit::Stop;
use super::table::steers;
use crate::config::{self, Overrides, Settings};
use crate::job::JobId;

/// The flags of every command.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Settings file (TOML)
    #[arg(short, long, global = true, value_name = "FILE", env = "DWELL_CONFIG")]
    pub config: Option<PathBuf>,
    /// Override one setting of file and environment: --set delivery.ttr=10s
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Format of the output; json prints one object per line
    #[arg(short, long, global = true, value_name = "FORM", default_value = "text")]
    pub output: Form,
}

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Common {
    /// The settings that these flags select.
    ///
    /// # Errors
    /// All mistakes in the settings.
    pub fn settings(&self) -> Result<Settings, Stop> {
        Ok(config::load(self.config.as_deref(), Overrides { set: self.set.clone() })?)
    }

    /// Writes one answer to stdout, as JSON or text.
    ///
    /// # Errors
    /// Stdout is closed: the command has no more to do.
    pub fn answer(&self, object: &impl Serialize, text: &str) -> Result<(), Stop> {
        match self.output {
            Form::Text => line(text),
            Form::Json => line(&json(object)?),
        }
    }
}

/// One line of JSON. Escapes the control characters that JSON leaves as they are (from U+007F on);
/// only strings hold them.
///
/// # Errors
/// Never for answers of commands: their maps have text as keys.
pub fn json(object: &impl Serialize) -> Result<String, Stop> {
    let text = serde_json::to_string(object).map_err(std::io::Error::from)?;
    if !text.chars().any(steers) {
        return Ok(text);
    }
    // None of them is beyond U+FFFF.
    Ok(text
        .chars()
        .map(|c| if steers(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() })
        .collect())
}

/// Writes a line to stdout and flushes.
///
/// # Errors
/// Stdout is closed.
pub fn line(text: &str) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or("write SECTION.KEY=VALUE, such as delivery.ttr=10s")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

/// Parses a job's id.
pub(super) fn job_id(text: &str) -> Result<JobId, String> {
    JobId::new(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn json_holds_nothing_that_steers_a_terminal_and_reads_the_same() {
        let text = "\u{1b}[2J \u{9b}2J \u{7f} \u{202e}gpj ü";
        let line = json(&text).unwrap();
        assert_eq!(line, r#""\u001b[2J \u009b2J \u007f \u202egpj ü""#);
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
