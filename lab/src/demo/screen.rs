//! The output of the demo: lines above a progress bar in a terminal, plain lines elsewhere, or
//! nothing.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The output of the demo.
pub enum Screen {
    /// A terminal: lines, and a progress bar below them.
    Live(ProgressBar),
    /// Lines only.
    Plain,
    /// Nothing: the caller wants one JSON object.
    Silent,
}

impl Screen {
    /// Lines on stdout, with a bar of this many steps in a terminal; nothing if `silent`.
    pub fn new(silent: bool, steps: usize) -> Self {
        if silent {
            return Screen::Silent;
        }
        if !io::stdout().is_terminal() {
            return Screen::Plain;
        }
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stdout());
        // The template is a valid constant.
        if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {pos}/{len}  {msg}") {
            bar.set_style(style.progress_chars("━━─"));
        }
        Screen::Live(bar)
    }

    /// Prints a line.
    ///
    /// # Errors
    /// Stdout is closed.
    pub fn say(&self, line: &str) -> io::Result<()> {
        match self {
            Screen::Live(bar) => {
                bar.println(line);
                Ok(())
            }
            Screen::Plain => {
                let mut out = io::stdout().lock();
                writeln!(out, "{line}")?;
                out.flush()
            }
            Screen::Silent => Ok(()),
        }
    }

    /// Shows the progress and the next due time in a terminal.
    pub fn waiting(&self, done: usize, waiting: u64, next_in_ms: Option<i64>) {
        let Screen::Live(bar) = self else { return };
        bar.set_position(done as u64);
        let next = next_in_ms.map_or(String::new(), |ms| {
            format!(", next in {}.{} s", ms.max(0) / 1000, ms.max(0) % 1000 / 100)
        });
        bar.set_message(format!("{waiting} waiting{next}"));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        if let Screen::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}
