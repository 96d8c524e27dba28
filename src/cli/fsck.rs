//! `dwell fsck`: finds damage in the namespace, directly in Redis; `--repair` repairs it.

use super::common::{Common, Form, json, line};
use super::exit::{Exit, Stop};
use super::table::{Column, table, width};

use crate::clock;
use crate::dispatch::lease_of;
use crate::store::admin::fsck::{self, Finding, FsckRules};
use crate::store::client::RedisClient;
use crate::store::meta::{SweepRules, look};

const COLUMNS: [Column; 5] = [
    Column::whole("BUCKET"),
    Column::cut("ID", 12),
    Column::whole("PROBLEM"),
    Column::whole("REPAIRED"),
    Column::cut("MEANING", 24).spare(1),
];

/// `dwell fsck`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Repair the damage; safe beside running instances. Unreadable jobs are moved to quarantine,
    /// never deleted
    #[arg(long)]
    pub repair: bool,
}

pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let delivery = &settings.delivery;
    // If the namespace's own rules are damaged, those of the settings apply.
    let known = look(&RedisClient::new(&settings.redis), &settings.redis).await.ok().flatten();
    let own = SweepRules::from(delivery);
    let rules = FsckRules {
        lease_ms: clock::whole_ms(lease_of(delivery)),
        retry_ms: delivery.retry.to_vec(),
        sweep: known.map_or(own, |meta| meta.rules_or(own)),
        repair: args.repair,
    };
    let (mut findings, mut closed) = (Vec::new(), None);
    let mut found = |finding: Finding| {
        // Printed at once, because a long scan may be interrupted. A closed pipe does not stop a
        // repair.
        if common.output == Form::Json && closed.is_none() {
            closed = json(&finding).and_then(|text| line(&text)).err();
        }
        findings.push(finding);
    };
    let looked = fsck::run(&settings.redis, rules, &mut found).await;
    if let Some(stop) = closed {
        return Err(stop);
    }
    if common.output == Form::Text && (!findings.is_empty() || looked.is_ok()) {
        line(&text(&findings, looked.as_ref().ok().copied(), args.repair))?;
    }
    looked?;
    Ok(if findings.iter().all(|finding| finding.repaired) { Exit::Ok } else { Exit::Failed })
}

fn text(findings: &[Finding], jobs: Option<u64>, repair: bool) -> String {
    let looked =
        jobs.map_or("stopped before the end".to_owned(), |jobs| format!("{jobs} jobs checked"));
    if findings.is_empty() {
        return format!("no damage, {looked}");
    }
    let rows = findings.iter().map(|finding| {
        let bucket = finding.bucket.map_or("-".to_owned(), |bucket| bucket.to_string());
        let repaired = if finding.repaired { "yes" } else { "no" };
        let problem = finding.problem;
        [
            bucket,
            finding.id.clone(),
            problem.as_str().to_owned(),
            repaired.to_owned(),
            problem.meaning().to_owned(),
        ]
    });
    let table = table(COLUMNS, rows, width());
    let repaired = findings.iter().filter(|finding| finding.repaired).count();
    let hint = if repair { "" } else { "; --repair repairs it" };
    format!("{table}\n{} found, {repaired} repaired, {looked}{hint}", findings.len())
}
