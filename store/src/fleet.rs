//! The instances of a namespace: the living ones, the preferred reader of each bucket, and the
//! wake-ups between instances.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Redis;
use crate::reconnect::Backoff;
use crate::store::instances::listen;
use crate::store::wake_up::WakeUp;

/// The floor poll of a single instance. In a fleet of n, each polls n times more rarely, so that
/// the load on Redis stays the same.
const FLOOR_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The size up to which a fleet does not spread work: see [`Fleet::spread`].
const SMALL_FLEET_INSTANCES: u32 = 10;
/// A wake-up connection that lasted this long was healthy: the next one opens at once.
const MIN_HEALTHY_DURATION: Duration = Duration::from_secs(10);

/// The living instances, each by its [`entry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    me: Arc<str>,
    living: Vec<String>,
}

/// The entry of an instance: its name, and the brokers that it delivers to, or `=` and the queues
/// of a worker. These names have neither spaces nor commas.
#[must_use]
pub fn entry(name: &str, brokers: &[String]) -> String {
    format!("{name} {}", brokers.join(","))
}

/// Whether the instance of this entry delivers to this broker. An older version gives its name
/// alone; it may deliver to any broker.
#[must_use]
pub fn serves(entry: &str, broker: &str) -> bool {
    entry.split_once(' ').is_none_or(|(_, brokers)| brokers.split(',').any(|name| name == broker))
}

/// Whether the instance of this entry may serve a broker, or `=` and a queue. The entry of a sidecar
/// does not name the queues that the sidecar declares: it may declare any.
fn may_serve(entry: &str, set: &str) -> bool {
    let is_of_queue = |name: &str| name.starts_with('=');
    let is_worker = || entry.split_once(' ').is_some_and(|(_, sets)| is_of_queue(sets));
    serves(entry, set) || (is_of_queue(set) && !is_worker())
}

/// The weight of an instance for a bucket: the instance with the greatest reads the bucket first.
fn weight(entry: &str, bucket: u16) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(entry.as_bytes()).update(&bucket.to_le_bytes());
    *hasher.finalize().as_bytes()
}

impl Fleet {
    /// The entry of this instance.
    #[must_use]
    pub fn me(&self) -> &str {
        &self.me
    }

    /// A fleet of this instance alone.
    #[must_use]
    pub fn alone(me: &str) -> Self {
        Fleet { me: me.into(), living: vec![me.to_owned()] }
    }

    /// Takes these as the living instances. Returns whether that is a change.
    pub(crate) fn set_living(&mut self, living: Vec<String>) -> bool {
        let changed = self.living != living;
        self.living = living;
        changed
    }

    /// The instances that deliver to this broker, with this one.
    #[must_use]
    pub fn serving(&self, broker: &str) -> Self {
        let living =
            self.living.iter().filter(|entry| **entry == *self.me || serves(entry, broker));
        Fleet { me: self.me.clone(), living: living.cloned().collect() }
    }

    /// Whether another instance delivers to this broker.
    #[must_use]
    pub fn has_others(&self, broker: &str) -> bool {
        self.living.iter().any(|entry| **entry != *self.me && serves(entry, broker))
    }

    /// By bucket: whether this instance reads it first. Rendezvous hashing, so that a change of the
    /// fleet moves few buckets.
    #[must_use]
    pub fn preferred(&self, buckets: u16) -> Vec<bool> {
        (0..buckets)
            .map(|bucket| {
                self.living
                    .iter()
                    .max_by_key(|name| weight(name, bucket))
                    .is_none_or(|reader| **reader == *self.me)
            })
            .collect()
    }

    /// The rank of this instance for a bucket among those that may serve a broker, or `=` and a
    /// queue: 0 is the first. The order is that of [`Fleet::preferred`].
    #[must_use]
    pub fn rank(&self, bucket: u16, set: &str) -> u32 {
        let own = weight(&self.me, bucket);
        let before = self.living.iter().filter(|entry| {
            **entry != *self.me && may_serve(entry, set) && weight(entry, bucket) > own
        });
        u32::try_from(before.count()).unwrap_or(u32::MAX)
    }

    /// The interval of each instance for work that the fleet as a whole does once per `every`.
    #[must_use]
    pub fn shared(&self, every: Duration) -> Duration {
        every.saturating_mul(u32::try_from(self.living.len().max(1)).unwrap_or(u32::MAX))
    }

    /// The interval of each instance for work that a single one does once per `every`. In a fleet of
    /// up to ten each works as often; in a larger one each works more rarely, so that the total
    /// stays.
    #[must_use]
    pub fn spread(&self, every: Duration) -> Duration {
        self.shared(every / SMALL_FLEET_INSTANCES).max(every)
    }

    /// The longest time between two reads of a bucket.
    #[must_use]
    pub fn floor_poll(&self) -> Duration {
        self.shared(FLOOR_POLL_INTERVAL)
    }
}

/// Listens for wake-ups of other instances until told to stop. Calls `gap` after each gap in
/// listening, because wake-ups may have been lost, and `heard` for each wake-up.
pub async fn follow(
    settings: Redis,
    channel: String,
    gap: impl Fn() + Send + Sync,
    heard: impl Fn(WakeUp) + Send + Sync,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::link();
    loop {
        let began = clock::now();
        tokio::select! {
            () = stop.cancelled() => return,
            ended = listen(&settings, &channel, &gap, &heard) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "the connection for wake-ups failed, trying again");
                }
            }
        }
        if clock::now().duration_since(began) > MIN_HEALTHY_DURATION {
            backoff.reset();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock::sleep(backoff.pause()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_has_exactly_one_preferred_reader_and_few_move() {
        let names: Vec<String> = (0..4).map(|n| format!("instance-{n}")).collect();
        let readers = |living: &[String]| -> Vec<usize> {
            let of: Vec<Vec<bool>> = living
                .iter()
                .map(|me| Fleet { me: me.as_str().into(), living: living.to_vec() }.preferred(64))
                .collect();
            (0..64)
                .map(|bucket| {
                    let mine: Vec<usize> = (0..living.len()).filter(|n| of[*n][bucket]).collect();
                    assert_eq!(mine.len(), 1, "bucket {bucket}");
                    mine[0]
                })
                .collect()
        };
        let (four, three) = (readers(&names), readers(&names[..3]));
        for bucket in 0..64 {
            assert!(
                four[bucket] == three[bucket] || four[bucket] == 3,
                "only the buckets of the instance that left may move"
            );
        }
        assert!(
            (0..4).all(|n| four.iter().filter(|reader| **reader == n).count() >= 6),
            "{four:?}"
        );
    }

    #[test]
    fn a_broker_has_its_readers_among_those_that_serve_it() {
        let brokers =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let older = "older".to_owned();
        let (one, both) =
            (entry("one", &brokers(&["main"])), entry("both", &brokers(&["other-main", "other"])));
        let living = vec![both.clone(), older.clone(), one.clone()];
        let of = |me: &str, broker: &str| {
            Fleet { me: me.into(), living: living.clone() }.serving(broker)
        };
        assert_eq!(
            [of(&one, "main").living, of(&both, "other").living],
            [vec![older.clone(), one.clone()], vec![both, older.clone()]]
        );
        let readers = [of(&one, "main").preferred(64), of(&older, "main").preferred(64)];
        assert!(
            (0..64).all(|bucket| readers[0][bucket] != readers[1][bucket]),
            "one instance reads each bucket"
        );
        assert_eq!(of(&one, "main").floor_poll(), 2 * FLOOR_POLL_INTERVAL);
        assert!(of(&one, "main").has_others("main") && !Fleet::alone(&one).has_others("main"));
    }

    #[test]
    fn those_that_may_serve_have_one_order_and_its_first_is_preferred() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (main, both) = (entry("a", &set(&["main"])), entry("b", &set(&["main", "other"])));
        let (emails, orders) = (entry("c", &set(&["=emails"])), entry("d", &set(&["=orders"])));
        let living = vec![main.clone(), both.clone(), emails.clone(), orders.clone()];
        let of = |me: &str| Fleet { me: me.into(), living: living.clone() };
        let ranks = |set: &str, bucket: u16, who: &[&String]| -> Vec<u32> {
            let mut ranks: Vec<u32> = who.iter().map(|me| of(me).rank(bucket, set)).collect();
            ranks.sort_unstable();
            ranks
        };
        for bucket in 0..64 {
            assert_eq!(ranks("main", bucket, &[&main, &both]), [0, 1]);
            assert_eq!(ranks("other", bucket, &[&both]), [0]);
            // A sidecar may declare the queue; the worker of another queue does not serve it.
            assert_eq!(ranks("=emails", bucket, &[&main, &both, &emails]), [0, 1, 2]);
            let first = of(&main).serving("main").preferred(64)[usize::from(bucket)];
            assert_eq!(of(&main).rank(bucket, "main") == 0, first);
        }
        assert_eq!(Fleet::alone(&main).rank(3, "main"), 0);
    }

    #[test]
    fn a_larger_fleet_polls_more_rarely_each() {
        let fleet = Fleet { me: "a".into(), living: vec!["a".to_owned(), "b".to_owned()] };
        assert_eq!(fleet.floor_poll(), 2 * FLOOR_POLL_INTERVAL);
    }
}
