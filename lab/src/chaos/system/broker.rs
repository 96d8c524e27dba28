//! The broker, its link to the instances, and their user.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use dwell_testkit::servers::{
    BrokerKind, BrokerServer, KafkaOptions, KafkaServer, NatsOptions, NatsServer, RabbitOptions,
    RabbitServer, find,
};
use serde_json::json;
use tempfile::TempDir;

use super::{Error, Maker, REPLY_DESTINATION, jetstream, kafka, proxy};
use crate::chaos::proxy::Proxy;

/// The user of the instances, whose password is the same word. All other clients use a user whose
/// permissions no fault changes.
pub(crate) const USER: &str = "dwell";

/// The destinations of dead letters and rejected requests: the defaults of the instances, which
/// would create them.
const LETTER_DESTINATIONS: [&str; 2] = ["delay.dead", "delay.rejected"];

/// The `ack_wait` of JetStream: short, so that the requests of a dead instance are soon
/// redelivered.
const ACK_WAIT_NS: u64 = 5_000_000_000;

/// The most partitions of `delay.in`.
const MAX_PARTITIONS: i32 = 8;

const DEFINITIONS: &str = "definitions.json";

/// The broker and its links.
pub(crate) struct BrokerSide {
    /// Locked by a fault for its whole duration.
    pub(crate) server: tokio::sync::Mutex<BrokerServer>,
    /// The link of the instances.
    pub(crate) link: Proxy,
    /// Their link to the same broker under another name.
    pub(crate) spare: Proxy,
    pub(crate) kind: BrokerKind,
    /// The port of the direct connection.
    pub(crate) port: u16,
    /// The partitions of `delay.in`, on Kafka.
    partitions: AtomicI32,
    /// The lines of `[brokers.NAME]` for all other clients.
    pub(super) straight: String,
    pub(super) dir: PathBuf,
    folder: TempDir,
}

impl BrokerSide {
    pub(super) async fn start(kind: BrokerKind, targets: &[String]) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        let (link, spare) = (proxy().await?, proxy().await?);
        let mut server = match kind {
            BrokerKind::Nats => {
                let (config, credentials) = (nats_users("{}"), Some("load:load".to_owned()));
                BrokerServer::Nats(NatsServer::start(NatsOptions { config, credentials }).await?)
            }
            BrokerKind::Kafka => {
                // The broker's time of receipt, not the producer's: the clock of the instances may
                // be wrong.
                let config = "log.message.timestamp.type=LogAppendTime".to_owned();
                let proxy = Some(link.address().port());
                BrokerServer::Kafka(KafkaServer::start(KafkaOptions { proxy, config }).await?)
            }
            BrokerKind::Amqp => {
                let file = folder.path().join(DEFINITIONS);
                std::fs::write(&file, definitions(targets).to_string())
                    .map_err(Error::file(&file))?;
                let config = format!("load_definitions = {}", file.display());
                BrokerServer::Amqp(RabbitServer::start(RabbitOptions { config }).await?)
            }
        };
        server.keep_logs();
        let leads_to = match &server {
            BrokerServer::Kafka(kafka) => kafka.link_port().unwrap_or_else(|| kafka.port()),
            BrokerServer::Nats(_) | BrokerServer::Amqp(_) => server.port(),
        };
        link.lead_to(format!("127.0.0.1:{leads_to}"));
        spare.lead_to(format!("127.0.0.1:{leads_to}"));
        Ok(BrokerSide {
            link,
            spare,
            kind,
            port: server.port(),
            partitions: AtomicI32::new(1),
            straight: server.settings(),
            dir: server.dir().to_owned(),
            folder,
            server: tokio::sync::Mutex::new(server),
        })
    }

    /// The file with the users and classic queues of RabbitMQ.
    pub(crate) fn definitions(&self) -> PathBuf {
        self.folder.path().join(DEFINITIONS)
    }

    /// The lines of `[brokers.NAME]` for the instances, over this link.
    pub(super) fn link_settings(&self, way: &Proxy) -> String {
        let (kind, at) = (self.kind.as_str(), way.address());
        let address = match self.kind {
            BrokerKind::Nats | BrokerKind::Amqp => format!("url = \"{kind}://{USER}:{USER}@{at}\""),
            // The least value that a broker accepts by default.
            BrokerKind::Kafka => format!(
                "bootstrap = \"{at}\"\nproperties = {{ \"session.timeout.ms\" = \"6000\" }}"
            ),
        };
        format!("type = \"{kind}\"\n{address}\n")
    }

    /// Creates the destinations of instances and load. On NATS the streams forget message ids at
    /// once, so that the server's deduplication hides no copy of Dwell, and the consumer has a
    /// short `ack_wait`.
    pub(super) async fn declare(&self, maker: &Maker, targets: &[String]) -> Result<(), Error> {
        if self.kind == BrokerKind::Nats {
            let config = json!({
                "name": "DWELL_delay_in", "subjects": ["delay.in"], "storage": "file",
                "retention": "workqueue", "discard": "new",
            });
            jetstream::ask(self.port, "STREAM.CREATE.DWELL_delay_in", config).await?;
            self.make_consumer().await?;
            for letters in LETTER_DESTINATIONS {
                maker.make(letters).await?;
            }
        }
        for target in targets.iter().map(String::as_str).chain([REPLY_DESTINATION]) {
            maker.make(target).await?;
        }
        Ok(())
    }

    /// Creates or updates the consumer of the instances' ingest, on NATS.
    pub(crate) async fn make_consumer(&self) -> Result<(), Error> {
        let config = json!({
            "durable_name": "dwell", "filter_subject": "delay.in", "deliver_policy": "all",
            "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, "max_deliver": -1,
            "max_ack_pending": 65_536,
        });
        let request = json!({ "stream_name": "DWELL_delay_in", "config": config });
        let call = "CONSUMER.DURABLE.CREATE.DWELL_delay_in.dwell";
        jetstream::ask(self.port, call, request).await.map(drop)
    }

    /// Adds a partition to `delay.in`, up to a number. Returns how many it has.
    pub(crate) async fn add_partition(&self) -> Result<i32, Error> {
        let server = self.server.lock().await;
        let BrokerServer::Kafka(of) = &*server else {
            return Err(Error::Unexpected(format!("{server} has no partitions")));
        };
        let count = self.partitions.load(Ordering::Relaxed);
        if count == MAX_PARTITIONS {
            return Ok(count);
        }
        kafka::grow(of, "delay.in", count + 1).await?;
        self.partitions.store(count + 1, Ordering::Relaxed);
        Ok(count + 1)
    }

    /// The number of requests that the instances have not acknowledged: on Kafka, past the
    /// committed offset.
    pub(crate) async fn unacknowledged(&self) -> Result<u64, Error> {
        let server = self.server.lock().await;
        match &*server {
            BrokerServer::Nats(_) => {
                let call = "CONSUMER.INFO.DWELL_delay_in.dwell";
                let info = jetstream::ask(self.port, call, json!({})).await?;
                let count = |name: &str| info[name].as_u64().unwrap_or(0);
                Ok(count("num_pending") + count("num_ack_pending"))
            }
            BrokerServer::Kafka(server) => {
                let partitions = self.partitions.load(Ordering::Relaxed);
                kafka::uncommitted(server, "dwell", "delay.in", partitions).await
            }
            BrokerServer::Amqp(server) => {
                let length = queue_length(server, "delay.in").await?;
                length.ok_or_else(|| Error::unexpected("rabbitmqctl did not list delay.in"))
            }
        }
    }
}

/// The users of NATS in its configuration; the instances have these permissions.
pub(crate) fn nats_users(rights: &str) -> String {
    format!(
        "authorization {{ users: [ {{ user: load, password: load }}, {{ user: {USER}, password: {USER}, permissions: {rights} }} ] }}"
    )
}

/// The targets that are classic queues on RabbitMQ; the others are quorum queues. With a limit of
/// zero only classic queues refuse every message even while they are read: a quorum queue refuses
/// only once it is full.
pub(crate) fn classic(targets: &[String]) -> impl Iterator<Item = &str> {
    targets.iter().step_by(2).map(String::as_str)
}

/// The definitions: `guest` with all permissions, the user of the instances, and the classic
/// queues.
fn definitions(targets: &[String]) -> serde_json::Value {
    let user = |name: &str, tags: &str| json!({ "name": name, "password": name, "tags": tags });
    let rights = |name: &str| json!({ "user": name, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*" });
    let queue = |name: &str| json!({ "name": name, "vhost": "/", "durable": true, "auto_delete": false, "arguments": {} });
    json!({
        "queues": classic(targets).map(queue).collect::<Vec<_>>(),
        "users": [user("guest", "administrator"), user(USER, "")],
        "vhosts": [{ "name": "/" }],
        "permissions": [rights("guest"), rights(USER)],
    })
}

/// The number of messages in a queue of this server, if it is there.
pub(crate) async fn queue_length(server: &RabbitServer, queue: &str) -> Result<Option<u64>, Error> {
    let listed = ["list_queues", "name", "messages", "--no-table-headers"];
    let counts = rabbitmqctl(server, &listed).await?;
    let mut counts = counts.lines().filter_map(|line| line.split_once('\t'));
    let found = counts.find(|(name, _)| *name == queue);
    Ok(found.and_then(|(_, count)| count.trim().parse().ok()))
}

/// Runs `rabbitmqctl` on this server.
pub(crate) async fn rabbitmqctl(server: &RabbitServer, words: &[&str]) -> Result<String, Error> {
    let program = find::rabbitmq_server()?.with_file_name("rabbitmqctl");
    let mut command = tokio::process::Command::new(&program);
    // The port in the environment is the server's; the tool must not take it.
    command.envs(server.tools_environment()).env_remove("RABBITMQ_DIST_PORT");
    command.args(["--quiet"]).args(words).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(Error::file(&program))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(Error::Unexpected(format!("rabbitmqctl {}: {said}", words.join(" "))))
    }
}
