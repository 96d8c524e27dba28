//! Groups: commits, assignments, and unsettled messages of a reader.

use std::collections::{HashMap, HashSet};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dwell_connectors::{BrokerConfig, ErrorKind, Source, SourceOptions};
use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::server::shared;
use crate::{
    TIMEOUT, at, confirmed, create, declare, fresh, numbered, numbers, options, read, with,
};

/// The committed offset of the topic's group in partition 0, read by a client besides the
/// connector.
async fn committed(address: &str, topic: &str) -> i64 {
    let (address, group, topic) = (address.to_owned(), options(topic).group, topic.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let mut config = ClientConfig::new();
        let consumer: BaseConsumer =
            config.set("bootstrap.servers", address).set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition(&topic, 0);
        let list = consumer.committed_offsets(list, TIMEOUT).unwrap();
        match list.find_partition(&topic, 0).unwrap().offset() {
            Offset::Offset(offset) => offset,
            _ => 0,
        }
    });
    asked.await.unwrap()
}

async fn until_committed(topic: &str, expected: i64) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let committed = committed(&shared().address(), topic).await;
        assert!(committed <= expected, "{committed} was committed, only {expected} may be");
        if committed == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{committed} was committed, not {expected}");
    }
}

/// Waits until the topic's group is stable, with this many members.
async fn until_members(topic: &str, count: usize) {
    let (address, group) = (shared().address(), options(topic).group);
    let looking = move || {
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", address).create().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let groups = consumer.fetch_group_list(Some(&group), TIMEOUT).unwrap();
            if groups
                .groups()
                .iter()
                .any(|group| group.state() == "Stable" && group.members().len() == count)
            {
                return true;
            }
        }
        false
    };
    assert!(
        tokio::task::spawn_blocking(looking).await.unwrap(),
        "the group never has {count} members"
    );
}

/// The others need not wait for the end of its session, which is far away.
#[tokio::test]
async fn a_reader_without_a_partition_leaves_its_group_when_it_closes() {
    let (topic, session) = (fresh("idle"), [("session.timeout.ms", "600000")]);
    let broker = with(shared(), &session);
    create(shared(), &topic, 1, &[]).await;
    confirmed(&broker, numbered(&topic, 1)).await;
    let reads = broker.source(options(&topic)).await.unwrap();
    assert_eq!(batches(&*reads, 1).await.len(), 1);
    for _ in 0..2 {
        let idle = broker.source(options(&topic)).await.unwrap();
        until_members(&topic, 2).await;
        idle.close().await.unwrap();
        until_members(&topic, 1).await;
    }
}

async fn batches(source: &dyn Source, count: usize) -> Vec<dwell_connectors::Batch> {
    let mut all = Vec::new();
    for number in 0..count {
        all.push(
            tokio::time::timeout(TIMEOUT, source.recv())
                .await
                .unwrap_or_else(|_| panic!("{number} of {count} came"))
                .unwrap(),
        );
    }
    all
}

#[tokio::test]
async fn only_the_settled_prefix_is_committed() {
    let (broker, topic) = (at(shared()), fresh("prefix"));
    declare(&broker, &topic).await;
    confirmed(&broker, numbered(&topic, 30)).await;
    let source = broker.source(SourceOptions { max_batch: 10, ..options(&topic) }).await.unwrap();
    let mut all = Vec::new();
    while all.iter().map(|batch: &dwell_connectors::Batch| batch.messages.len()).sum::<usize>() < 30
    {
        all.extend(batches(&*source, 1).await);
    }
    let (first, rest) = (all.remove(0), all);
    for batch in rest.iter().rev() {
        source.ack(batch.id).await.unwrap();
    }
    // Long enough for two commits.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(committed(&shared().address(), &topic).await, 0);
    source.ack(first.id).await.unwrap();
    until_committed(&topic, 30).await;
}

#[tokio::test]
async fn what_is_nacked_comes_again_and_what_is_settled_or_held_does_not() {
    let (broker, topic) = (at(shared()), fresh("nacked"));
    declare(&broker, &topic).await;
    confirmed(&broker, numbered(&topic, 40)).await;
    let source = broker
        .source(SourceOptions { max_batch: 5, max_unsettled: 40, ..options(&topic) })
        .await
        .unwrap();
    let mut all = Vec::new();
    while all.iter().map(|batch: &dwell_connectors::Batch| batch.messages.len()).sum::<usize>() < 40
    {
        all.extend(batches(&*source, 1).await);
    }
    let mut given_back = HashSet::new();
    for (number, batch) in all.iter().enumerate() {
        match number % 3 {
            0 => source.ack(batch.id).await.unwrap(),
            1 => {
                given_back.extend(numbers(&batch.messages));
                source.nack(batch.id).await.unwrap();
            }
            _ => {}
        }
    }
    let again: Vec<u64> = numbers(&read(&*source, given_back.len()).await);
    assert_eq!(again.iter().copied().collect::<HashSet<_>>(), given_back);
    assert_eq!(again.len(), given_back.len());
    assert!(
        tokio::time::timeout(Duration::from_millis(500), source.recv()).await.is_err(),
        "what is held came again"
    );
    for batch in all.iter().skip(2).step_by(3) {
        source.ack(batch.id).await.unwrap();
    }
    until_committed(&topic, 40).await;
}

/// The number of acks by message number.
type Acked = Arc<Mutex<HashMap<u64, usize>>>;

/// Reads while `on` says so for the numbers of messages acked by this reader and by all. Acks late
/// and out of order. Leaves a few batches unsettled at the end.
async fn reading(
    broker: &BrokerConfig,
    topic: &str,
    acked: &Acked,
    on: impl Fn(usize, usize) -> bool,
) {
    let source = broker
        .source(SourceOptions { max_batch: 50, max_unsettled: 300, ..options(topic) })
        .await
        .unwrap();
    let (mut open, mut turn, mut ours) = (Vec::<dwell_connectors::Batch>::new(), 0_usize, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while on(ours, acked.lock().len()) {
        assert!(Instant::now() < deadline, "{} were acked", acked.lock().len());
        let came = tokio::time::timeout(Duration::from_millis(200), source.recv()).await;
        let keep = if came.is_ok() { 4 } else { 0 };
        open.extend(came.map(Result::unwrap));
        while open.len() > keep {
            turn += 1;
            let batch =
                if turn.is_multiple_of(2) { open.remove(0) } else { open.remove(open.len() - 1) };
            source.ack(batch.id).await.unwrap();
            ours += batch.messages.len();
            let mut acked = acked.lock();
            numbers(&batch.messages)
                .into_iter()
                .for_each(|number| *acked.entry(number).or_default() += 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_come_and_go_under_load_and_nothing_is_lost() {
    for strategy in ["cooperative-sticky", "range,roundrobin"] {
        let (broker, topic) =
            (with(shared(), &[("partition.assignment.strategy", strategy)]), fresh("shared"));
        create(shared(), &topic, 4, &[]).await;
        let total = 20_000;
        let publishing = tokio::spawn({
            let (broker, topic) = (broker.clone(), topic.clone());
            async move {
                let mut all = numbered(&topic, total);
                while !all.is_empty() {
                    let chunk = all.drain(..500).collect();
                    confirmed(&broker, chunk).await;
                }
            }
        });
        let (acked, all, both) = (Acked::default(), total as usize, AtomicBool::new(false));
        let second = async {
            while acked.lock().len() < all / 10 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let on = |ours, count| {
                both.fetch_or(ours > 1000, Ordering::Relaxed);
                count < all
            };
            reading(&broker, &topic, &acked, on).await;
        };
        // The first leaves when both have read for a while.
        let first = reading(&broker, &topic, &acked, |_, count| {
            count < all && !both.load(Ordering::Relaxed)
        });
        tokio::join!(first, second);
        publishing.await.unwrap();
        assert!(both.load(Ordering::Relaxed));
        // The messages that were unsettled at each rebalance.
        let twice = acked.lock().values().filter(|times| **times > 1).count();
        assert!(twice < 3000, "{strategy}: {twice} came more than once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_longer_than_the_group_waits_for_a_poll_stays_held() {
    let short = [("session.timeout.ms", "6000"), ("max.poll.interval.ms", "6000")];
    let (broker, topic) = (with(shared(), &short), fresh("held"));
    declare(&broker, &topic).await;
    confirmed(&broker, numbered(&topic, 20)).await;
    let first = broker
        .source(SourceOptions { max_batch: 20, max_unsettled: 20, ..options(&topic) })
        .await
        .unwrap();
    let mut held = Vec::new();
    while held.iter().map(|batch: &dwell_connectors::Batch| batch.messages.len()).sum::<usize>()
        < 20
    {
        held.extend(batches(&*first, 1).await);
    }
    let second = broker.source(options(&topic)).await.unwrap();
    confirmed(&broker, numbered(&topic, 5)).await;
    let nothing = tokio::time::timeout(Duration::from_secs(9), async {
        tokio::select! {
            batch = first.recv() => batch,
            batch = second.recv() => batch,
        }
    });
    assert!(nothing.await.is_err(), "something came");
    for batch in held {
        first.ack(batch.id).await.unwrap();
    }
    assert_eq!(numbers(&read(&*first, 5).await), [1, 2, 3, 4, 5]);
    until_committed(&topic, 25).await;
}

#[tokio::test]
async fn a_deleted_topic_is_missing() {
    let (broker, topic) =
        (with(shared(), &[("topic.metadata.refresh.interval.ms", "1000")]), fresh("deleted"));
    declare(&broker, &topic).await;
    let source = broker.source(options(&topic)).await.unwrap();
    confirmed(&broker, numbered(&topic, 1)).await;
    read(&*source, 1).await;
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared().address()).create().unwrap();
    admin.delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
    let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
    assert!(error.kind == ErrorKind::Missing && error.message.contains(&topic), "{error}");
}

const CHILD: &str = "DWELL_TEST_CHILD";

/// A reader in a process of its own, which the next test kills: acks every second batch, and prints
/// the acks.
#[tokio::test]
#[ignore = "the other half of the next test"]
async fn a_reader_to_be_killed() {
    let told = std::env::var(CHILD).unwrap();
    let (address, topic) = told.split_once('/').unwrap();
    let broker = BrokerConfig::Kafka(dwell_connectors::kafka::Config::at(address));
    let source = broker.source(SourceOptions { max_batch: 7, ..options(topic) }).await.unwrap();
    for number in 0_u32.. {
        let batch = source.recv().await.unwrap();
        // The first batches in order, so that something is committed.
        if number < 20 || number % 2 == 0 {
            source.ack(batch.id).await.unwrap();
            println!(
                "acked {}",
                numbers(&batch.messages).iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_reader_for_whom_no_partition_is_left_reads() {
    let (broker, topic) = (at(shared()), fresh("shares"));
    create(shared(), &topic, 1, &[]).await;
    let first = broker.source(options(&topic)).await.unwrap();
    tokio::time::timeout(TIMEOUT, first.reads()).await.expect("the first has its share");
    let second = broker.source(options(&topic)).await.unwrap();
    tokio::time::timeout(TIMEOUT, second.reads())
        .await
        .expect("the second is told that there is none for it, or the first is");
    confirmed(&broker, numbered(&topic, 1)).await;
    let came = tokio::select! {
        came = read(&*first, 1) => came,
        came = read(&*second, 1) => came,
    };
    assert_eq!(numbers(&came), [1]);
}

#[tokio::test]
async fn after_a_kill_nothing_that_was_not_acked_is_skipped_and_reading_resumes_in_time() {
    let (broker, topic) = (at(shared()), fresh("killed"));
    declare(&broker, &topic).await;
    let total = 2000;
    confirmed(&broker, numbered(&topic, total)).await;
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["groups::a_reader_to_be_killed", "--exact", "--ignored", "--nocapture"]);
    command
        .env(CHILD, format!("{}/{topic}", shared().address()))
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acked = HashSet::new();
    while acked.len() < 500 {
        let line =
            tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some((_, numbers)) = line.split_once("acked ") {
            acked.extend(numbers.split(' ').map(|number| number.parse::<u64>().unwrap()));
        }
    }
    child.kill().await.unwrap();
    let killed = Instant::now();
    let source = broker.source(options(&topic)).await.unwrap();
    let opened = Instant::now();
    tokio::time::timeout(TIMEOUT, source.reads()).await.expect("the group shares out the topic");
    let shared_out = Instant::now();
    let mut seen: HashSet<u64> = numbers(&read(&*source, 1).await).into_iter().collect();
    let late = shared_out.elapsed();
    println!(
        "open {:?} after the kill, shared out {:?} later, read {late:?} after that",
        opened - killed,
        shared_out - opened
    );
    assert!(killed.elapsed() < Duration::from_secs(30), "it took {:?}", killed.elapsed());
    // Nothing of the killed member's session timeout is left.
    assert!(late < Duration::from_secs(4), "it said {late:?} too early that it reads");
    // Something was committed, and nothing past the first unacked batch.
    assert!(!seen.contains(&1));
    while !(1..=total).all(|number| acked.contains(&number) || seen.contains(&number)) {
        seen.extend(numbers(&read(&*source, 1).await));
    }
}

#[tokio::test]
async fn what_was_nacked_and_is_deleted_holds_no_commit_back() {
    let (broker, topic) = (at(shared()), fresh("gone"));
    declare(&broker, &topic).await;
    confirmed(&broker, numbered(&topic, 10)).await;
    let source = broker.source(SourceOptions { max_batch: 1, ..options(&topic) }).await.unwrap();
    let all = batches(&*source, 10).await;
    for batch in &all[..6] {
        source.ack(batch.id).await.unwrap();
    }
    until_committed(&topic, 6).await;
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared().address()).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, Offset::Offset(10)).unwrap();
    admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
    for batch in &all[6..] {
        source.nack(batch.id).await.unwrap();
    }
    // No message comes and nothing waits.
    until_committed(&topic, 10).await;
    confirmed(&broker, numbered(&topic, 3)).await;
    assert_eq!(numbers(&read(&*source, 3).await), [1, 2, 3]);
    until_committed(&topic, 13).await;
}

/// Adds partitions, and publishes one message to the last of them. Both by clients besides the
/// connector.
fn grow(topic: &str, partitions: i32) -> impl FnOnce() + Send + 'static {
    let (address, topic) = (shared().address(), topic.to_owned());
    move || {
        let producer: BaseProducer =
            ClientConfig::new().set("bootstrap.servers", address).create().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let count = || {
            producer.client().fetch_metadata(Some(&topic), TIMEOUT).unwrap().topics()[0]
                .partitions()
                .len()
        };
        while i32::try_from(count()).unwrap() < partitions {
            assert!(Instant::now() < deadline, "{topic} never has {partitions} partitions");
        }
        producer
            .send(BaseRecord::<(), str>::to(&topic).partition(partitions - 1).payload("new"))
            .unwrap();
        producer.flush(TIMEOUT).unwrap();
    }
}

#[tokio::test]
async fn partitions_that_are_added_are_read_within_half_a_minute() {
    let (broker, topic) = (at(shared()), fresh("grows"));
    create(shared(), &topic, 1, &[]).await;
    let source = broker.source(options(&topic)).await.unwrap();
    confirmed(&broker, numbered(&topic, 1)).await;
    read(source.as_ref(), 1).await;
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared().address()).create().unwrap();
    let made = admin
        .create_partitions(&[NewPartitions::new(&topic, 3)], &AdminOptions::new())
        .await
        .unwrap();
    made.into_iter().for_each(|result| drop(result.unwrap()));
    let work = grow(&topic, 3);
    tokio::task::spawn_blocking(move || {
        drop(admin);
        work();
    })
    .await
    .unwrap();
    // Waits for half a minute.
    assert_eq!(read(source.as_ref(), 1).await[0].body, "new");
    source.close().await.unwrap();
}

#[tokio::test]
async fn members_with_one_instance_id_are_told_what_fences_them() {
    let (broker, topic) = (with(shared(), &[("group.instance.id", "same")]), fresh("fenced"));
    create(shared(), &topic, 1, &[]).await;
    let first = broker.source(options(&topic)).await.unwrap();
    let second = broker.source(options(&topic)).await.unwrap();
    let ended = tokio::time::timeout(TIMEOUT, first.recv()).await.unwrap().unwrap_err();
    assert!(ended.hint.contains("`group.instance.id`"), "{ended}: {}", ended.hint);
    drop((first, second));
}
