//! The docs against the code: links, generated pages, and the names that ARCHITECTURE.md gives.
//! None of it needs a server.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod architecture;
mod codes;
mod commands;
mod links;
mod pages;
mod schedules;
mod settings;
