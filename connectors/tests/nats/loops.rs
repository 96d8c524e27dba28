//! Streams that would lead the reader's own publications back to it.

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{Config, Source, SubjectTransform};
use dwell_connectors::{Destination, ErrorKind, SourceOptions};

use crate::server::NatsServer;
use crate::{at, context, options};

fn transform(source: &str, destination: &str) -> SubjectTransform {
    SubjectTransform { source: source.into(), destination: destination.into() }
}

fn source(name: &str) -> Source {
    Source { name: name.into(), ..Default::default() }
}

fn stream(name: &str, subjects: &[&str]) -> Config {
    Config {
        name: name.into(),
        subjects: subjects.iter().map(|subject| (*subject).into()).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_stream_that_takes_in_what_the_reader_publishes_is_refused() {
    let server = NatsServer::start("");
    let (broker, js) = (at(server.url()), context(&server).await);
    for made in [
        stream("REJECTED", &["delay.rejected"]),
        Config { mirror: Some(source("REJECTED")), ..stream("COPY", &[]) },
        // A source of a source, with a transform on the way.
        Config {
            sources: Some(vec![Source {
                subject_transforms: vec![transform("delay.>", "bad.>")],
                ..source("COPY")
            }]),
            ..stream("LOOP", &["loop"])
        },
        Config {
            sources: Some(vec![Source {
                subject_transforms: vec![transform("bad.rejected", "a")],
                ..source("LOOP")
            }]),
            ..stream("A", &["a"])
        },
        // Only through its own subject, with a transform of the stream.
        Config {
            subject_transform: Some(transform("b.rejected", "b.in")),
            ..stream("B", &["b.>"])
        },
        // Messages outside the filter do not come.
        Config { sources: Some(vec![source("COPY")]), ..stream("C", &["c"]) },
        Config {
            sources: Some(vec![Source { filter_subject: Some("other".into()), ..source("COPY") }]),
            ..stream("D", &["d"])
        },
    ] {
        js.create_stream(made).await.unwrap();
    }
    let of = |topic: &str, rejected: &str| SourceOptions {
        publishes_to: vec![Destination::new(rejected)],
        ..options(topic)
    };
    for (topic, rejected, expected) in [
        (
            "a",
            "delay.rejected",
            Some("the stream `A` receives what is published to `delay.rejected`, as `a`"),
        ),
        (
            "b.in",
            "b.rejected",
            Some("the stream `B` receives what is published to `b.rejected`, as `b.in`"),
        ),
        ("b.in", "delay.rejected", None),
        ("c", "delay.rejected", None),
        ("d", "delay.rejected", None),
    ] {
        let looked = broker.inspect(&of(topic, rejected)).await;
        match (looked, expected) {
            (Ok(_), None) => drop(broker.source(of(topic, rejected)).await.unwrap()),
            (Err(error), Some(expected)) => {
                assert!(
                    error.kind == ErrorKind::Config
                        && error.message.contains(expected)
                        && !error.hint.is_empty(),
                    "{error}"
                );
                assert!(broker.source(of(topic, rejected)).await.is_err());
            }
            (looked, _) => panic!("{topic} {rejected}: {looked:?}"),
        }
    }
    // A consumer without a filter also gets messages from other streams.
    let handle = js.get_stream("C").await.unwrap();
    handle.delete_consumer("readers").await.unwrap();
    handle
        .create_consumer(pull::Config {
            durable_name: Some("readers".into()),
            ..Default::default()
        })
        .await
        .unwrap();
    let error = broker.inspect(&of("c", "delay.rejected")).await.unwrap_err();
    assert!(
        error.message.contains("the stream `C` receives what is published to `delay.rejected`"),
        "{error}"
    );
}
