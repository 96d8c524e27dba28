//! Tests in this process, without servers: they always run.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "tests measure time themselves")]

mod tidy;
