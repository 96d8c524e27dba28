//! The default address of the probes, on hosts with and without IPv6.

use std::path::Path;

use crate::commands::fixture::program;
use crate::preload::compiled;

/// The address that the probes got: the log of a start that ends at once for want of servers.
async fn probes_at(folder: &Path, preloaded: Option<&Path>) -> String {
    let file = folder.join("dwell.toml");
    let settings = "[redis]\nurls = [\"redis://127.0.0.1:1\"]\n[brokers.main]\ntype = \"nats\"\nurl = \"nats://127.0.0.1:1\"\nallow = [\"a\"]\n\
                    [http]\nlisten = \"127.0.0.1:0\"\n[probes]\nlisten = \"[::]:0\"\n";
    std::fs::write(&file, settings).unwrap();
    let mut dwell = tokio::process::Command::new(program());
    dwell
        .args(["run", "--wait", "0s", "-c"])
        .arg(&file)
        .envs(preloaded.map(|library| ("LD_PRELOAD", library)));
    let output = dwell.kill_on_drop(true).output().await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{log}");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let address = lines
        .filter(|line| line["message"] == "probes")
        .find_map(|line| line["address"].as_str().map(str::to_owned));
    address.unwrap_or_else(|| panic!("no address in {log}"))
}

#[tokio::test]
async fn the_probes_listen_on_ipv6_and_where_there_is_none_on_ipv4() {
    let folder = tempfile::tempdir().unwrap();
    let has_ipv6 = std::net::TcpListener::bind("[::]:0").is_ok();
    let listens = probes_at(folder.path(), None).await;
    assert!(listens.starts_with(if has_ipv6 { "[::]:" } else { "0.0.0.0:" }), "{listens}");
    let library = compiled(folder.path(), "tests/live/http/no_ipv6.c");
    let listens = probes_at(folder.path(), Some(&library)).await;
    assert!(listens.starts_with("0.0.0.0:"), "{listens}");
}
