//! The checks of Redis: all that a start needs, and further warnings.

use super::{Check, limits, schedules};
use crate::config::{Durability, Queues, Redis, RedisMode, Settings};
use crate::store::Store;
use crate::store::admin::preflight::{Preflight, preflight};
use crate::store::client::place;
use crate::store::error::StoreError;
use crate::store::gate::Wait;
use crate::store::meta::SweepRules;
use crate::store::reader::queues::QueueCounts;
use crate::store::server_facts::ServerFacts;
use crate::units::show_duration_ms;

/// Above this share of memory in use, in percent, there is a warning.
const MEMORY_WARNING_PERCENT: u64 = 80;

pub(super) async fn checks(all: &Settings) -> Vec<Check> {
    let brokers: Vec<&str> = all.brokers.keys().map(String::as_str).collect();
    let settings = &all.redis;
    let preflight = match preflight(settings).await {
        Ok(preflight) => preflight,
        Err(error) => {
            let away = Check::of_error("redis", error);
            let others = [
                "redis.permissions",
                "redis.namespace",
                "redis.rules",
                "redis.durability",
                "redis.maxmemory-policy",
                "redis.memory",
            ]
            .map(|name| Check::skipped(name, &away));
            let of_schedules = (!all.schedules.is_empty())
                .then(|| Check::skipped("schedules", &away))
                .into_iter()
                .chain([schedules::time_zones()]);
            let others: Vec<Check> = others.into_iter().chain(of_schedules).collect();
            return [away].into_iter().chain(others).collect();
        }
    };
    let stranded_queues = match &preflight.namespace {
        Ok(Some(_)) => queues(settings, &all.queues)
            .await
            .unwrap_or_else(|error| vec![Check::of_error("redis.stranded", error)]),
        _ => Vec::new(),
    };
    let of_schedules = match &preflight.namespace {
        Ok(known) => schedules::checks(all, known.is_some()).await,
        Err(_) => Vec::new(),
    };
    let of_limits = match &preflight.namespace {
        Ok(Some(_)) => limits::checks(all).await,
        _ => Vec::new(),
    };
    vec![
        server(settings, &preflight),
        permissions(&preflight),
        namespace(settings, &preflight),
        rules(SweepRules::from(&all.delivery), &preflight),
        durability(settings, &preflight),
        policy(&preflight),
        memory(&preflight.facts),
        schedules::time_zones(),
    ]
    .into_iter()
    .chain(stranded(&preflight, &brokers))
    .chain(stranded_queues)
    .chain(of_schedules)
    .chain(of_limits)
    .collect()
}

/// Jobs of queues that these settings do not declare. Another instance may hand them out.
async fn queues(settings: &Redis, declared: &Queues) -> Result<Vec<Check>, StoreError> {
    let store = Store::attach(settings).await?;
    let counts = store.reader.active_counts(|queue| declared.get(queue).is_none()).await?;
    let alive = |counts: &QueueCounts| counts.scheduled + counts.ready + counts.reserved;
    let check = |counts: &QueueCounts| {
        let detail = format!(
            "{} jobs wait in the queue `{}`, which these settings do not declare",
            alive(counts),
            counts.queue
        );
        Check::warning(
            "redis.stranded",
            detail,
            "if no other instance has this queue, declare it in [queues] again, or cancel its jobs",
        )
    };
    Ok(counts.queues.values().filter(|counts| alive(counts) > 0).map(check).collect())
}

/// Jobs of brokers that these settings do not name. Another instance may deliver them.
fn stranded(preflight: &Preflight, brokers: &[&str]) -> Vec<Check> {
    let foreign = preflight
        .waiting
        .iter()
        .filter(|(name, count)| *count > 0 && !brokers.contains(&name.as_str()));
    let check = |(name, count): &(String, u64)| {
        let detail =
            format!("{count} jobs wait for the broker `{name}`, which these settings do not name");
        let hint = format!(
            "if no other instance has this broker, add it to the settings again, or move the jobs: dwell requeue --broker {name} --to NEW"
        );
        Check::warning("redis.stranded", detail, hint)
    };
    foreign.map(check).collect()
}

fn server(settings: &Redis, preflight: &Preflight) -> Check {
    let facts = &preflight.facts;
    match &preflight.writable {
        Ok(()) if settings.mode == RedisMode::Cluster => {
            let detail = format!(
                "{} at {}, {} masters, each with {} replicas",
                facts.version,
                place(settings),
                facts.masters,
                facts.replicas
            );
            Check::good("redis", detail)
        }
        Ok(()) => Check::good(
            "redis",
            format!(
                "{} at {}, {}, {} replicas",
                facts.version,
                place(settings),
                role(facts),
                facts.replicas
            ),
        ),
        Err(error) => Check::of_error("redis", error.clone()),
    }
}

fn permissions(preflight: &Preflight) -> Check {
    const NAME: &str = "redis.permissions";
    match &preflight.permitted {
        Ok(()) => Check::good(NAME, "the user has all needed permissions"),
        Err(error) => Check::of_error(NAME, error.clone()),
    }
}

/// Redis still calls a replica by its old name.
fn role(facts: &ServerFacts) -> &str {
    if facts.role == "slave" { "replica" } else { &facts.role }
}

fn namespace(settings: &Redis, preflight: &Preflight) -> Check {
    const NAME: &str = "redis.namespace";
    match &preflight.namespace {
        Ok(Some(meta)) => {
            let brokers =
                if meta.brokers.is_empty() { "none".to_owned() } else { meta.brokers.join(", ") };
            Check::good(
                NAME,
                format!(
                    "`{}` has {} buckets; brokers: {brokers}",
                    settings.namespace, meta.buckets
                ),
            )
        }
        Ok(None) => Check::good(
            NAME,
            format!(
                "`{}` is new: would be created, with {} buckets, which is final",
                settings.namespace, settings.buckets
            ),
        ),
        Err(error) => Check::of_error(NAME, error.clone()),
    }
}

/// The rules that the namespace keeps for all its instances.
fn rules(own: SweepRules, preflight: &Preflight) -> Check {
    const NAME: &str = "redis.rules";
    let say = |rules: SweepRules| {
        let (retention, window) =
            (show_duration_ms(rules.dead_retention_ms), show_duration_ms(rules.dedupe_window_ms));
        format!("delivery.dead_retention {retention}, delivery.dedupe_window {window}")
    };
    match &preflight.namespace {
        Ok(Some(meta)) if meta.rules_or(own) != own => Check::warning(
            NAME,
            format!(
                "the namespace has {}, which apply; the settings have {}",
                say(meta.rules_or(own)),
                say(own)
            ),
            "set the values of the namespace, or run `dwell check --adopt`: all instances then follow these settings",
        ),
        Ok(_) => Check::good(NAME, say(own)),
        Err(error) => Check::skipped(NAME, &Check::of_error("redis.namespace", error.clone())),
    }
}

fn durability(settings: &Redis, preflight: &Preflight) -> Check {
    const NAME: &str = "redis.durability";
    let level = match settings.durability {
        Durability::Memory => "memory",
        Durability::Fsync => "fsync",
        Durability::Replica => "replica",
        Durability::FsyncReplica => "fsync+replica",
    };
    match &preflight.durability {
        Ok(Wait::None) if settings.durability == Durability::Memory && !preflight.facts.aof => {
            Check::warning(
                NAME,
                format!(
                    "{level}: acknowledged jobs are lost when Redis ends, because it has no append-only file"
                ),
                "set appendonly yes in redis.conf, and redis.durability = \"fsync\" if no job may be lost",
            )
        }
        Ok(wait) => {
            let how = match wait {
                Wait::None if settings.durability == Durability::Memory => {
                    "acknowledged once Redis has it".to_owned()
                }
                Wait::None if settings.assume_fsync => {
                    "Redis is assumed to fsync each write (assume_fsync)".to_owned()
                }
                Wait::None => {
                    "appendfsync always: Redis fsyncs each write before it answers".to_owned()
                }
                Wait::Replicas(replicas) => format!("WAIT for {replicas} replica"),
                Wait::Aof(0) => "WAITAOF for the append-only file of the master".to_owned(),
                Wait::Aof(replicas) => format!(
                    "WAITAOF for the append-only files of the master and {replicas} replica"
                ),
            };
            Check::good(NAME, format!("{level}: {how}"))
        }
        Err(error) => Check::of_error(NAME, error.clone()),
    }
}

fn policy(preflight: &Preflight) -> Check {
    const NAME: &str = "redis.maxmemory-policy";
    match &preflight.eviction {
        Err(error) => Check::of_error(NAME, error.clone()),
        Ok(()) => match preflight.facts.policy.as_str() {
            "" => Check::warning(
                NAME,
                "the server does not report it",
                "make sure that it is noeviction: allkeys-* would evict jobs",
            ),
            volatile if volatile.starts_with("volatile-") => Check::warning(
                NAME,
                format!(
                    "{volatile}: keys of jobs have no time to live and are not evicted, but other keys on this server may be"
                ),
                "set maxmemory-policy noeviction, or give dwell a separate Redis",
            ),
            policy => Check::good(NAME, policy),
        },
    }
}

fn memory(facts: &ServerFacts) -> Check {
    const NAME: &str = "redis.memory";
    let used = whole(facts.used_memory);
    let (most, of) = match (facts.max_memory, facts.system_memory) {
        (0, 0) => return Check::good(NAME, format!("{used} used, no maxmemory")),
        (0, machine) => (machine, format!("the machine's {}, no maxmemory", whole(machine))),
        (bound, _) => (bound, format!("maxmemory {}", whole(bound))),
    };
    let percent = facts.used_memory.saturating_mul(100) / most;
    if percent < MEMORY_WARNING_PERCENT {
        return Check::good(NAME, format!("{used} used of {of}"));
    }
    let detail = format!("{used} used of {of}: {percent} %, and a full Redis takes no new jobs");
    Check::warning(NAME, detail, "raise maxmemory, or give dwell a separate Redis")
}

/// In whole MiB, rounded up.
fn whole(bytes: u64) -> String {
    format!("{}MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_runs_out_is_a_warning() {
        let facts = |used_memory, max_memory, system_memory| ServerFacts {
            used_memory,
            max_memory,
            system_memory,
            ..ServerFacts::default()
        };
        assert_eq!(memory(&facts(79, 100, 1000)).hint, "");
        let full = memory(&facts(81 << 20, 100 << 20, 1000 << 20));
        assert!(
            full.ok
                && full.detail
                    == "81MiB used of maxmemory 100MiB: 81 %, and a full Redis takes no new jobs"
                && !full.hint.is_empty()
        );
        assert!(!memory(&facts(900, 0, 1000)).hint.is_empty());
        assert_eq!(memory(&facts(900, 0, 0)).hint, "");
    }

    #[test]
    fn a_policy_that_spares_our_keys_is_a_warning() {
        let facts = ServerFacts { policy: "volatile-lru".to_owned(), ..ServerFacts::default() };
        let preflight = Preflight {
            facts,
            writable: Ok(()),
            permitted: Ok(()),
            durability: Ok(Wait::None),
            eviction: Ok(()),
            namespace: Ok(None),
            waiting: Vec::new(),
        };
        let check = policy(&preflight);
        assert!(check.ok && !check.hint.is_empty(), "{check:?}");
    }
}
