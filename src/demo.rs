//! What `dwell demo` shows.
