//! The output of the demo: lines above a progress bar in a terminal, plain lines elsewhere, or
//! nothing.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The output of the demo.
pub struct Screen {
    /// Shown in a terminal only.
    bar: ProgressBar,
    /// The caller wants one JSON object, and no lines.
    silent: bool,
}

impl Screen {
    /// Lines on stdout, with a bar of this many steps in a terminal; nothing if `silent`.
    pub fn new(silent: bool, steps: usize) -> Self {
        let target =
            if silent { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stdout() };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        // The template is a valid constant.
        if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {pos}/{len}  {msg}") {
            bar.set_style(style.progress_chars("━━─"));
        }
        Screen { bar, silent }
    }

    /// Prints a line.
    ///
    /// # Errors
    /// Stdout is closed.
    pub fn say(&self, line: &str) -> io::Result<()> {
        if self.silent {
            return Ok(());
        }
        self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()
        })
    }

    /// Shows the progress and the next due time in a terminal.
    pub fn waiting(&self, done: usize, waiting: u64, next_in_ms: Option<i64>) {
        self.bar.set_position(done as u64);
        let next = next_in_ms.map_or(String::new(), |ms| {
            format!(", next in {}.{} s", ms.max(0) / 1000, ms.max(0) % 1000 / 100)
        });
        self.bar.set_message(format!("{waiting} waiting{next}"));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
