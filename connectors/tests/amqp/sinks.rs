//! The broker's answers, as outcomes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dwell_connectors::{Destination, Message, Outcome, Properties, Publication, Value};
use lapin::ExchangeKind;
use lapin::options::{BasicGetOptions, ExchangeDeleteOptions};
use lapin::types::AMQPValue;

use crate::fake::{confirms_and_closes, counts_channels};
use crate::server::{MAX_BODY_BYTES, shared};
use crate::{
    TIMEOUT, at, client, collect, fresh, make_exchange, make_queue, numbered, publication, publish,
    to,
};

fn confirmed(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| **outcome == Outcome::Confirmed).count()
}

#[tokio::test]
async fn a_missing_exchange_hits_nobody_else() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let (queue, there, missing) = (fresh(), fresh(), fresh());
    make_queue(&channel, &queue, &[]).await;
    make_exchange(&channel, &there, ExchangeKind::Fanout, &[(&queue, "")]).await;
    let (sink, mut outcomes) = at(server.url()).sink(TIMEOUT).await.unwrap();
    // Before the exchange is known to be missing, and after.
    for _ in 0..2 {
        let places = [to(&there, "x"), to(&missing, "x"), to("", &queue)];
        let window = (0..300)
            .map(|token| publication(token, places[token as usize % 3].clone(), Message::new("x")));
        sink.publish(window.collect()).await;
        for (token, outcome) in (0..).zip(collect(&mut outcomes, 300).await) {
            match outcome {
                Outcome::Confirmed => assert_ne!(token % 3, 1),
                Outcome::Unroutable(why) => {
                    assert!(token % 3 == 1 && why.contains(&missing), "{token}: {why}")
                }
                other => panic!("token {token}: {other:?}"),
            }
        }
    }
    assert!(!sink.exists(&to(&missing, "x")).await.unwrap());
    assert!(sink.exists(&to(&there, "x")).await.unwrap());
}

#[tokio::test]
async fn an_exchange_that_goes_and_comes_back() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let (queue, goes, stays) = (fresh(), fresh(), fresh());
    make_queue(&channel, &queue, &[]).await;
    for exchange in [&goes, &stays] {
        make_exchange(&channel, exchange, ExchangeKind::Fanout, &[(&queue, "")]).await;
    }
    let (sink, mut outcomes) = at(server.url()).sink(TIMEOUT).await.unwrap();
    sink.publish(numbered(&to(&goes, ""), 50)).await;
    assert_eq!(confirmed(&collect(&mut outcomes, 50).await), 50);
    channel.exchange_delete(goes.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();

    let window = (0..200).map(|token| {
        publication(token, to(if token % 2 == 0 { &goes } else { &stays }, ""), Message::new("x"))
    });
    sink.publish(window.collect()).await;
    for (token, outcome) in (0..).zip(collect(&mut outcomes, 200).await) {
        match outcome {
            Outcome::Confirmed => assert_eq!(token % 2, 1),
            // Sent before the broker's answer came.
            Outcome::Unknown(_) | Outcome::Unroutable(_) => assert_eq!(token % 2, 0),
            other => panic!("token {token}: {other:?}"),
        }
    }
    make_exchange(&channel, &goes, ExchangeKind::Fanout, &[(&queue, "")]).await;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        sink.publish(numbered(&to(&goes, ""), 1)).await;
        match &collect(&mut outcomes, 1).await[0] {
            Outcome::Confirmed => break,
            Outcome::Unroutable(_) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    for kind in ["classic", "quorum"] {
        let queue = fresh();
        let full = [
            ("x-queue-type", AMQPValue::LongString(kind.into())),
            ("x-max-length", AMQPValue::LongInt(3)),
            ("x-overflow", AMQPValue::LongString("reject-publish".into())),
        ];
        make_queue(&channel, &queue, &full).await;
        let (sink, mut outcomes) = at(server.url()).sink(TIMEOUT).await.unwrap();
        // A quorum queue may accept some more before it notices.
        let mut refused = 0;
        for _ in 0..20 {
            sink.publish(numbered(&to("", &queue), 10)).await;
            for outcome in collect(&mut outcomes, 10).await {
                match outcome {
                    Outcome::Confirmed => {}
                    Outcome::Refused(why) => {
                        assert!(why.contains(&queue), "{why}");
                        refused += 1;
                    }
                    other => panic!("{kind}: {other:?}"),
                }
            }
        }
        assert!(refused > 100, "{kind}: {refused} of 200 refused");

        // Another queue of the exchange may have stored it.
        let (other, exchange) = (fresh(), fresh());
        make_queue(&channel, &other, &[]).await;
        make_exchange(&channel, &exchange, ExchangeKind::Fanout, &[(&queue, ""), (&other, "")])
            .await;
        sink.publish(numbered(&to(&exchange, ""), 5)).await;
        let outcomes = collect(&mut outcomes, 5).await;
        assert!(
            outcomes.iter().all(
                |outcome| matches!(outcome, Outcome::Unknown(why) if why.contains("may have"))
            ),
            "{kind}: {outcomes:?}"
        );
    }
}

#[tokio::test]
async fn what_can_never_pass_is_invalid_and_not_sent() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let queue = fresh();
    make_queue(&channel, &queue, &[]).await;
    let long = "x".repeat(256);
    let with = |properties: Properties| Message {
        properties: Some(Box::new(properties)),
        ..Message::new("x")
    };
    let mut nested = Message::new("x");
    nested.headers.push("t", Value::Table(vec![(long.clone(), Value::Null)]));
    let here = || to("", &queue);
    let outcomes = publish(
        &at(server.url()),
        vec![
            publication(0, to("", &long), Message::new("x")),
            publication(1, to(&long, "x"), Message::new("x")),
            publication(2, here(), Message::new("x").with_header(long.clone(), "x")),
            publication(3, here(), nested),
            publication(4, here(), Message::new("x").with_header("large", "x".repeat(200_000))),
            publication(
                5,
                here(),
                with(Properties { app_id: Some(long.clone()), ..Properties::default() }),
            ),
            publication(
                6,
                here(),
                with(Properties { expiration: Some("soon".to_owned()), ..Properties::default() }),
            ),
            publication(7, here(), Message::new("x")),
            publication(
                8,
                here(),
                with(Properties { delivery_mode: Some(3), ..Properties::default() }),
            ),
            publication(9, here(), Message::new("x")),
        ],
    )
    .await;
    for (token, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Outcome::Confirmed => assert!(token == 7 || token == 9, "{outcomes:?}"),
            Outcome::Invalid(_) => assert!(token != 7 && token != 9, "{outcomes:?}"),
            other => panic!("{token}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_invalid() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let queue = fresh();
    make_queue(&channel, &queue, &[]).await;
    let size = usize::try_from(MAX_BODY_BYTES).unwrap();
    let large =
        |token, size| publication(token, to("", &queue), Message::new(Bytes::from(vec![0; size])));
    let (sink, mut outcomes) = at(server.url()).sink(TIMEOUT).await.unwrap();
    sink.publish(vec![large(0, size + 1)]).await;
    let why = format!("{MAX_BODY_BYTES}");
    assert!(
        matches!(&collect(&mut outcomes, 1).await[..], [Outcome::Invalid(said)] if said.contains(&why))
    );
    // The limit is known now, and does not affect the others.
    let window =
        vec![large(0, 10), large(1, size + 1), large(2, size), large(3, size * 2), large(4, 10)];
    sink.publish(window).await;
    let outcomes = collect(&mut outcomes, 5).await;
    assert!(
        matches!(
            &outcomes[..],
            [
                Outcome::Confirmed,
                Outcome::Invalid(_),
                Outcome::Confirmed,
                Outcome::Invalid(_),
                Outcome::Confirmed
            ]
        ),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn the_user_is_ours_or_none_and_ids_are_kept() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let queue = fresh();
    make_queue(&channel, &queue, &[]).await;
    let of = |token, user: &str, id: Option<&str>| {
        let properties = Properties {
            user_id: Some(user.to_owned()),
            message_id: id.map(str::to_owned),
            ..Properties::default()
        };
        let message = Message { properties: Some(Box::new(properties)), ..Message::new("x") };
        Publication {
            token,
            to: Destination::new(&queue),
            message,
            dedupe_id: "dedupe".to_owned(),
            deadline: None,
        }
    };
    let foreign = Publication {
        token: 2,
        to: Destination::new(&queue),
        message: Message::new("x"),
        dedupe_id: String::new(),
        deadline: None,
    };
    let outcomes = publish(
        &at(server.url()),
        vec![of(0, "guest", None), of(1, "mallory", Some("own")), foreign],
    )
    .await;
    assert_eq!(outcomes, vec![Outcome::Confirmed; 3]);
    let mut stored = Vec::new();
    for _ in 0..3 {
        let message = channel
            .basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true })
            .await
            .unwrap()
            .unwrap();
        let properties = &message.properties;
        let text = |text: &Option<lapin::types::ShortString>| {
            text.as_ref().map(ToString::to_string).unwrap_or_default()
        };
        stored.push((
            text(properties.user_id()),
            text(properties.message_id()),
            *properties.delivery_mode(),
        ));
    }
    let expected = [("guest", "dedupe", None), ("", "own", None), ("", "", Some(2))];
    assert_eq!(stored, expected.map(|(user, id, mode)| (user.to_owned(), id.to_owned(), mode)));
}

/// A connection that ends right after its confirms loses none of them, also while more is
/// published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_before_the_end_is_confirmed() {
    const CONFIRMED_PUBLICATIONS: usize = 500;
    for round in 0..40 {
        let (sink, mut outcomes) =
            at(confirms_and_closes(CONFIRMED_PUBLICATIONS as u64)).sink(TIMEOUT).await.unwrap();
        tokio::spawn(async move {
            let mut all = numbered(&to("", "q"), 5000);
            all.reverse();
            while !all.is_empty() {
                sink.publish(all.split_off(all.len().saturating_sub(10))).await;
            }
            tokio::time::sleep(TIMEOUT).await;
        });
        let mut all = Vec::new();
        while let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap() {
            all.extend(batch);
        }
        all.sort_by_key(|(token, _)| *token);
        let lost = all[..CONFIRMED_PUBLICATIONS]
            .iter()
            .find(|(_, outcome)| *outcome != Outcome::Confirmed);
        assert!(lost.is_none(), "round {round}: {lost:?}");
    }
}

#[tokio::test]
async fn a_question_ends_with_its_channel_closed() {
    let (url, most) = counts_channels();
    let (sink, _outcomes) = at(url).sink(TIMEOUT).await.unwrap();
    for _ in 0..20 {
        assert!(sink.exists(&to("", "q")).await.unwrap());
        assert!(sink.exists(&to("there", "x")).await.unwrap());
    }
    assert_eq!(most.load(Ordering::Relaxed), 1, "channels at once");
}
