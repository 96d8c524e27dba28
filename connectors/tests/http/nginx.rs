//! A private nginx before an application: on free loopback ports, with its files in a temporary
//! folder, ended with the value.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_connectors::http;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::certificates::{Authority, Certificate};

/// An nginx that passes all requests on to an application; from HTTP/1.1, and from HTTP/2 by TLS.
pub(crate) struct Nginx {
    binary: PathBuf,
    folder: TempDir,
    port: u16,
    tls_port: u16,
    child: Mutex<Option<Child>>,
}

impl Nginx {
    /// Starts a server before the application, with a certificate of its own authority.
    pub(crate) fn start(app: SocketAddr) -> Self {
        let authority = Authority::new();
        Nginx::with(app, &authority, &authority.certify("127.0.0.1"), "http2")
    }

    /// Starts a server with this certificate of this authority. `http2`: the word, or none, for
    /// HTTP/2 by TLS.
    pub(crate) fn with(
        app: SocketAddr,
        authority: &Authority,
        certificate: &Certificate,
        http2: &str,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Held together, so that the ports differ.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, tls_port] = free.map(|listener| listener.local_addr().unwrap().port());
        std::fs::write(folder.path().join("server.pem"), &certificate.pem).unwrap();
        std::fs::write(folder.path().join("server.key"), &certificate.key).unwrap();
        std::fs::write(
            folder.path().join("nginx.conf"),
            settings(folder.path(), port, tls_port, http2, app),
        )
        .unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let nginx = Nginx { binary: binary(), folder, port, tls_port, child: Mutex::new(None) };
        nginx.run();
        nginx
    }

    /// A URL of HTTP/1.1.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A URL of HTTP/2 by TLS.
    pub(crate) fn tls_url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.tls_port)
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port
    }

    /// Settings that trust this server's authority.
    pub(crate) fn trusted(&self) -> http::Config {
        http::Config { ca_file: Some(self.folder.path().join("ca.pem")), ..crate::local() }
    }

    /// Starts the process, also again on the same ports.
    pub(crate) fn run(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(&self.binary);
        command
            .arg("-e")
            .arg("stderr")
            .arg("-p")
            .arg(self.folder.path())
            .arg("-c")
            .arg(self.folder.path().join("nginx.conf"));
        *self.child.lock() = Some(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::from(log))
                .spawn()
                .unwrap(),
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        while [self.port, self.tls_port]
            .iter()
            .any(|port| TcpStream::connect(("127.0.0.1", *port)).is_err())
        {
            assert!(Instant::now() < deadline, "nginx is not ready: {}", self.log());
            let ended = self.child.lock().as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "nginx has ended: {}", self.log());
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

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The settings of one process, which is killed and frozen by its id. The word `http2` in `listen`
/// is older than the line `http2 on`, and known by all versions.
fn settings(folder: &Path, port: u16, tls_port: u16, http2: &str, app: SocketAddr) -> String {
    let folder = folder.display();
    let temporary: Vec<String> = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
        .collect();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr;
        events {{ worker_connections 900; }}
        http {{
            {temporary}
            access_log off; client_max_body_size 16m;
            # A connection that ends by number would refuse requests of HTTP/2.
            keepalive_requests 1000000; http2_max_concurrent_streams 512;
            upstream app {{ server {app}; keepalive 256; keepalive_requests 1000000; }}
            server {{
                listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl {http2};
                ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
                location / {{
                    proxy_pass http://app; proxy_http_version 1.1; proxy_next_upstream off; proxy_read_timeout 600s;
                    proxy_set_header Connection ''; proxy_set_header Host $http_host; proxy_set_header X-Scheme $scheme;
                    proxy_set_header X-Protocol $server_protocol;
                }}
            }}
        }}",
        temporary = temporary.join(" ")
    )
}

/// `DWELL_NGINX`, otherwise the one that `make servers` has installed in `.servers/bin` of the
/// workspace, otherwise `nginx` on PATH.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("DWELL_NGINX") {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "DWELL_NGINX names {}, which is not there", named.display());
        return named;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../.servers/bin/nginx")];
    candidates.extend(std::env::split_paths(&path).map(|folder| folder.join("nginx")));
    let found = candidates.into_iter().find(|candidate| candidate.is_file());
    found.expect("no nginx: run `make nginx`, put one on PATH, or name one in DWELL_NGINX")
}
