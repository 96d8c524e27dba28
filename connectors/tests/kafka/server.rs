//! A private Kafka broker: a single node with its own controller, on free loopback ports, with its
//! files in a temporary folder. It ends when the value is dropped, and when this process ends
//! however that happens: a shell holds it, whose input is a pipe from this process.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

/// The settings of every private Kafka.
const COMMON_SETTINGS: &str = include_str!("../../../testkit/src/servers/kafka.properties");

/// Starts the rest of its arguments, prints their process id, and kills them when its input ends.
/// The first argument is a folder to remove then, or empty.
const HOLD_SCRIPT: &str = r#"goes=$1; shift; "$@" </dev/null >/dev/null & java=$!; echo $java; cat >/dev/null; kill -9 $java; wait $java
[ -z "$goes" ] || rm -rf "$goes""#;

/// A Kafka broker.
pub(crate) struct KafkaServer {
    folder: TempDir,
    /// The folder that the shell removes.
    goes: String,
    port: u16,
    running: Mutex<Option<Running>>,
}

struct Running {
    shell: Child,
    /// Closing it ends the broker.
    hold: Option<ChildStdin>,
    java: u32,
}

/// The broker that most tests share.
pub(crate) fn shared() -> &'static KafkaServer {
    static SHARED: LazyLock<KafkaServer> = LazyLock::new(|| {
        let mut server = KafkaServer::prepare("PLAINTEXT", "");
        // Statics are never dropped: the shell cleans up instead.
        server.folder.disable_cleanup(true);
        server.goes = server.folder.path().display().to_string();
        server.run();
        server
    });
    &SHARED
}

impl KafkaServer {
    /// Starts a broker with these additional settings.
    pub(crate) fn start(settings: &str) -> Self {
        Self::start_with("PLAINTEXT", settings)
    }

    /// Starts a broker whose clients use this protocol.
    pub(crate) fn start_with(protocol: &str, settings: &str) -> Self {
        let server = Self::prepare(protocol, settings);
        server.run();
        server
    }

    fn prepare(protocol: &str, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = [(); 2].map(|()| free_port());
        let [port, controller] = ports.map(|listener| listener.local_addr().unwrap().port());
        let data = folder.path().join("data");
        let usual = format!(
            "controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENTS://127.0.0.1:{port}
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENTS:{protocol}
log.dirs={}
",
            data.display()
        );
        std::fs::write(
            folder.path().join("server.properties"),
            [COMMON_SETTINGS, &usual, settings].concat(),
        )
        .unwrap();
        let server = KafkaServer { folder, goes: String::new(), port, running: Mutex::new(None) };
        let format = server
            .java(
                "kafka.tools.StorageTool",
                &["format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", "server.properties"],
            )
            .output()
            .unwrap();
        assert!(format.status.success(), "{}", String::from_utf8_lossy(&format.stderr));
        server
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn java(&self, class: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let class_path = format!("{}/*", libs().display());
        let settings = [
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ];
        command.args(["-c", r#"exec "$@""#, "sh", "java"]).args(settings);
        command
            .args([
                "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
                "-cp",
                &class_path,
                class,
            ])
            .args(arguments);
        command.current_dir(self.folder.path());
        command
    }

    /// Restarts the process on its files.
    pub(crate) fn run(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let inner = self.java("kafka.Kafka", &["server.properties"]);
        let mut command = Command::new("sh");
        command
            .args(["-c", HOLD_SCRIPT, "sh", &self.goes])
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(self.folder.path());
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let hold = shell.stdin.take();
        *self.running.lock() = Some(Running { shell, hold, java: line.trim().parse().unwrap() });
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.log().contains("Kafka Server started") {
            assert!(Instant::now() < deadline, "kafka is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&self) {
        if let Some(mut running) = self.running.lock().take() {
            drop(running.hold.take());
            running.shell.wait().unwrap();
        }
    }

    /// Freezes or resumes the process: connections stay open and silent.
    pub(crate) fn freeze(&self, frozen: bool) {
        crate::freeze::freeze(self.running.lock().as_ref().unwrap().java, frozen);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for KafkaServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `DWELL_KAFKA_LIBS`, otherwise what `make kafka` has installed in `.servers/kafka` of the
/// workspace.
fn libs() -> PathBuf {
    let named = std::env::var_os("DWELL_KAFKA_LIBS").map(PathBuf::from);
    let libs =
        named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.servers/kafka"));
    let libs = libs.canonicalize().unwrap_or(libs);
    assert!(
        libs.is_dir(),
        "no Kafka in {}: run `make kafka`, or name a folder of its jars in DWELL_KAFKA_LIBS",
        libs.display()
    );
    libs
}

/// A free port below the range of outgoing connections on Linux (32768 and up): one of these could
/// take the port while Java starts.
fn free_port() -> TcpListener {
    let numbers = std::iter::repeat_with(|| {
        15_000 + u16::try_from(RandomState::new().hash_one(()) % 17_000).unwrap()
    });
    numbers
        .take(1000)
        .find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .expect("a free port")
}
