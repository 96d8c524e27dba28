//! The tokens of applications.

use std::path::PathBuf;

use super::queues::matches;
pub use super::raw::Scope;

/// `[http.tokens.NAME]`
#[derive(Debug, Clone)]
pub struct Token {
    /// The token as its bearer sends it.
    pub secret: Secret,
    /// The file that the token came from.
    pub file: Option<PathBuf>,
    /// The rights of the bearer.
    pub may: Vec<Scope>,
    /// Names and patterns of the bearer's queues.
    pub queues: Vec<String>,
}

impl Token {
    /// Whether the bearer may make calls of this kind.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.may.contains(&scope)
    }

    /// Whether the bearer may use this queue.
    #[must_use]
    pub fn has_queue(&self, queue: &str) -> bool {
        self.queues.iter().any(|pattern| matches(pattern, queue))
    }

    /// Whether the bearer may use every queue, and so the targets on brokers too.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.queues.iter().any(|pattern| pattern == "*")
    }
}

/// A secret that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret of this text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
