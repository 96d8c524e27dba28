//! A page of docs/ as a script: its commands in their order, run by a shell on the servers of a
//! test.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::routes::environment::program;
use crate::routes::migration::blocks;
use crate::support::python_libraries;

/// The address of the HTTP API in the pages.
const HTTP: &str = "127.0.0.1:7464";

/// A page, from the next command that nobody has run yet.
pub(super) struct Guide {
    folder: TempDir,
    commands: VecDeque<String>,
    addresses: Vec<(&'static str, String)>,
}

impl Guide {
    /// The page docs/how-to/NAME.md, with config/FILE.toml beside it, where these addresses stand
    /// for those that are written there.
    pub(super) fn open(name: &str, file: &str, addresses: &[(&'static str, String)]) -> Guide {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(root.join(format!("docs/how-to/{name}.md"))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("config")).unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        let guide =
            Guide { folder, commands: blocks(&page, "sh").into(), addresses: addresses.to_vec() };
        let text = std::fs::read_to_string(root.join(format!("config/{file}.toml"))).unwrap();
        std::fs::write(
            guide.folder.path().join(format!("config/{file}.toml")),
            guide.placed(&text),
        )
        .unwrap();
        guide
    }

    /// The first block of this language of a page, saved as the file that the page names.
    pub(super) fn save(&self, page: &str, language: &str, name: &str) {
        let page = std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/how-to/{page}.md")),
        )
        .unwrap();
        // As it stands: Python has indents of its own.
        let (_, block) = page.split_once(&format!("\n```{language}\n")).unwrap();
        std::fs::write(self.folder.path().join(name), block.split("\n```\n").next().unwrap())
            .unwrap();
    }

    /// A tool that the page takes from elsewhere, as a script.
    pub(super) fn tool(&self, name: &str, script: &str) {
        let path = self.folder.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn placed(&self, text: &str) -> String {
        self.addresses
            .iter()
            .fold(text.to_owned(), |text, (written, ours)| text.replace(written, ours))
    }

    fn next(&mut self, begin: &str) -> Command {
        let commands =
            self.commands.pop_front().unwrap_or_else(|| panic!("the page ends before `{begin}`"));
        assert!(
            commands.starts_with(begin),
            "the page goes on otherwise than this test: {commands}"
        );
        let mut shell = Command::new("sh");
        let tools = [self.folder.path().join("bin"), program().parent().unwrap().to_owned()];
        let path = format!(
            "{}:{}:{}",
            tools[0].display(),
            tools[1].display(),
            std::env::var("PATH").unwrap()
        );
        let commands = self.placed(&commands);
        // One command alone takes the place of its shell, so that it gets the signals.
        let exec = if commands.trim_end().lines().count() == 1 { "exec " } else { "" };
        shell
            .arg("-ec")
            .arg(format!("{exec}{commands}"))
            .current_dir(self.folder.path())
            .env("PATH", path);
        // On a free port, unless the page calls it.
        let http = Some(self.placed(HTTP))
            .filter(|ours| ours != HTTP)
            .unwrap_or_else(|| "127.0.0.1:0".to_owned());
        shell
            .env("DWELL_PROBES__LISTEN", "127.0.0.1:0")
            .env("DWELL_HTTP__LISTEN", http)
            .env("PYTHONPATH", python_libraries())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        shell.stdin(Stdio::null()).kill_on_drop(true);
        shell
    }

    /// Runs the next commands, which begin so, to their end. Returns their output.
    pub(super) async fn follow(&mut self, begin: &str) -> String {
        let output = self.next(begin).output().await.unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{begin}: {}\n{said}", output.status);
        said
    }

    /// Starts the next command, which goes on.
    pub(super) fn start(&mut self, begin: &str) -> Running {
        Running {
            child: self.next(begin).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
        }
    }

    /// The page has no commands that nobody has run.
    pub(super) fn end(self) {
        assert!(self.commands.is_empty(), "the page goes on: {:?}", self.commands);
    }
}

/// A command that runs on.
pub(super) struct Running {
    child: Child,
}

impl Running {
    /// Ends it as Ctrl-C does.
    pub(super) async fn stop(mut self) {
        kill_process(
            Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap(),
            Signal::INT,
        )
        .unwrap();
        let status = self.child.wait().await.unwrap();
        assert!(status.success(), "{status}");
    }
}
