//! Requests that expire before they are read.

use std::time::Duration;

use dwell_connectors::{
    CautionKind, Destination, ErrorKind, Headers, Message, Outcome, Properties, Source,
    SourceOptions, Value,
};
use lapin::ExchangeKind;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::server::shared;
use crate::{
    TIMEOUT, at, client, declared, fresh, make_exchange, make_queue, numbered, options, options_of,
    publication, publish, read, to,
};

/// Waits until this many messages are ready in this queue.
async fn until_ready(channel: &lapin::Channel, queue: &str, count: u32) {
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        let asked = QueueDeclareOptions { passive: true, ..Default::default() };
        let there = channel
            .queue_declare(queue.into(), asked, FieldTable::default())
            .await
            .unwrap()
            .message_count();
        if there >= count {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{there} of {count} messages in {queue}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn expiring(body: &str) -> Message {
    let properties = Properties {
        expiration: Some("200".to_owned()),
        message_id: Some("m".to_owned()),
        ..Properties::default()
    };
    let mut message =
        Message { properties: Some(Box::new(properties)), ..Message::new(body.to_owned()) };
    message.headers.push("x-delay", Value::I32(700));
    message
}

/// RabbitMQ adds a delivery count to messages of a quorum queue.
fn without_count(message: &Message) -> Headers {
    let mut headers = message.headers.clone();
    headers.retain(|header| header.name != "x-delivery-count");
    headers
}

#[tokio::test]
async fn what_expires_before_it_is_read_comes_as_it_was_published() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let queue = declared(&broker).await;
    let exchange = fresh();
    make_exchange(&channel, &exchange, ExchangeKind::Fanout, &[(&queue, "")]).await;
    let mut copied = expiring("copied");
    copied.headers.push("CC", Value::List(vec!["b".into()]));
    let publications = vec![
        publication(1, to(&exchange, "order/close"), expiring("plain")),
        publication(2, to(&exchange, "a"), copied.clone()),
        publication(
            3,
            to("", &queue),
            Message { headers: Headers::default(), ..expiring("straight") },
        ),
    ];
    let sent: Vec<(Destination, Message)> =
        publications.iter().map(|one| (one.to.clone(), one.message.clone())).collect();
    assert_eq!(publish(&broker, publications).await, vec![Outcome::Confirmed; 3]);
    until_ready(&channel, &format!("{queue}.expired"), 3).await;

    let source = broker.source(options_of(&queue)).await.unwrap();
    let mut seen = read(&*source, 3).await;
    seen.sort_by_key(|message| {
        ["plain", "copied", "straight"].iter().position(|body| message.body == *body)
    });
    for (seen, (to, sent)) in seen.iter().zip(&sent) {
        let mut sent_headers: Vec<_> = sent.headers.iter().cloned().collect();
        sent_headers.sort_by(|one, other| one.name.cmp(&other.name));
        let mut headers = without_count(seen);
        headers.retain(|header| header.name != "delayed-publication");
        assert_eq!(headers, Headers::from_iter(sent_headers), "{seen:?}");
        assert_eq!((&seen.properties, &seen.destination), (&sent.properties, to));
        assert_eq!(
            (seen.redelivered, seen.mark_lost),
            (false, true),
            "RabbitMQ keeps no mark for the next queue"
        );
    }
    // Unacked messages come again, from either queue.
    publish(&broker, vec![publication(1, to("", &queue), expiring("held"))]).await;
    let held = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap();
    source.nack(held.id).await.unwrap();
    let again = read(&*source, 1).await;
    assert_eq!(
        (&again[0].body[..], again[0].properties.as_ref().unwrap().expiration.as_deref()),
        (&b"held"[..], Some("200"))
    );
    source.close().await.unwrap();
    for queue in [queue.clone(), format!("{queue}.expired")] {
        let asked = QueueDeclareOptions { passive: true, ..Default::default() };
        assert_eq!(
            channel
                .queue_declare(queue.into(), asked, FieldTable::default())
                .await
                .unwrap()
                .message_count(),
            0
        );
    }
}

#[tokio::test]
async fn a_queue_that_nobody_named_is_not_read() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let queue = fresh();
    let other = format!("{queue}.expired");
    for name in [&queue, &other] {
        make_queue(&channel, name, &[]).await;
    }
    publish(&broker, vec![publication(1, to("", &other), Message::new("somebody else's"))]).await;
    let source = broker.source(options(&queue)).await.unwrap();
    publish(&broker, vec![publication(1, to("", &queue), Message::new("ours"))]).await;
    assert_eq!(read(&*source, 1).await[0].body, "ours");
    assert!(tokio::time::timeout(Duration::from_secs(1), source.recv()).await.is_err());
    source.close().await.unwrap();
    until_ready(&channel, &other, 1).await;
}

/// Shows why expired messages cannot simply return: RabbitMQ drops a message that returns to the
/// queue where it expired, over any number of queues.
#[tokio::test]
async fn a_queue_cannot_lead_what_expires_back_to_itself() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let (one, two) = (fresh(), fresh());
    let text = |text: &str| AMQPValue::LongString(text.into());
    let letters = |key: &str| {
        [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(key))]
    };
    make_queue(&channel, &one, &letters(&two)).await;
    make_queue(
        &channel,
        &two,
        &[&letters(&one)[..], &[("x-message-ttl", AMQPValue::LongInt(1))]].concat(),
    )
    .await;
    publish(&broker, vec![publication(1, to("", &one), expiring("gone"))]).await;
    let deadline = std::time::Instant::now() + TIMEOUT;
    let asked = || QueueDeclareOptions { passive: true, ..Default::default() };
    // Gone from the first queue, and never back.
    while channel
        .queue_declare(one.as_str().into(), asked(), FieldTable::default())
        .await
        .unwrap()
        .message_count()
        > 0
    {
        assert!(std::time::Instant::now() < deadline);
    }
    let source = broker.source(options(&one)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(1), source.recv()).await.is_err());
}

#[tokio::test]
async fn a_queue_that_drops_what_expires_is_told() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let text = |text: &str| AMQPValue::LongString(text.into());
    let (exchange, key) =
        (|to| ("x-dead-letter-exchange", text(to)), |to| ("x-dead-letter-routing-key", text(to)));
    let late = fresh();
    make_queue(&channel, &late, &[]).await;
    let named = Some(late.as_str());
    let (none, unread) =
        (Some("has no dead-letter exchange"), Some("and Dwell does not read it from there"));
    for (arguments, expired, expected) in [
        (vec![], None, none),
        (vec![("x-queue-type", text("quorum"))], None, none),
        (vec![exchange("amq.fanout")], None, Some("to the exchange `amq.fanout`, ")),
        (
            vec![exchange("amq.fanout"), key("key")],
            None,
            Some("to the exchange `amq.fanout` by the key `key`"),
        ),
        (vec![exchange(""), key(&late)], None, unread),
        (vec![], named, Some("shows no dead-letter exchange")),
        (
            vec![exchange("")],
            named,
            Some("to the queue that its own routing key names, and not to"),
        ),
        (vec![exchange(""), key("other")], named, Some("to the queue `other`, and not to")),
        (vec![exchange(""), key(&late)], named, None),
        // Perhaps through a binding.
        (vec![exchange("amq.fanout"), key("key")], named, None),
    ] {
        let queue = fresh();
        make_queue(&channel, &queue, &arguments).await;
        let options =
            SourceOptions { expired_queue: expired.map(str::to_owned), ..options(&queue) };
        let mut cautions = broker.cautions(&options).await.unwrap();
        cautions.retain(|caution| caution.kind == CautionKind::Expires);
        match (&cautions[..], expected) {
            ([], None) => {}
            ([caution], Some(expected)) => {
                assert!(caution.message.contains(expected), "{caution:?}");
                assert!(caution.hint.contains(expired.unwrap_or("`expired_queue`")), "{caution:?}");
            }
            _ => panic!("{arguments:?} {expired:?}: {cautions:?}"),
        }
    }
    let queue = declared(&broker).await;
    assert_eq!(broker.cautions(&options_of(&queue)).await.unwrap(), []);
    // A risk of the expired queue itself is reported too.
    let quorum = fresh();
    make_queue(&channel, &quorum, &[("x-queue-type", text("quorum"))]).await;
    let options = SourceOptions { expired_queue: Some(quorum.clone()), ..options(&queue) };
    let cautions = broker.cautions(&options).await.unwrap();
    assert!(
        cautions
            .iter()
            .any(|caution| caution.kind == CautionKind::Drops && caution.message.contains(&quorum)),
        "{cautions:?}"
    );
}

/// The same error as for a missing topic, and nothing is read.
#[tokio::test]
async fn an_expired_queue_that_cannot_be_read_is_told() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let missing = fresh();
    let queue = format!("some-{}", fresh());
    make_queue(&channel, &queue, &[]).await;
    let with = |expired: &str| SourceOptions {
        expired_queue: Some(expired.to_owned()),
        ..options(&queue)
    };
    let broker = at(server.url());
    for error in [
        broker.source(with(&missing)).await.err().unwrap(),
        broker.inspect(&with(&missing)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Missing);
        assert!(
            error
                .message
                .contains(&format!("there is no queue `{missing}`, which `expired_queue` names")),
            "{error}"
        );
    }
    let long = "x".repeat(256);
    let error = broker.source(with(&long)).await.err().unwrap();
    assert!(
        error.kind == ErrorKind::Config && error.message.contains("`expired_queue`"),
        "{error}"
    );
    // A queue that the user may not read.
    let theirs = fresh();
    make_queue(&channel, &theirs, &[]).await;
    let some = at(format!("amqp://some:pa%3Ass%40w%25rd@{}", server.address()));
    let error = some.source(with(&theirs)).await.err().unwrap();
    assert!(error.kind == ErrorKind::Denied && error.message.contains(&theirs), "{error}");
    some.source(options(&queue)).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn what_waits_in_the_expired_queue_comes_before_what_waits_in_the_other() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    let options = SourceOptions { max_batch: 10, max_unsettled: 50, ..options_of(&queue) };
    let old = options.expired_queue.clone().unwrap();
    publish(&broker, numbered(&to("", &old), 400)).await;
    publish(&broker, numbered(&to("", &queue), 400)).await;
    let source = broker.source(options.clone()).await.unwrap();
    let seen = read(&*source, 800).await;
    assert!(
        seen[..400].iter().all(|message| message.destination.address == old),
        "the other queue came between"
    );
    source.close().await.unwrap();
    // The source does not wait for messages that another reader took meanwhile.
    publish(&broker, numbered(&to("", &old), 10)).await;
    publish(&broker, numbered(&to("", &queue), 10)).await;
    let (first, second) =
        (broker.source(options.clone()).await.unwrap(), broker.source(options).await.unwrap());
    let (one, two) = (read_all(&*first), read_all(&*second));
    assert_eq!(one.await + two.await, 20);
}

/// Reads and acks until nothing comes for long; returns the number of messages.
async fn read_all(source: &dyn Source) -> usize {
    let mut count = 0;
    while let Ok(batch) = tokio::time::timeout(Duration::from_secs(5), source.recv()).await {
        let batch = batch.unwrap();
        count += batch.messages.len();
        source.ack(batch.id).await.unwrap();
    }
    count
}
