//! The settings of the instances.

use dwell::config::{self, Overrides, Settings};

use super::host::{DEAD_PATH, HOOK_BROKER, Host};
use super::options::PUBLISH_TIMEOUT;
use super::{Error, SystemOptions};
use crate::words::word;

/// The namespace of every system: each has its own Redis.
pub(super) const NAMESPACE: &str = "chaos";

/// The name of the second broker of the instances: the same server over another link.
pub(crate) const SPARE_BROKER: &str = "spare";
/// The silent targets, as a pattern of any broker: each fault has its own target.
pub(crate) const SILENT_TARGETS: &str = "chaos-silent.*";

/// A target with a limit.
pub(crate) const LIMITED_TARGET: &str = "chaos-limited";
/// Targets that the load creates late, one that never exists, and the destination of verdicts.
pub(crate) const LATE_TARGETS: [&str; 3] = ["chaos-late-0", "chaos-late-1", "chaos-late-2"];
pub(crate) const NEVER_TARGET: &str = "chaos-never";
pub(crate) const REPLY_DESTINATION: &str = "chaos-replies";

/// The settings file. The retry array has short waits, and more of them than any fault uses up.
/// Redis remembers completed jobs for longer than the faults of a campaign last.
pub(super) fn text(
    options: &SystemOptions,
    redis: &str,
    [main, spare]: &[String; 2],
    targets: &[String],
    host: Option<&Host>,
) -> String {
    let others = [NEVER_TARGET, REPLY_DESTINATION, SILENT_TARGETS, LIMITED_TARGET];
    let targets = targets.iter().map(String::as_str).chain(LATE_TARGETS).chain(others);
    let allow: Vec<String> = targets.map(|target| options.broker.pattern(target)).collect();
    let retry = [vec!["500ms"; 20], vec!["2s"; 40]].concat();
    let durability = word(&options.durability);
    let hook = host.map_or_else(String::new, hook);
    let limit = options.limited_per_s.map_or_else(String::new, |rate| {
        let target = options.broker.pattern(LIMITED_TARGET);
        format!("limits.\"{target}\" = {{ rate = \"{rate}/s\", burst = 1 }}\n")
    });
    format!(
        "{}\n{redis}\nredis.namespace = \"{NAMESPACE}\"\nredis.durability = \"{durability}\"\n\
         ingest.main.broker = \"main\"\ningest.main.declare = true\n\
         delivery.publish_timeout = \"{}ms\"\ndelivery.retry = {retry:?}\ndelivery.dedupe_window = \"1h\"\n\n\
         [brokers.main]\nallow = {allow:?}\n{limit}{main}\n[brokers.{SPARE_BROKER}]\nallow = {allow:?}\n{spare}{hook}",
        options.more,
        PUBLISH_TIMEOUT.as_millis(),
    )
}

/// The lines of the broker for URLs, behind all others.
fn hook(host: &Host) -> String {
    format!(
        "\n[brokers.{HOOK_BROKER}]\ntype = \"http\"\nallow = {:?}\nsubnets = [\"127.0.0.0/8\"]\ntimeout = \"{}ms\"\ndead = \"{}\"\n",
        [vec![host.url("/*")], host.slow_urls("/*")].concat(),
        PUBLISH_TIMEOUT.as_millis(),
        host.url(DEAD_PATH),
    )
}

/// Parses the settings as an instance does, but without this process's environment, which may name
/// other servers.
pub(super) fn read(text: &str) -> Result<Settings, Error> {
    let file = tempfile::NamedTempFile::new().map_err(Error::io("a temporary file"))?;
    std::fs::write(file.path(), text).map_err(Error::io("a temporary file"))?;
    config::load_from(Some(file.path()), &[], &Overrides::default()).map_err(Error::Settings)
}
