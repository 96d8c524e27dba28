//! The only module that knows Redis. Jobs live in buckets; each step is one idempotent script.
//!
//! - [`jobs`]: requests, claims and settles; [`reader`]: jobs and counts; [`schedules`]: recurring
//!   schedules; [`admin`]: sweep, transfer, fsck and upgrade. All four stand on one [`namespace`].
//! - [`keys`]: every key; [`due_set`]: the owners of sets; [`record`]: the form of a job in Redis;
//!   [`scripts`]: the Lua files; [`call`]: their calls, with bounds and repeats.
//! - [`client`]: connections, rebuilt when they break; [`gate`]: connections that wait for
//!   durability; [`refusals`]: the logins that Redis refuses.
//! - [`meta`]: the description of a namespace, and `schema`: the version of its keys;
//!   [`server_facts`]: the facts of its server; [`instances`]: the heartbeats of instances;
//!   [`declared`]: the schedules of their settings; [`limits`]: the turns of limited targets;
//!   [`queue_limits`]: those of queues; [`places`]: what of a limit is out at a time, and
//!   [`place_observers`]: who waits for it;
//!   [`wake_up`]: what they tell one another.
//! - [`acl`]: the permissions of the user.

pub mod acl;
pub mod admin;
mod answer;
pub mod call;
pub mod client;
pub mod declared;
pub mod due_set;
pub mod error;
pub mod gate;
pub mod instances;
pub mod jobs;
pub mod keys;
pub mod limits;
pub mod meta;
pub mod namespace;
pub mod place_observers;
pub mod places;
pub mod queue_limits;
pub mod reader;
pub mod record;
pub mod refusals;
pub mod schedules;
mod schema;
pub mod scripts;
pub mod server_facts;
pub mod wake_up;

use std::ops::Deref;
use std::sync::Arc;

use crate::config::Redis;
use crate::job::JobId;
use admin::Admin;
use client::RedisClient;
use error::{Class, StoreError};
use gate::Gate;
use jobs::Jobs;
use keys::Keys;
use namespace::Namespace;
pub use namespace::{CallObserver, IsQueueFull, Unobserved};
use reader::Reader;
use schedules::Schedules;

/// A namespace in one Redis. Share the store behind an `Arc`; any task may call any method. A store
/// is its [`Namespace`] with the parts that work on it.
pub struct Store {
    /// Changes jobs.
    pub jobs: Jobs,
    /// Looks at jobs.
    pub reader: Reader,
    /// Recurring schedules.
    pub schedules: Schedules,
    /// Maintains the namespace.
    pub admin: Admin,
    namespace: Arc<Namespace>,
}

impl Deref for Store {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Store {
    /// Opens the namespace, creates it if it is new, and adds
    /// these brokers.
    ///
    /// An error of class `Settings` if the namespace has another number of buckets or an unknown
    /// schema, or if Redis cannot give the durability or would evict jobs; of class `Readonly` while
    /// the durability needs a replica and none is connected.
    pub async fn open(
        settings: &Redis,
        brokers: &[String],
        observer: Arc<dyn CallObserver>,
    ) -> Result<Store, StoreError> {
        let link = RedisClient::new(settings);
        let facts = server_facts::facts(&link).await?;
        server_facts::refuse_replica(settings, &facts)?;
        let waits = match gate::waits_of(settings, &facts) {
            Err(error) if error.class == Class::Settings => return Err(error),
            waits => waits,
        };
        server_facts::refuse_eviction(&facts)?;
        acl::refuse_unpermitted(&link, &Keys::new(&settings.namespace, settings.buckets)).await?;
        let waits = match waits {
            Ok(waits) => waits,
            Err(error) => {
                // What never works is told now, and not once a replica has come.
                if let Some(found) = meta::look(&link, settings).await? {
                    meta::agree(&found, settings)?;
                }
                return Err(error);
            }
        };
        let known = meta::join(&link, settings, brokers).await?;
        let mut namespace =
            Namespace::new(settings, link, Gate::new(settings, Ok(waits)), known, observer);
        namespace.joined = Some((settings.clone(), brokers.into()));
        let store = Store::over(namespace);
        // The deadline of the first batch needs the clock before any script has answered.
        store.read_clock().await?;
        Ok(store)
    }

    /// Opens an existing namespace for reads and for actions of people, without joining it. An
    /// error of class `Settings` if the namespace does not exist or has another schema.
    ///
    /// If Redis cannot give the durability, reads work and actions are refused.
    pub async fn attach(settings: &Redis) -> Result<Store, StoreError> {
        let link = RedisClient::new(settings);
        let facts = server_facts::facts(&link).await?;
        let waits = gate::waits_of(settings, &facts);
        let known = meta::read(&link, settings).await?;
        let settings = Redis { buckets: known.buckets, ..settings.clone() };
        Ok(Store::over(Namespace::new(
            &settings,
            link,
            Gate::new(&settings, waits),
            known,
            Arc::new(Unobserved),
        )))
    }

    /// The master that had the job of this id when the cluster last told; `None` where it is not
    /// known, or the only one.
    #[must_use]
    pub fn master_of_job(&self, id: &JobId) -> Option<String> {
        self.master_of(&self.layout()?, self.keys().bucket_of(id.as_str()))
    }

    fn over(namespace: Namespace) -> Store {
        let namespace = Arc::new(namespace);
        Store {
            jobs: Jobs::new(namespace.clone()),
            reader: Reader::new(namespace.clone()),
            schedules: Schedules::new(namespace.clone()),
            admin: Admin::new(namespace.clone()),
            namespace,
        }
    }
}
