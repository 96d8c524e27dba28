//! The committed offsets of a group, read from the broker while members are killed, stopped and
//! replaced: never past a message that nobody acked.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dwell_connectors::{Batch, BrokerConfig, Source, SourceOptions};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::server::shared;
use crate::{TIMEOUT, at, confirmed, create, fresh, numbered, options};

const PARTITIONS: i32 = 3;
const TOTAL_MESSAGES: u64 = 15_000;
/// The number of messages that each of the two members acks before the first is killed.
const MESSAGES_PER_MEMBER: usize = 1500;

/// The acked partitions and offsets: each reader writes a file before each ack, so the files are
/// never behind a commit.
fn ledger(folder: &Path) -> HashSet<(i32, i64)> {
    let mut acked = HashSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        // Without an incomplete line: its ack is still to come.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        acked.extend(whole.lines().map(|line| {
            let (partition, offset) = line.split_once(' ').unwrap();
            (partition.parse::<i32>().unwrap(), offset.parse::<i64>().unwrap())
        }));
    }
    acked
}

/// Reads while `on` says so for the number of messages acked. Acks newer messages before older
/// ones. Returns the source and its unsettled batches.
async fn reading(
    broker: &BrokerConfig,
    topic: &str,
    file: PathBuf,
    on: impl Fn(usize) -> bool,
) -> (Box<dyn Source>, Vec<Batch>) {
    let source = broker
        .source(SourceOptions { max_batch: 20, max_unsettled: 400, ..options(topic) })
        .await
        .unwrap();
    let mut file = std::fs::File::create(file).unwrap();
    let (mut open, mut turn, mut acked) = (Vec::<Batch>::new(), 0_usize, 0);
    while on(acked) {
        let came = tokio::time::timeout(Duration::from_millis(200), source.recv()).await;
        let keep = if came.is_ok() { 6 } else { 0 };
        open.extend(came.map(Result::unwrap));
        while open.len() > keep {
            turn += 1;
            let batch =
                if turn.is_multiple_of(5) { open.remove(0) } else { open.remove(open.len() - 1) };
            let positions = batch.messages.iter().map(|message| message.position.as_ref().unwrap());
            let lines: String = positions
                .map(|position| format!("{} {}\n", position.partition, position.offset))
                .collect();
            file.write_all(lines.as_bytes()).unwrap();
            source.ack(batch.id).await.unwrap();
            acked += batch.messages.len();
        }
        // A load that lasts for several commits.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (source, open)
}

/// The committed offsets of the topic's group by partition, read by a client besides the connector.
struct Committed {
    consumer: BaseConsumer,
    list: TopicPartitionList,
}

impl Committed {
    fn new(topic: &str) -> Self {
        let mut config = ClientConfig::new();
        let config = config
            .set("bootstrap.servers", shared().address())
            .set("group.id", options(topic).group);
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, PARTITIONS - 1);
        Committed { consumer: config.create().unwrap(), list }
    }

    fn now(&self) -> Vec<(i32, i64)> {
        let deadline = Instant::now() + TIMEOUT;
        let list = loop {
            match self.consumer.committed_offsets(self.list.clone(), TIMEOUT) {
                Ok(list) => break list,
                // The group's coordinator appears with the first group.
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        list.elements()
            .iter()
            .map(|element| (element.partition(), offset(element.offset())))
            .collect()
    }
}

/// Compares committed and acked offsets repeatedly until `stop`; returns how often the commits
/// changed.
fn watch(topic: &str, folder: &Path, stop: &AtomicBool) -> usize {
    let committed = Committed::new(topic);
    let (mut before, mut changes) = (Vec::new(), 0);
    loop {
        let last = stop.load(Ordering::Relaxed);
        // The commits first: their acks are in the ledger by then.
        let now = committed.now();
        if now != before {
            changes += 1;
            let acked = ledger(folder);
            for (partition, committed) in &now {
                let passed = (0..*committed).find(|offset| !acked.contains(&(*partition, *offset)));
                assert!(
                    passed.is_none(),
                    "{committed} is committed in {partition}, and {passed:?} was not acked"
                );
            }
            before = now;
        }
        if last {
            return changes;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

const CHILD: &str = "DWELL_TEST_MEMBER";

/// A member in a process of its own, which the next test kills.
#[tokio::test]
#[ignore = "the other half of the next test"]
async fn a_member_to_be_killed() {
    let told = std::env::var(CHILD).unwrap();
    let (address, told) = told.split_once(' ').unwrap();
    let (topic, file) = told.split_once(' ').unwrap();
    let broker = BrokerConfig::Kafka(dwell_connectors::kafka::Config::at(address));
    reading(&broker, topic, PathBuf::from(file), |_| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_never_pass_a_message_that_was_not_acked() {
    let (broker, topic) = (at(shared()), fresh("commits"));
    create(shared(), &topic, PARTITIONS, &[]).await;
    for chunk in (0..TOTAL_MESSAGES / 500).map(|_| numbered(&topic, 500)) {
        confirmed(&broker, chunk).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, stop) = (folder.path().to_owned(), Arc::new(AtomicBool::new(false)));
    let watcher = tokio::task::spawn_blocking({
        let (topic, path, stop) = (topic.clone(), path.clone(), Arc::clone(&stop));
        move || watch(&topic, &path, &stop)
    });

    // Two members share the partitions; one is a process that is killed.
    let killed = path.join("killed");
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["commits::a_member_to_be_killed", "--exact", "--ignored"])
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let mut child = command
        .env(CHILD, format!("{} {topic} {}", shared().address(), killed.display()))
        .spawn()
        .unwrap();
    let deadline = Instant::now() + 2 * TIMEOUT;
    let of_killed = || std::fs::read_to_string(&killed).map_or(0, |text| text.lines().count());
    while of_killed() == 0 {
        assert!(Instant::now() < deadline, "the first member acks nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = of_killed();
    let both = |acked| {
        (acked < MESSAGES_PER_MEMBER || of_killed() < before + MESSAGES_PER_MEMBER)
            && Instant::now() < deadline
    };
    let (source, open) = reading(&broker, &topic, path.join("stopped"), both).await;
    assert!(
        Instant::now() < deadline && !open.is_empty(),
        "both members read and ack: {} by the first",
        of_killed()
    );
    child.kill().await.unwrap();
    let by_killed = of_killed();
    assert!(
        by_killed < usize::try_from(TOTAL_MESSAGES).unwrap(),
        "the first member has left something"
    );
    // The other is stopped orderly, with unsettled batches.
    source.close().await.unwrap();
    drop(open);

    // The next member reads what they left.
    let end = Instant::now() + 3 * TIMEOUT;
    let missing = || TOTAL_MESSAGES as usize - ledger(&path).len();
    let looked = std::cell::Cell::new((Instant::now(), missing()));
    let follows = |_| {
        if looked.get().0.elapsed() > Duration::from_millis(300) {
            looked.set((Instant::now(), missing()));
        }
        looked.get().1 > 0 && Instant::now() < end && !watcher.is_finished()
    };
    let (source, _) = reading(&broker, &topic, path.join("follows"), follows).await;
    stop.store(true, Ordering::Relaxed);
    let changes = watcher.await.unwrap();
    assert!(changes > 5, "something was committed {changes} times");
    assert_eq!(missing(), 0, "every message is acked by somebody");
    source.close().await.unwrap();
    // The next member rereads the messages that were unsettled at the rebalance, and may have left
    // some of them unsettled.
    let committed: i64 = Committed::new(&topic).now().iter().map(|(_, committed)| committed).sum();
    assert!(
        committed > i64::try_from(TOTAL_MESSAGES).unwrap() * 3 / 4,
        "{committed} of {TOTAL_MESSAGES} are committed"
    );
}
