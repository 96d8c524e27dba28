//! Finds out whether a stream receives what is published on a subject: through its own subjects,
//! through streams that it mirrors or sources, and through subject transforms.

use async_nats::jetstream::stream::{Config as StreamConfig, SubjectTransform};
use futures_util::future::BoxFuture;

use super::config::Config;
use super::connection::BrokerConnection;
use super::subject::allows;
use crate::{ConnectorError, Destination, ErrorKind};

/// The longest chain of streams to follow: two streams may source each other.
const MAX_CHAIN_STREAMS: usize = 8;

/// An error if a reader of `filter` in this stream would receive messages published to one of these
/// destinations.
pub(super) async fn check(
    config: &Config,
    connection: &BrokerConnection,
    stream: &StreamConfig,
    filter: &str,
    publishes_to: &[Destination],
) -> Result<(), ConnectorError> {
    let is_fed = stream.mirror.is_some()
        || stream.sources.as_ref().is_some_and(|sources| !sources.is_empty());
    if !is_fed && stream.subject_transform.is_none() {
        return Ok(());
    }
    // Streams that this user may not see are skipped. A connection of its own, because a permission
    // error ends it.
    let upstream = if is_fed { Some(BrokerConnection::connect(config).await?) } else { None };
    for to in publishes_to {
        let came = appears(
            upstream.as_ref().map(|(connection, _)| connection),
            stream,
            &to.address,
            MAX_CHAIN_STREAMS,
        )
        .await;
        if let Some(subject) =
            came.into_iter().find(|subject| allows(filter, &Destination::new(subject)))
        {
            let what = format!(
                "the stream `{}` receives what is published to `{to}`, as `{subject}`: messages would loop",
                stream.name
            );
            let failure = connection.fail(ErrorKind::Config, &what);
            return Err(failure.hint(format!("filter `{to}` out of the stream's sources and transforms, or name another destination")));
        }
    }
    Ok(())
}

/// The subjects under which a message published on `subject` appears in this stream, as far as the
/// user may see.
fn appears<'a>(
    connection: Option<&'a BrokerConnection>,
    stream: &'a StreamConfig,
    subject: &'a str,
    depth: usize,
) -> BoxFuture<'a, Vec<String>> {
    Box::pin(async move {
        let mut found = Vec::new();
        if stream.subjects.iter().any(|pattern| allows(pattern, &Destination::new(subject))) {
            let rewritten = stream
                .subject_transform
                .as_ref()
                .and_then(|transform| rewritten(transform, subject));
            found.push(rewritten.unwrap_or_else(|| subject.to_owned()));
        }
        let feeds = stream.mirror.iter().chain(stream.sources.iter().flatten());
        for source in
            feeds.filter(|source| depth > 0 && source.external.is_none() && source.domain.is_none())
        {
            let Some(connection) = connection else { break };
            let Ok(Ok(handle)) =
                connection.ask_api(connection.context.get_stream(&source.name)).await
            else {
                continue;
            };
            let there = &handle.cached_info().config;
            for came in appears(Some(connection), there, subject, depth - 1).await {
                let filter = source.filter_subject.as_deref().filter(|filter| !filter.is_empty());
                if filter.is_some_and(|filter| !allows(filter, &Destination::new(&came))) {
                    continue;
                }
                // With transforms, only messages that match one of them come.
                match source.subject_transforms.as_slice() {
                    [] => found.push(came),
                    transforms => found.extend(
                        transforms.iter().find_map(|transform| rewritten(transform, &came)),
                    ),
                }
            }
        }
        found
    })
}

/// The subject after a transform; `None` if the transform does not match, or its result cannot be
/// predicted here.
fn rewritten(transform: &SubjectTransform, subject: &str) -> Option<String> {
    if !allows(&transform.source, &Destination::new(subject)) {
        return None;
    }
    if transform.destination.is_empty() {
        return Some(subject.to_owned());
    }
    let (mut tokens, mut captured, mut rest) = (subject.split('.'), Vec::new(), Vec::new());
    for part in transform.source.split('.') {
        match part {
            "*" => captured.push(tokens.next()?),
            ">" => rest = tokens.by_ref().collect(),
            _ => drop(tokens.next()),
        }
    }
    let part = |part: &str| match part {
        ">" => Some(rest.join(".")),
        part => match part
            .strip_prefix('$')
            .or_else(|| part.strip_prefix("{{wildcard(")?.strip_suffix(")}}"))
        {
            Some(number) => Some(
                (*captured.get(number.trim().parse::<usize>().ok()?.checked_sub(1)?)?).to_owned(),
            ),
            None if part.contains("{{") => None,
            None => Some(part.to_owned()),
        },
    };
    transform
        .destination
        .split('.')
        .map(part)
        .collect::<Option<Vec<_>>>()
        .map(|parts| parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_rewritten_as_the_server_does() {
        for (source, destination, subject, expected) in [
            ("a.b", "c", "a.b", Some("c")),
            ("a.b", "c", "a.c", None),
            ("a.>", "b.>", "a.x.y", Some("b.x.y")),
            ("a.*.*", "b.$2.$1", "a.x.y", Some("b.y.x")),
            ("a.*", "b.{{wildcard(1)}}", "a.x", Some("b.x")),
            ("a.*", "b.$2", "a.x", None),
            ("a.*", "b.{{partition(3,1)}}", "a.x", None),
            (">", "", "a.x", Some("a.x")),
        ] {
            let transform =
                SubjectTransform { source: source.to_owned(), destination: destination.to_owned() };
            assert_eq!(
                rewritten(&transform, subject).as_deref(),
                expected,
                "{source} {destination} {subject}"
            );
        }
    }
}
