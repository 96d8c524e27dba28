//! A mistake in the settings: the setting, its source, the mistake and the remedy. Never shows a
//! secret.

use serde::Serialize;

/// One mistake in the settings. All of them are reported at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The setting, such as `delivery.ttr`; empty for the file as a whole.
    pub key: String,
    /// Where it was written: `dwell.toml:12`, `DWELL_DELIVERY__TTR`, `--set delivery.ttr`, or
    /// `default`.
    pub source: String,
    /// The mistake.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.source, self.message)?;
        } else {
            write!(f, "{} ({}): {}", self.key, self.source, self.message)?;
        }
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}
