//! Judges the namespace as a whole: its description, and foreign keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Value;

use super::scan::Scan;
use super::{Finding, FindingSink, FsckRules, Problem, bytes};
use crate::config::Redis;
use crate::store::client::RedisClient;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::gate::{self, Gate};
use crate::store::keys::{Keys, Part};
use crate::store::meta::{self, Meta};
use crate::store::namespace::Namespace;
use crate::store::server_facts;
use crate::store::{Store, Unobserved, acl};

/// The number of sampled ids of each bucket, to find the number of buckets.
const SAMPLED_IDS_PER_BUCKET: usize = 32;

/// Per bucket, the queues that it knows or has keys of, by `=` and their names.
pub(super) type Queues = BTreeMap<u16, BTreeSet<String>>;

/// Opens the namespace, even if its description is damaged. `None` if nothing in it can be checked,
/// which is reported.
pub(super) async fn open(
    settings: &Redis,
    rules: &FsckRules,
    found: FindingSink<'_>,
) -> Result<Option<(Store, Queues)>, StoreError> {
    let link = RedisClient::new(settings);
    let facts = server_facts::facts(&link).await?;
    if rules.repair {
        server_facts::refuse_replica(settings, &facts)?;
    }
    let over = |buckets: u16, brokers: Vec<String>| {
        let settings = Redis { buckets, ..settings.clone() };
        let known = Meta { buckets, brokers, ..Meta::default() };
        let gate = Gate::new(&settings, gate::waits_of(&settings, &facts));
        Store::over(Namespace::new(&settings, link.clone(), gate, known, Arc::new(Unobserved)))
    };
    let store = over(settings.buckets, Vec::new());
    acl::refuse_unpermitted_fsck(&link, &store.keys).await?;
    // Before anything is checked or repaired: keys of another version may have other types. A meta
    // key of a wrong type is damage, which is reported below.
    if let Ok(fields) = meta::fields(&link, &store.keys.meta()).await
        && let Some(schema) = meta::schema_of(&fields)
    {
        schema.refuse_other(&store.keys.meta())?;
    }
    let mut tell =
        |problem, id: String, repaired| found(Finding { bucket: None, id, problem, repaired });
    for (key, kind) in [
        (store.keys.meta(), "hash"),
        (store.keys.instances(), "zset"),
        (store.keys.declared_schedules(), "zset"),
        (store.keys.limits(), "hash"),
    ] {
        if let Some((problem, repaired)) = store.fsck_key(&key, kind, rules.repair).await? {
            tell(problem, key.clone(), repaired);
            if problem == Problem::WrongType && !repaired && key == store.keys.meta() {
                return Ok(None);
            }
        }
    }
    let keys = all_keys(&store, settings).await?;
    let Some((buckets, damage)) = buckets(&store, settings, &keys).await? else {
        // There is no namespace: the same error as from every other command.
        return meta::read(&link, settings).await.map(|_| None);
    };
    if let Some((problem, is_sure)) = damage {
        let repaired = rules.repair && is_sure;
        if repaired {
            let to = Redis { buckets, ..settings.clone() };
            if problem == Problem::MetaBuckets {
                link.command(
                    "HSET meta",
                    redis::cmd("HSET").arg(store.keys.meta()).arg("buckets").arg(buckets),
                )
                .await?;
            }
            meta::join(&link, &to, &[]).await?;
        }
        tell(problem, store.keys.meta(), repaired);
        if !is_sure {
            return Ok(None);
        }
    }

    let store = over(buckets, meta::brokers_of(&meta::fields(&link, &store.keys.meta()).await?));
    let (mut unknown, mut queues) = (BTreeSet::new(), Queues::new());
    for key in &keys {
        match store.keys.part_of(key) {
            Some(Part::Due(bucket, set)) if DueSet::named(&set).is_of_queue() => {
                queues.entry(bucket).or_default().insert(set);
            }
            Some(Part::Due(_, set)) if !store.brokers().contains(&set) => {
                unknown.insert(set);
            }
            Some(Part::Queue(bucket)) => {
                let set = key.split_once("}:dead:").map(|(_, set)| set.to_owned());
                queues.entry(bucket).or_default().extend(set);
            }
            Some(Part::Whole) if store.keys.is_of_places(key) => {
                if let Some((problem, repaired)) = store.fsck_key(key, "zset", rules.repair).await?
                {
                    found(Finding { bucket: None, id: key.clone(), problem, repaired });
                }
            }
            Some(Part::Unknown(bucket)) => {
                found(Finding {
                    bucket,
                    id: key.clone(),
                    problem: Problem::UnknownKey,
                    repaired: false,
                });
            }
            _ => {}
        }
    }
    for broker in unknown {
        if rules.repair {
            store.add_broker(&broker).await?;
        } else {
            // The jobs of the broker are checked all the same.
            store.learn(&broker);
        }
        found(Finding {
            bucket: None,
            id: broker,
            problem: Problem::MetaBroker,
            repaired: rules.repair,
        });
    }
    // A bucket whose hash has a wrong type is judged by its keys.
    for bucket in 0..store.keys.buckets() {
        if let Ok(active) = store.active_queues_of(bucket).await {
            queues.entry(bucket).or_default().extend(active.sets);
        }
    }
    Ok(Some((store, queues)))
}

/// Every key of the namespace, from every master.
async fn all_keys(store: &Store, settings: &Redis) -> Result<BTreeSet<String>, StoreError> {
    let mut keys = BTreeSet::new();
    for master in store.link.masters().await? {
        let mut scan = Scan::of_keys(&format!("{}:", settings.namespace));
        while let Some(page) = scan.next(&master).await? {
            let texts = page.into_iter().filter_map(|key| String::from_utf8(key).ok());
            keys.extend(texts.filter(|key| store.keys.part_of(key).is_some()));
        }
    }
    Ok(keys)
}

/// The number of buckets, and the damage to the description with whether its right value is
/// certain. `None` if there is no namespace.
async fn buckets(
    store: &Store,
    settings: &Redis,
    keys: &BTreeSet<String>,
) -> Result<Option<(u16, Option<(Problem, bool)>)>, StoreError> {
    let key = store.keys.meta();
    let fields = meta::fields(&store.link, &key).await?;
    let said: Option<u16> = fields
        .iter()
        .find(|(name, _)| name == "buckets")
        .and_then(|(_, text)| text.parse().ok())
        .filter(|buckets| (1..=1024).contains(buckets));
    let has_schema = fields.iter().any(|(name, _)| name == "schema");
    if has_schema && let Some(said) = said {
        if said == settings.buckets {
            return Ok(Some((said, None)));
        }
        let (fit, misfit) = fitting(store, settings, said, keys).await?;
        let (better, worse) = fitting(store, settings, settings.buckets, keys).await?;
        let is_wrong = misfit > fit && better > 0 && worse == 0;
        return Ok(Some(if is_wrong {
            (settings.buckets, Some((Problem::MetaBuckets, true)))
        } else {
            (said, None)
        }));
    }
    let has_bucket = keys.iter().any(|key| {
        matches!(
            store.keys.part_of(key),
            Some(Part::Fixed(_) | Part::Due(..) | Part::Schedules(_) | Part::Unknown(Some(_)))
        )
    });
    if !has_schema && !has_bucket {
        return Ok(None);
    }
    let problem = if has_schema { Problem::MetaBuckets } else { Problem::MetaMissing };
    let wanted = said.unwrap_or(settings.buckets);
    let (_, misfit) = fitting(store, settings, wanted, keys).await?;
    Ok(Some((wanted, Some((problem, misfit == 0)))))
}

/// Of a sample of each bucket: the number of jobs that are in their right bucket with this number
/// of buckets, and the number of the others. A key of a bucket beyond that number counts as one of
/// the others.
async fn fitting(
    store: &Store,
    settings: &Redis,
    buckets: u16,
    keys: &BTreeSet<String>,
) -> Result<(usize, usize), StoreError> {
    let candidate = Keys::new(&settings.namespace, buckets);
    let all = Keys::new(&settings.namespace, 1024);
    let (mut fit, mut misfit) = (0, 0);
    for key in keys {
        let Some(Part::Fixed(bucket) | Part::Due(bucket, _)) = all.part_of(key) else { continue };
        misfit += usize::from(bucket >= buckets);
        if !key.ends_with("}:jobs") {
            continue;
        }
        let ids = match store
            .link
            .command("HRANDFIELD", redis::cmd("HRANDFIELD").arg(key).arg(SAMPLED_IDS_PER_BUCKET))
            .await
        {
            Ok(Value::Array(ids)) => ids,
            // A wrong type, which is reported elsewhere.
            _ => continue,
        };
        for id in ids.into_iter().filter_map(bytes).filter_map(|id| String::from_utf8(id).ok()) {
            if candidate.bucket_of(&id) == bucket { fit += 1 } else { misfit += 1 }
        }
    }
    Ok((fit, misfit))
}
