//! Lists by pages, while jobs come and go.
