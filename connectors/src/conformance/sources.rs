//! Tests of every source: what it reads, its bounds, and pauses.

use std::time::Duration;

use bytes::Bytes;

use super::Harness;
use super::hand::{
    QUIET, TIMEOUT, bodies, expect_no_message, expect_no_message_for, numbered, numbers, options,
    publication, publish, read, recv, sorted, source, source_with, topic,
};
use crate::{Declared, Destination, ErrorKind, Message, Role, SourceOptions, Value};

/// Opens and closes without messages.
pub async fn opens_and_closes(harness: &dyn Harness) {
    let topic = topic(harness).await;
    assert_eq!(harness.broker().problems(), Vec::<String>::new());
    for _ in 0..2 {
        let source = source(harness, &topic).await;
        expect_no_message(&*source).await;
        source.close().await.unwrap();
    }
}

/// A source of a missing topic is refused, with a hint.
pub async fn a_missing_topic_is_missing(harness: &dyn Harness) {
    let name = harness.fresh_name();
    let Err(error) = harness.broker().source(options(&name)).await else {
        panic!("a source of a missing topic opened")
    };
    assert_eq!(error.kind, ErrorKind::Missing, "{error}");
    assert!(error.message.contains(&name), "{error}");
    assert!(!error.hint.is_empty());
}

/// `declare` creates a topic once, and the topic works.
pub async fn declare_makes_what_is_missing(harness: &dyn Harness) {
    for role in [Role::Ingest, Role::Letters] {
        let to = Destination::new(harness.fresh_name());
        let (sink, _outcomes) = super::hand::sink(harness).await;
        assert!(!sink.exists(&to).await.unwrap());
        assert_eq!(harness.broker().declare(&to, role).await.unwrap(), Declared::Created);
        assert_eq!(harness.broker().declare(&to, role).await.unwrap(), Declared::Existed);
        assert!(sink.exists(&to).await.unwrap());
        publish(harness, numbered(&to.address, 3)).await;
        let source = source(harness, &to.address).await;
        assert_eq!(bodies(&read(&*source, 3).await.1), numbers(3));
    }
}

/// A message keeps its body, headers, key and origin.
pub async fn carries_a_message(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let can = harness.can();
    let mut message = Message::new(Bytes::from_iter(0..=255_u8));
    for (name, value) in [
        ("b-text", "täxt"),
        ("a-twice", "1"),
        ("c-empty", ""),
        ("a-twice", "2"),
        ("UPPER-Case", "Kept"),
    ] {
        if can.repeated_headers || message.headers.get(name).is_none() {
            message = message.with_header(name, value);
        }
    }
    message.key = can.keys.then(|| Bytes::from_static(b"\0key\xff"));
    publish(
        harness,
        vec![publication(1, &topic, message.clone()), publication(2, &topic, Message::new("2"))],
    )
    .await;

    let source = source(harness, &topic).await;
    let (_, read) = read(&*source, 2).await;
    assert_eq!(read[0].body, message.body);
    assert!(read[0].has_body);
    assert_eq!(read[0].key, message.key);
    assert_eq!(read[0].destination, Destination::new(topic.clone()));
    assert!(!can.first_deliveries || !read[0].redelivered);

    // Brokers may add headers of their own.
    let sent: Vec<(String, Value)> =
        message.headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect();
    let mut came: Vec<(String, Value)> =
        read[0].headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect();
    came.retain(|(name, _)| sent.iter().any(|(known, _)| known == name));
    let by_name = |mut headers: Vec<(String, Value)>| {
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        headers
    };
    assert_eq!(by_name(came.clone()), by_name(sent.clone()));
    if can.ordered_headers {
        assert_eq!(came, sent);
    }
    if can.positions {
        let (first, second) =
            (read[0].position.clone().unwrap(), read[1].position.clone().unwrap());
        assert_eq!((&first.log, first.partition), (&second.log, second.partition));
        assert!(first.offset < second.offset);
    }
    if can.timestamps {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
                as i64;
        let age = now - read[0].timestamp_ms.unwrap();
        assert!((-1000..60_000).contains(&age), "the message is {age} ms old");
    }
}

/// Bodies from empty to 1 MiB.
pub async fn carries_bodies_of_any_size(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let sizes = [0, 1, 4096, 1 << 20];
    let messages = sizes.iter().map(|size| Message::new(vec![0xA5; *size]));
    publish(
        harness,
        (1..).zip(messages).map(|(token, message)| publication(token, &topic, message)).collect(),
    )
    .await;
    let source = source(harness, &topic).await;
    let (_, read) = read(&*source, sizes.len()).await;
    let came: Vec<usize> = read.iter().map(|message| message.body.len()).collect();
    assert_eq!(came, sizes);
    assert!(read.iter().all(|message| message.body.iter().all(|byte| *byte == 0xA5)));
}

/// Batches keep their bounds; a single message may be larger.
pub async fn keeps_the_bounds_of_a_batch(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let sizes = [4000, 4000, 4000, 50_000, 1000, 1000, 1000, 1000, 1000, 1000];
    let messages = sizes.iter().map(|size| Message::new(vec![b'x'; *size]));
    publish(
        harness,
        (1..).zip(messages).map(|(token, message)| publication(token, &topic, message)).collect(),
    )
    .await;
    let source = source_with(
        harness,
        SourceOptions { max_batch: 3, max_batch_bytes: 10_000, ..options(&topic) },
    )
    .await;
    let mut count = 0;
    while count < sizes.len() {
        let batch = recv(&*source).await;
        let bytes: usize = batch.messages.iter().map(Message::footprint).sum();
        assert!(batch.messages.len() <= 3);
        assert!(
            bytes <= 10_000 || batch.messages.len() == 1,
            "{bytes} bytes in {} messages",
            batch.messages.len()
        );
        count += batch.messages.len();
        source.ack(batch.id).await.unwrap();
    }
}

/// At `max_unsettled` no message comes until one is settled.
pub async fn stops_at_the_unsettled_bound(harness: &dyn Harness) {
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 30)).await;
    let source =
        source_with(harness, SourceOptions { max_batch: 4, max_unsettled: 10, ..options(&topic) })
            .await;
    // A batch may be smaller than allowed.
    let first = recv(&*source).await;
    let freed = first.messages.len();
    let (ids, more) = read(&*source, 10 - freed).await;
    let messages = [first.messages, more].concat();
    assert_eq!(messages.len(), 10);
    expect_no_message(&*source).await;
    source.ack(first.id).await.unwrap();
    let mut rest = read(&*source, freed).await;
    expect_no_message(&*source).await;
    rest.0.extend(ids);
    let mut seen = [bodies(&messages), bodies(&rest.1)].concat();
    while seen.len() < 30 {
        for id in rest.0.drain(..) {
            source.ack(id).await.unwrap();
        }
        rest = read(&*source, 1).await;
        seen.extend(bodies(&rest.1));
    }
    assert_eq!(sorted(seen), numbers(30));
}

/// At `max_unsettled_bytes` no message comes until one is settled, except those already on their
/// way; in the end all come.
pub async fn stops_at_the_unsettled_bound_in_bytes(harness: &dyn Harness) {
    const LARGE_MESSAGES: usize = 256;
    const MAX_UNSETTLED_BYTES: usize = 4 << 20;
    let topic = topic(harness).await;
    let large = (1..=LARGE_MESSAGES as u64)
        .map(|number| publication(number, &topic, Message::new(vec![b'x'; 64 << 10])));
    publish(harness, large.collect()).await;
    let source = source_with(
        harness,
        SourceOptions { max_batch: 4, max_unsettled_bytes: MAX_UNSETTLED_BYTES, ..options(&topic) },
    )
    .await;
    let (mut unsettled, mut count) = (Vec::new(), 0);
    while count < LARGE_MESSAGES {
        // The first batch may have to wait for the assignment of partitions.
        let mut timeout = TIMEOUT;
        while let Ok(batch) = tokio::time::timeout(timeout, source.recv()).await {
            let batch = batch.unwrap();
            count += batch.messages.len();
            unsettled.push(batch);
            timeout = QUIET;
        }
        let bytes: usize =
            unsettled.iter().flat_map(|batch| &batch.messages).map(Message::footprint).sum();
        assert!(bytes <= 5 * MAX_UNSETTLED_BYTES / 2, "{bytes} bytes are unsettled");
        assert!(bytes > 0, "{count} came, and no more does");
        for batch in unsettled.drain(..) {
            source.ack(batch.id).await.unwrap();
        }
    }
    expect_no_message(&*source).await;
}

/// While paused only messages that were already read come.
pub async fn pauses(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let source = source(harness, &topic).await;
    source.pause(true).await.unwrap();
    // The last request before the pause may still be answered.
    let settled = Duration::from_millis(1500);
    expect_no_message_for(&*source, settled).await;
    publish(harness, numbered(&topic, 5)).await;
    expect_no_message(&*source).await;
    source.pause(false).await.unwrap();
    assert_eq!(bodies(&read(&*source, 5).await.1), numbers(5));
}

/// Dropping a pending `recv` loses nothing.
pub async fn recv_can_be_cancelled(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let source = source_with(harness, SourceOptions { max_batch: 7, ..options(&topic) }).await;
    let reading = async {
        let mut seen = Vec::new();
        while seen.len() < 500 {
            if let Ok(batch) = tokio::time::timeout(Duration::from_micros(300), source.recv()).await
            {
                let batch = batch.unwrap();
                seen.extend(bodies(&batch.messages));
                source.ack(batch.id).await.unwrap();
            }
        }
        seen
    };
    let (seen, ()) = tokio::join!(
        tokio::time::timeout(TIMEOUT, reading),
        publish(harness, numbered(&topic, 500))
    );
    assert_eq!(seen.expect("all come in time"), numbers(500));
}

/// Two readers of one group get each message once.
pub async fn readers_of_a_group_share(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let (one, other) = (source(harness, &topic).await, source(harness, &topic).await);
    publish(harness, numbered(&topic, 300)).await;
    let mut seen = Vec::new();
    while seen.len() < 300 {
        let (reader, batch) = tokio::select! {
            batch = one.recv() => (&one, batch.unwrap()),
            batch = other.recv() => (&other, batch.unwrap()),
            () = tokio::time::sleep(TIMEOUT) => panic!("{} of 300 came", seen.len()),
        };
        seen.extend(bodies(&batch.messages));
        reader.ack(batch.id).await.unwrap();
    }
    assert_eq!(sorted(seen), numbers(300));
    expect_no_message(&*one).await;
    expect_no_message(&*other).await;
}
