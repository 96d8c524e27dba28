//! The start of a new group, and what `inspect` reports about it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_connectors::{
    BrokerConfig, CautionKind, ConsumerState, Publication, SourceOptions, Start,
};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::raw::allow_reading_alone;
use crate::server::{KafkaServer, shared};
use crate::{TIMEOUT, at, confirmed, create, fresh, numbered, numbers, options, publication, read};

/// A topic of three partitions with this many numbered messages, and a broker.
async fn topic_with(count: u64) -> (BrokerConfig, String) {
    let (broker, topic) = (at(shared()), fresh("first"));
    create(shared(), &topic, 3, &[("message.timestamp.type", "LogAppendTime")]).await;
    confirmed(&broker, numbered(&topic, count)).await;
    (broker, topic)
}

fn from(topic: &str, start: Start) -> SourceOptions {
    SourceOptions { start, ..options(topic) }
}

/// The next messages of a group with this start.
async fn next(broker: &BrokerConfig, topic: &str, start: Start, count: usize) -> Vec<u64> {
    let source = broker.source(from(topic, start)).await.unwrap();
    let mut came = numbers(&read(&*source, count).await);
    source.close().await.unwrap();
    came.sort_unstable();
    came
}

fn one(topic: &str, number: u64) -> Vec<Publication> {
    vec![publication(number, topic, dwell_connectors::Message::new(number.to_string()))]
}

#[tokio::test]
async fn a_new_group_begins_where_it_is_told_and_one_that_is_known_goes_on() {
    let (broker, topic) = topic_with(200).await;
    let ConsumerState::Made(Some(first)) =
        broker.inspect(&from(&topic, Start::Earliest)).await.unwrap()
    else {
        panic!("the group is new")
    };
    assert_eq!(first.messages, 200);
    assert!(first.oldest_ms.is_some_and(|ms| ms > 1_600_000_000_000), "{first:?}");
    let ConsumerState::Made(Some(first)) =
        broker.inspect(&from(&topic, Start::Latest)).await.unwrap()
    else {
        panic!("the group is new")
    };
    assert_eq!((first.messages, first.oldest_ms), (0, None));
    // Every message between the first start and the first delivery is read.
    broker.source(from(&topic, Start::Latest)).await.unwrap().close().await.unwrap();
    assert_eq!(broker.inspect(&from(&topic, Start::Latest)).await.unwrap(), ConsumerState::Exists);
    confirmed(&broker, one(&topic, 201)).await;
    assert_eq!(next(&broker, &topic, Start::Latest, 1).await, [201]);
    confirmed(&broker, one(&topic, 202)).await;
    assert_eq!(next(&broker, &topic, Start::Latest, 1).await, [202]);
}

#[tokio::test]
async fn a_new_group_begins_at_a_time() {
    let (broker, topic) = topic_with(50).await;
    // Later than all of them, by the broker's clock, which is this machine's.
    let ConsumerState::Made(Some(first)) =
        broker.inspect(&from(&topic, Start::Earliest)).await.unwrap()
    else {
        panic!("the group is new")
    };
    let mut now = first.oldest_ms.unwrap();
    while let ConsumerState::Made(Some(left)) =
        broker.inspect(&from(&topic, Start::At(now))).await.unwrap()
        && left.messages > 0
    {
        now = left.oldest_ms.unwrap() + 1;
    }
    confirmed(&broker, numbered(&topic, 3)).await;
    let ConsumerState::Made(Some(left)) =
        broker.inspect(&from(&topic, Start::At(now))).await.unwrap()
    else {
        panic!("the group is new")
    };
    assert_eq!(left.messages, 3);
    assert_eq!(next(&broker, &topic, Start::At(now), 3).await, [1, 2, 3]);
}

/// The connector asks for the ends, then for the times. A message published meanwhile is recent
/// enough.
#[tokio::test]
async fn what_is_published_while_a_group_begins_at_a_time_is_read() {
    let proxy = Proxy::start("127.0.0.1:1").await.unwrap();
    let server =
        KafkaServer::start(&format!("advertised.listeners=CLIENTS://{}\n", proxy.address()));
    proxy.lead_to(server.address());
    let (broker, topic) = (at(&server), fresh("busy"));
    create(&server, &topic, 30, &[("message.timestamp.type", "LogAppendTime")]).await;
    let (sink, mut outcomes) = broker.sink(TIMEOUT).await.unwrap();
    proxy.set(Direction::Down, Flow::Delay(Duration::from_millis(40)));
    let open = broker.source(from(&topic, Start::At(1_600_000_000_000)));
    tokio::pin!(open);
    let mut published = 0;
    let source = loop {
        published += 1;
        sink.publish(one(&topic, published)).await;
        tokio::select! {
            source = &mut open => break source.unwrap(),
            _ = outcomes.recv() => {}
        }
    };
    proxy.heal();
    let mut came = numbers(&read(&*source, usize::try_from(published).unwrap()).await);
    came.sort_unstable();
    assert_eq!(came, (1..=published).collect::<Vec<_>>());
}

/// Publishes numbered messages with these times, in order.
async fn stamped(topic: &str, times: Vec<i64>) {
    let (address, topic) = (shared().address(), topic.to_owned());
    let publish = move || {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", address)
            .set("enable.idempotence", "true")
            .create()
            .unwrap();
        for (time, number) in times.into_iter().zip(1_u64..) {
            let body = number.to_string();
            producer
                .send(BaseRecord::<(), str>::to(&topic).payload(&body).timestamp(time))
                .unwrap();
        }
        producer.flush(TIMEOUT).unwrap();
    };
    tokio::task::spawn_blocking(publish).await.unwrap();
}

/// To the broker's index of times such a message is of January 1970.
#[tokio::test]
async fn messages_in_seconds_are_not_skipped_by_a_start_at_a_time() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let now = i64::try_from(now).unwrap();
    let (seconds, start) = (now / 1000, now - 3_600_000);
    let mut many = vec![seconds; 700];
    many.insert(1, start - 1);
    for (times, first) in [
        (vec![seconds; 3], 1),
        (vec![seconds, seconds, now, seconds], 1),
        (vec![start - 2, seconds, now], 2),
        (vec![seconds, start - 2, seconds, start - 1, seconds, seconds, now], 5),
        (vec![start - 2, start - 1], 3),
        // More than one window of the search.
        (many, 3),
    ] {
        let (broker, topic) = (at(shared()), fresh("seconds"));
        create(shared(), &topic, 1, &[("retention.ms", "-1")]).await;
        let (case, count) = (format!("{} from {first}", times.len()), times.len() as u64);
        let has_time = times[first - 1..].contains(&now);
        stamped(&topic, times).await;
        let expected: Vec<u64> = (first as u64..=count).collect();
        let ConsumerState::Made(Some(found)) =
            broker.inspect(&from(&topic, Start::At(start))).await.unwrap()
        else {
            panic!("the group is new")
        };
        assert_eq!(found.messages, expected.len() as u64, "{case}");
        // Seconds are no time.
        assert!(found.oldest_ms.is_none_or(|ms| has_time && ms >= start), "{case}: {found:?}");
        let came = next(&broker, &topic, Start::At(start), expected.len()).await;
        assert_eq!(came, expected, "{case}");
    }
}

/// A stored and unread message is not skipped, whatever the start of a new group is.
#[tokio::test]
async fn offsets_that_fell_out_of_the_log_go_on_with_the_earliest() {
    let (broker, topic) = (at(shared()), fresh("first"));
    create(shared(), &topic, 1, &[]).await;
    confirmed(&broker, numbered(&topic, 10)).await;
    broker.source(from(&topic, Start::Latest)).await.unwrap().close().await.unwrap();
    confirmed(&broker, (11..=20).flat_map(|number| one(&topic, number)).collect()).await;
    // As retention does while Dwell is down: offsets up to 15 are deleted.
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared().address()).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, Offset::Offset(15)).unwrap();
    admin
        .delete_records(&list, &AdminOptions::new().operation_timeout(Some(TIMEOUT)))
        .await
        .unwrap();
    tokio::task::spawn_blocking(move || drop(admin)).await.unwrap();
    assert_eq!(next(&broker, &topic, Start::Latest, 5).await, [16, 17, 18, 19, 20]);
}

#[tokio::test]
async fn instances_that_begin_a_group_together_agree() {
    let (broker, topic) = topic_with(30).await;
    let open = || broker.source(from(&topic, Start::Latest));
    let sources = tokio::try_join!(open(), open(), open()).unwrap();
    confirmed(&broker, one(&topic, 31)).await;
    let first = tokio::time::timeout(TIMEOUT, async {
        tokio::select! { batch = sources.0.recv() => batch, batch = sources.1.recv() => batch, batch = sources.2.recv() => batch }
    });
    assert_eq!(numbers(&first.await.unwrap().unwrap().messages), [31]);
}

#[tokio::test]
async fn a_topic_that_loses_requests_by_its_settings_is_told() {
    let broker = at(shared());
    let by_broker = ("message.timestamp.type", "LogAppendTime");
    for (settings, expected) in [
        (&[by_broker, ("cleanup.policy", "compact")][..], &["is compacted"][..]),
        (&[by_broker, ("retention.ms", "3600000")], &["after 1h"]),
        (&[by_broker, ("retention.ms", "259200000")], &["after 3d"]),
        (&[by_broker, ("retention.bytes", "1000000")], &["beyond 1000000 bytes"]),
        (
            &[by_broker, ("cleanup.policy", "compact,delete"), ("retention.ms", "60000")],
            &["is compacted", "after 1m"],
        ),
        (&[by_broker], &[]),
    ] {
        let topic = fresh("loses");
        create(shared(), &topic, 1, settings).await;
        broker.source(from(&topic, Start::Earliest)).await.unwrap().close().await.unwrap();
        let cautions = broker.cautions(&options(&topic)).await.unwrap();
        assert_eq!(cautions.len(), expected.len(), "{settings:?}: {cautions:?}");
        for (caution, expected) in cautions.iter().zip(expected) {
            assert!(
                caution.kind == CautionKind::Loses && caution.message.contains(expected),
                "{caution:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_topic_that_carries_the_time_of_its_producers_is_told() {
    const BY_PRODUCERS: (&str, &str) = ("message.timestamp.type", "CreateTime");
    let broker = at(shared());
    for (settings, deletes) in [
        (&[BY_PRODUCERS][..], Some(true)),
        (&[BY_PRODUCERS, ("retention.ms", "-1")], Some(false)),
        (&[("message.timestamp.type", "LogAppendTime")], None),
    ] {
        let topic = fresh("clock");
        create(shared(), &topic, 1, settings).await;
        // A new topic is known to the broker a moment after it is created.
        broker.source(from(&topic, Start::Earliest)).await.unwrap().close().await.unwrap();
        let cautions = broker.cautions(&options(&topic)).await.unwrap();
        assert_eq!(
            cautions.iter().map(|caution| caution.kind).collect::<Vec<_>>(),
            deletes
                .map(|deletes| CautionKind::ProducerTime { deletes })
                .into_iter()
                .collect::<Vec<_>>()
        );
        assert!(
            cautions
                .iter()
                .all(|caution| caution.hint.contains("message.timestamp.type=LogAppendTime")),
            "{cautions:?}"
        );
    }
}

#[tokio::test]
async fn a_topic_whose_settings_may_not_be_seen_is_told() {
    let server = KafkaServer::start(
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         allow.everyone.if.no.acl.found=true\n",
    );
    let (broker, topic) = (at(&server), fresh("hidden"));
    create(&server, &topic, 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    assert_eq!(broker.cautions(&options(&topic)).await.unwrap(), []);
    allow_reading_alone(&server.address(), &topic);
    // The controller answers before the broker obeys.
    let deadline = Instant::now() + TIMEOUT;
    let cautions = loop {
        let cautions = broker.cautions(&options(&topic)).await.unwrap();
        if !cautions.is_empty() {
            break cautions;
        }
        assert!(Instant::now() < deadline, "nothing is told");
    };
    assert!(
        cautions.len() == 1
            && cautions[0].kind == CautionKind::Loses
            && cautions[0].hint.contains("DescribeConfigs"),
        "{cautions:?}"
    );
    // Of a topic that is not there yet there is nothing to say.
    assert_eq!(broker.cautions(&options("nowhere")).await.unwrap(), []);
}
