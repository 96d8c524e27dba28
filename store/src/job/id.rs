//! The id of a job.

use serde::{Deserialize, Serialize};

/// The id of a job: 1 to 256 bytes of UTF-8 without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    /// The most bytes of an id.
    pub const MAX_BYTES: usize = 256;

    /// The id, or why the text is not valid.
    pub fn new(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        if text.is_empty() {
            return Err("an id must not be empty".to_owned());
        }
        if text.len() > Self::MAX_BYTES {
            return Err(format!(
                "an id has at most {} bytes, this one has {}",
                Self::MAX_BYTES,
                text.len()
            ));
        }
        if text.chars().any(char::is_control) {
            return Err("an id must not contain control characters".to_owned());
        }
        Ok(JobId(text))
    }

    /// A new id: 32 hexadecimal digits, random.
    #[must_use]
    pub fn random() -> Self {
        JobId(format!("{:032x}", rand::random::<u128>()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        JobId::new(text)
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
