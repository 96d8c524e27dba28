//! A private nats-server: on a free loopback port, with its files in a temporary folder, ended with
//! the value.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

/// A nats-server with JetStream.
pub(crate) struct NatsServer {
    binary: PathBuf,
    folder: TempDir,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl NatsServer {
    /// Starts a server with these settings, besides port, JetStream and payload size.
    pub(crate) fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let store = folder.path().join("store");
        let base = format!(
            "listen: \"127.0.0.1:{port}\"\nmax_payload: 4MB\njetstream {{ store_dir: {store:?} }}\n"
        );
        std::fs::write(folder.path().join("nats.conf"), base + settings).unwrap();
        let server = NatsServer { binary: binary(), folder, port, child: Mutex::new(None) };
        server.run();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Restarts the process on its files.
    pub(crate) fn run(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(&self.binary);
        command
            .arg("-c")
            .arg(self.folder.path().join("nats.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::from(log));
        *self.child.lock() = Some(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.log().contains("Server is ready") {
            assert!(Instant::now() < deadline, "nats-server is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.child.lock().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Freezes or resumes the process: connections stay open and silent.
    pub(crate) fn freeze(&self, frozen: bool) {
        crate::freeze::freeze(self.child.lock().as_ref().unwrap().id(), frozen);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `DWELL_NATS_SERVER`, otherwise `nats-server` on PATH, otherwise the one that `make servers` has
/// installed in `.servers/bin` of the workspace.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("DWELL_NATS_SERVER") {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "DWELL_NATS_SERVER names {}, which is not there", named.display());
        return named;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates: Vec<PathBuf> =
        std::env::split_paths(&path).map(|folder| folder.join("nats-server")).collect();
    candidates.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.servers/bin/nats-server"));
    let found = candidates.into_iter().find(|candidate| candidate.is_file());
    found.expect(
        "no nats-server: run `make servers`, put one on PATH, or name one in DWELL_NATS_SERVER",
    )
}
