//! JetStream's answer to a publication, and its outcome.

use serde::Deserialize;

use crate::Outcome;

/// The meaning of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum PubAck {
    /// The outcome.
    Outcome(Outcome),
    /// No stream has the subject, or its stream has no leader now. Nothing was stored.
    NoResponders,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    stream: Option<std::borrow::Cow<'a, str>>,
    seq: Option<u64>,
    #[serde(borrow)]
    error: Option<Failure<'a>>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default, borrow)]
    description: std::borrow::Cow<'a, str>,
}

/// Parses the answer to a publication.
pub(super) fn read(message: &async_nats::Message) -> PubAck {
    if message.status == Some(async_nats::StatusCode::NO_RESPONDERS) {
        return PubAck::NoResponders;
    }
    PubAck::Outcome(match serde_json::from_slice::<Body<'_>>(&message.payload) {
        Ok(Body { error: Some(failure), .. }) => failed(&failure),
        // A duplicate (`duplicate`) is confirmed too: the stream has the message.
        Ok(Body { stream: Some(stream), seq: Some(_), .. }) if !stream.is_empty() => {
            Outcome::Confirmed
        }
        _ => Outcome::Unknown("something answered that is not JetStream".to_owned()),
    })
}

/// The outcome of an error answer. Nothing was stored.
fn failed(failure: &Failure<'_>) -> Outcome {
    let why = format!("{} ({})", failure.description, failure.err_code);
    match (failure.code, failure.err_code) {
        // The message is too large for the stream, or its headers are.
        (_, 10_054 | 10_097) => Outcome::Invalid(why),
        // The stream's expectations (another stream, sequence or message id), a sealed stream, or
        // one that accepts no publications: wrong destination.
        (_, 10_060 | 10_070 | 10_071 | 10_109 | 10_164) => Outcome::Unroutable(why),
        // Temporary: full (10077 with discard new), no resources, no quorum, offline, too many
        // requests.
        (
            _,
            10_002 | 10_008 | 10_023 | 10_028 | 10_039 | 10_047 | 10_076 | 10_077 | 10_118 | 10_167,
        )
        | (429 | 503, _) => Outcome::Refused(why),
        // A header that the stream or the server refuses.
        (400, 10_165 | 10_166 | 10_188 | 10_189 | 10_190) => Outcome::Invalid(why),
        _ => Outcome::Unknown(why),
    }
}

/// The subject in `Permissions Violation for Publish to "…"`.
pub(super) fn denied_subject(complaint: &str) -> Option<&str> {
    let (_, rest) = complaint.split_once("ermissions Violation for Publish to \"")?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read_text(payload: &'static str) -> PubAck {
        let message = async_nats::Message {
            subject: "_INBOX.x.1".into(),
            reply: None,
            payload: Bytes::from_static(payload.as_bytes()),
            headers: None,
            status: None,
            description: None,
            length: 0,
        };
        read(&message)
    }

    #[test]
    fn answers_are_decisions() {
        assert_eq!(read_text(r#"{"stream":"S","seq":1}"#), PubAck::Outcome(Outcome::Confirmed));
        assert_eq!(
            read_text(r#"{"stream":"S","seq":1,"duplicate":true,"domain":"d"}"#),
            PubAck::Outcome(Outcome::Confirmed)
        );
        let error = r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}"#;
        assert_eq!(
            read_text(error),
            PubAck::Outcome(Outcome::Refused("maximum messages exceeded (10077)".to_owned()))
        );
        let error = r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"S","seq":0}"#;
        assert!(matches!(read_text(error), PubAck::Outcome(Outcome::Invalid(_))));
        assert!(matches!(
            read_text(r#"{"error":{"code":400,"err_code":10060,"description":"x"}}"#),
            PubAck::Outcome(Outcome::Unroutable(_))
        ));
        for garbage in [
            "",
            "OK",
            "{}",
            r#"{"stream":"","seq":1}"#,
            r#"{"error":{"code":500,"err_code":1,"description":"?"}}"#,
            "[]",
            "\u{0}",
        ] {
            assert!(
                matches!(read_text(garbage), PubAck::Outcome(Outcome::Unknown(_))),
                "{garbage}"
            );
        }
    }

    #[test]
    fn a_denied_subject_is_found() {
        assert_eq!(
            denied_subject("nats: Permissions Violation for Publish to \"a.b\""),
            Some("a.b")
        );
        assert_eq!(denied_subject("nats: Permissions Violation for Subscription to \"a.b\""), None);
    }
}
