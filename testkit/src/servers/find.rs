//! The paths of the server programs.

use std::env;
use std::path::{Path, PathBuf};

use super::ServerError;

/// The path of `redis-server` (or Valkey's): `DWELL_REDIS_SERVER`, else `.servers/bin`, else PATH.
pub fn redis_server() -> Result<PathBuf, ServerError> {
    find(&["redis-server", "valkey-server"], "DWELL_REDIS_SERVER")
}

/// The path of a Redis that has WAITAOF (7.2, Valkey): `DWELL_REDIS_WAITAOF_SERVER`, else
/// `.servers/bin`, else PATH.
pub fn redis_server_waitaof() -> Result<PathBuf, ServerError> {
    find(&["redis-server-waitaof"], "DWELL_REDIS_WAITAOF_SERVER")
}

/// The path of Valkey: `DWELL_VALKEY_SERVER`, else `.servers/bin`, else PATH.
pub fn valkey_server() -> Result<PathBuf, ServerError> {
    find(&["valkey-server"], "DWELL_VALKEY_SERVER")
}

/// The path of `nats-server`: `DWELL_NATS_SERVER`, else `.servers/bin`, else PATH.
pub fn nats_server() -> Result<PathBuf, ServerError> {
    find(&["nats-server"], "DWELL_NATS_SERVER")
}

/// The path of `java` (17 or later): `DWELL_JAVA`, else PATH.
pub fn java() -> Result<PathBuf, ServerError> {
    find(&["java"], "DWELL_JAVA")
}

/// The folder of Kafka's jars: `DWELL_KAFKA_LIBS`, else `.servers/kafka`.
pub fn kafka_libs() -> Result<PathBuf, ServerError> {
    let named = env::var_os("DWELL_KAFKA_LIBS").filter(|path| !path.is_empty()).map(PathBuf::from);
    let here = env::current_dir().unwrap_or_default();
    let libs = named.or_else(|| {
        here.ancestors().map(|folder| folder.join(".servers/kafka")).find(|libs| libs.is_dir())
    });
    libs.and_then(|libs| libs.canonicalize().ok())
        .filter(|libs| libs.is_dir())
        .ok_or(ServerError::NoKafka)
}

/// The path of `rabbitmq-server`: `DWELL_RABBITMQ_SERVER`, else `.servers/bin`, else PATH.
pub fn rabbitmq_server() -> Result<PathBuf, ServerError> {
    find(&["rabbitmq-server"], "DWELL_RABBITMQ_SERVER")
}

/// The path of `promtool`: `DWELL_PROMTOOL`, else `.servers/bin`, else PATH.
pub fn promtool() -> Result<PathBuf, ServerError> {
    find(&["promtool"], "DWELL_PROMTOOL")
}

/// `dwell` itself: `DWELL_PROGRAM`, else the folder of this program, else the folder above, where
/// cargo keeps tests. The start reports a missing file.
pub fn dwell() -> PathBuf {
    if let Some(named) = env::var_os("DWELL_PROGRAM").filter(|path| !path.is_empty()) {
        return named.into();
    }
    let here = env::current_exe().unwrap_or_default();
    let mut beside = here.ancestors().skip(1).take(2).map(|folder| folder.join("dwell"));
    beside.find(|path| is_program(path)).unwrap_or_else(|| "dwell".into())
}

/// `.servers/bin` comes before PATH: `make servers` installs versions that are new enough.
fn find(programs: &[&'static str], variable: &'static str) -> Result<PathBuf, ServerError> {
    let not_found = ServerError::NotFound { program: programs[0], variable };
    if let Some(named) = env::var_os(variable).filter(|path| !path.is_empty()) {
        let named = PathBuf::from(named);
        return if is_program(&named) { Ok(named) } else { Err(not_found) };
    }
    // The folder of a checkout, also from inside a package: cargo runs the tests of a package in
    // its folder.
    let here = env::current_dir().unwrap_or_default();
    let checkout =
        here.ancestors().map(|folder| folder.join(".servers/bin")).find(|bin| bin.is_dir());
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = checkout.into_iter().chain(env::split_paths(&path)).collect();
    programs
        .iter()
        .flat_map(|program| folders.iter().map(move |folder| folder.join(program)))
        .find(|path| is_program(path))
        .ok_or(not_found)
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
