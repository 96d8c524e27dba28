//! A private RabbitMQ: on free loopback ports, with its files in a temporary folder, ended by its
//! process id.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::certificates;

/// A RabbitMQ with the users, vhosts and permissions of [`DEFINITIONS`], and TLS on a second port.
pub(crate) struct RabbitServer {
    binary: PathBuf,
    folder: TempDir,
    port: u16,
    tls_port: u16,
    life: Mutex<Option<Life>>,
}

/// One run of the process. A static is never dropped, so a watchdog ends the process and removes
/// its folder when the test process ends, however that happens.
struct Life {
    process: Child,
    watchman: Child,
}

/// The most bytes of a body: more than the largest of the suite.
pub(crate) const MAX_BODY_BYTES: u64 = 4 << 20;

/// `some` may read and write queues and exchanges whose names start with `some-`; `outside` may log
/// in and has no permissions on `/`.
const DEFINITIONS: &str = r#"{
  "users": [
    {"name": "guest", "password": "guest", "tags": "administrator"},
    {"name": "some", "password": "pa:ss@w%rd", "tags": ""},
    {"name": "outside", "password": "p", "tags": ""},
    {"name": "crowd", "password": "p", "tags": "", "limits": {"max-connections": 0}},
    {"name": "mute", "password": "p", "tags": "", "limits": {"max-channels": 0}}
  ],
  "vhosts": [{"name": "/"}, {"name": "a/b"}, {"name": "full"}],
  "parameters": [{"vhost": "full", "component": "vhost-limits", "name": "limits", "value": {"max-connections": 0}}],
  "permissions": [
    {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "guest", "vhost": "a/b", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "guest", "vhost": "full", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "crowd", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "mute", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "some", "vhost": "/", "configure": "", "write": "some-.*", "read": "some-.*"}
  ]
}"#;

static SHARED: OnceCell<RabbitServer> = OnceCell::const_new();
static VICTIM: OnceCell<tokio::sync::Mutex<RabbitServer>> = OnceCell::const_new();

/// The server of the tests that do it no harm; they use new names.
pub(crate) async fn shared() -> &'static RabbitServer {
    SHARED.get_or_init(RabbitServer::start).await
}

/// A server for tests that break it, for one at a time; each leaves it as it was.
pub(crate) async fn victim() -> tokio::sync::MutexGuard<'static, RabbitServer> {
    VICTIM
        .get_or_init(async || tokio::sync::Mutex::new(RabbitServer::start().await))
        .await
        .lock()
        .await
}

impl RabbitServer {
    async fn start() -> Self {
        tokio::task::spawn_blocking(|| {
            let folder = tempfile::Builder::new().prefix("dwell-rabbit-").tempdir().unwrap();
            let server = RabbitServer {
                binary: binary(),
                folder,
                port: free_port(),
                tls_port: free_port(),
                life: Mutex::new(None),
            };
            server.configure();
            server.run();
            server
        })
        .await
        .unwrap()
    }

    fn configure(&self) {
        let path = |name: &str| self.folder.path().join(name);
        certificates::write(self.folder.path());
        std::fs::write(path("definitions.json"), DEFINITIONS).unwrap();
        std::fs::write(path("plugins"), "[].\n").unwrap();
        let config = format!(
            "listeners.tcp.local = 127.0.0.1:{}\nlisteners.ssl.local = 127.0.0.1:{}\nssl_options.cacertfile = {}\n\
             ssl_options.certfile = {}\nssl_options.keyfile = {}\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n\
             load_definitions = {}\nmax_message_size = {MAX_BODY_BYTES}\nloopback_users = none\ndisk_free_limit.absolute = 1MB\n\
             log.console = true\nlog.console.level = warning\nlog.file = false\n",
            self.port,
            self.tls_port,
            path("ca.pem").display(),
            path("server.pem").display(),
            path("server.key").display(),
            path("definitions.json").display(),
        );
        std::fs::write(path("rabbitmq.conf"), config).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://{}", self.address())
    }

    pub(crate) fn tls_url(&self) -> String {
        format!("amqps://127.0.0.1:{}", self.tls_port)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn node(&self) -> String {
        format!("dwell-{}-{}@localhost", std::process::id(), self.port)
    }

    /// Sets the environment of the server and its tools: nothing of the machine's own.
    fn surroundings(&self, command: &mut Command) {
        let path = |name: &str| self.folder.path().join(name);
        command
            .env("HOME", self.folder.path())
            .env("RABBITMQ_NODENAME", self.node())
            .env("RABBITMQ_CONF_ENV_FILE", path("none"))
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", path("none.config"))
            .env("RABBITMQ_MNESIA_BASE", path("data"))
            .env("RABBITMQ_LOG_BASE", path("logs"))
            .env("RABBITMQ_PID_FILE", path("pid"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .env("RABBITMQ_DIST_PORT", free_port().to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .stdin(Stdio::null());
    }

    /// Restarts the process on its files, and waits until it serves. Blocks.
    pub(crate) fn run(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(&self.binary);
        self.surroundings(&mut command);
        // With these variables the script becomes the server, with the same process id.
        command.env("RABBITMQ_ALLOW_INPUT", "1").env("RABBITMQ_SERVER_START_ARGS", "-noinput");
        let mut process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let id = process.id();
        let ending = [
            "-c",
            "read -r line; kill -9 $0; rm -rf \"$1\"",
            &id.to_string(),
            &self.folder.path().display().to_string(),
        ];
        let watchman = Command::new("sh").args(ending).stdin(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.serves() {
            let ended = process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "RabbitMQ is not ready: {ended:?} {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.life.lock() = Some(Life { process, watchman });
    }

    /// Whether it answers a handshake: the listener is the last step of the start.
    fn serves(&self) -> bool {
        use std::io::{Read, Write};
        let greet = || -> std::io::Result<bool> {
            let mut stream = std::net::TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"AMQP\0\0\x09\x01")?;
            let mut first = [0; 1];
            stream.read_exact(&mut first)?;
            Ok(first == [1])
        };
        greet().unwrap_or(false)
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&self) {
        if let Some(Life { mut process, mut watchman }) = self.life.lock().take() {
            // First the watchdog, which might kill a reused process id.
            watchman.kill().unwrap();
            watchman.wait().unwrap();
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Freezes or resumes the process: connections stay open and silent.
    pub(crate) fn freeze(&self, frozen: bool) {
        crate::freeze::freeze(self.life.lock().as_ref().unwrap().process.id(), frozen);
    }

    /// `rabbitmqctl` on this server.
    pub(crate) async fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(self.binary.with_file_name("rabbitmqctl"));
        self.surroundings(&mut command);
        command
            .env_remove("RABBITMQ_DIST_PORT")
            .args(["--quiet", "--node", &self.node()])
            .args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rabbitmqctl {arguments:?}: {said}");
        said
    }

    /// The major and the minor version.
    pub(crate) async fn version(&self) -> (u32, u32) {
        let said = self.ctl(&["version"]).await;
        let of_line = |line: &str| {
            let mut numbers = line.trim().split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        };
        said.lines().find_map(of_line).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for RabbitServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `DWELL_RABBITMQ_SERVER`, otherwise the one that `make servers` has installed in `.servers/bin`
/// of the workspace, otherwise Debian's. Symbolic links are followed, because the script looks for
/// its parts in its own folder. (Debian's script in `/usr/sbin` would change the user.)
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("DWELL_RABBITMQ_SERVER") {
        let named = PathBuf::from(named);
        return named.canonicalize().unwrap_or_else(|error| {
            panic!("DWELL_RABBITMQ_SERVER names {}: {error}", named.display())
        });
    }
    let candidates = [
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../.servers/bin/rabbitmq-server"),
        "/usr/lib/rabbitmq/bin/rabbitmq-server".into(),
    ];
    let found = candidates.into_iter().find_map(|candidate| candidate.canonicalize().ok());
    found.expect("no rabbitmq-server: run `make servers`, or name one in DWELL_RABBITMQ_SERVER")
}
