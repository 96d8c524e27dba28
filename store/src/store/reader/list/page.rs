//! A page of a list, and the cursor of the next one.

use crate::store::reader::lookup::StoredJob;

/// A position in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The due time, epoch ms.
    pub at_ms: i64,
    /// The job's id.
    pub id: String,
}

/// A page of a list.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Page {
    /// The jobs, by due time and then by id, without their bodies.
    pub jobs: Vec<StoredJob>,
    /// The cursor of the next page, if more jobs may follow.
    pub next: Option<Cursor>,
    /// Ids whose record cannot be read, each with the reason.
    pub unreadable: Vec<(String, String)>,
    /// The bytes of the headers.
    pub(super) bytes: usize,
}
