//! How a command ends: its exit code, and its error.

use std::process::ExitCode;

use dwell_connectors::ConnectorError;

use crate::config::Problem;
use crate::request::Code;
use crate::runtime::{Cause, StartError};
use crate::store::error::{Class, StoreError};

/// The exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Ok,
    /// An error without a code of its own.
    Failed,
    /// Not found or too late: a verdict other than the one asked for.
    NotFound,
    /// The command line is not valid.
    Usage,
    /// Redis or a broker cannot be reached, refuses access, or does not have what the settings
    /// name.
    Unavailable,
    /// The settings are not valid, or can never work with these servers.
    Settings,
}

impl Exit {
    /// The number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::NotFound => 2,
            Exit::Usage => 64,
            Exit::Unavailable => 69,
            Exit::Settings => 78,
        }
    }

    /// The code of a failed start.
    #[must_use]
    pub fn of(cause: Cause) -> Self {
        match cause {
            Cause::Settings => Exit::Settings,
            Cause::Refused | Cause::Missing | Cause::Unreachable => Exit::Unavailable,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why a command stopped early; not printed yet.
#[derive(Debug)]
pub enum Stop {
    /// Mistakes in the settings.
    Settings(Vec<Problem>),
    /// Anything else.
    Because {
        /// The exit code.
        exit: Exit,
        /// What failed, and where; without secrets.
        message: String,
        /// What to do about it; may be empty.
        hint: String,
    },
}

impl Stop {
    /// Stops with this code, message and hint.
    pub fn because(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Stop::Because { exit, message: message.into(), hint: hint.into() }
    }

    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Stop::Settings(_) => Exit::Settings,
            Stop::Because { exit, .. } => *exit,
        }
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stop::Settings(problems) => {
                let count = problems.len();
                write!(
                    f,
                    "error: {count} {} in the settings",
                    if count == 1 { "mistake" } else { "mistakes" }
                )?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Stop::Because { message, hint, .. } if hint.is_empty() => write!(f, "error: {message}"),
            Stop::Because { message, hint, .. } => write!(f, "error: {message}\n  {hint}"),
        }
    }
}

impl From<Vec<Problem>> for Stop {
    fn from(problems: Vec<Problem>) -> Self {
        Stop::Settings(problems)
    }
}

/// Damage has no exit code of its own.
impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error.class {
            Class::Script if error.is_unreadable() => {
                let code = Code::UnreadableJob.as_str();
                Stop::because(Exit::Failed, format!("{code}: {}", error.message), error.hint)
            }
            Class::Script
            | Class::Outdated
            | Class::NoScript
            | Class::QueueFull
            | Class::Taken
            | Class::TooManyPaused
            | Class::Memory => Stop::because(Exit::Failed, error.message, error.hint),
            _ => StartError::from(error).into(),
        }
    }
}

impl From<ConnectorError> for Stop {
    fn from(error: ConnectorError) -> Self {
        StartError::from(error).into()
    }
}

/// A closed pipe (`dwell ls | head`) is no failure.
impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Stop::because(Exit::Ok, "", ""),
            _ => Stop::because(Exit::Failed, error.to_string(), ""),
        }
    }
}
