//! `dwell send`: sends a request through the broker, as a producer does.

use std::io::Read;
use std::time::Duration;

use dwell_connectors::{Destination, Message, Outcome, Publication};
use serde::Serialize;

use super::act::job_id;
use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::clean;
use crate::clock;
use crate::config::{Broker, Ingest, Settings};
use crate::job::JobId;
use crate::request::{Rules, parse};
use crate::units::{parse_duration_ms, parse_time_ms, show_size};

/// `dwell send`
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["delay", "until"])))]
pub struct Args {
    /// How long to wait: 5000 (ms), 90s, 1h30m or PT15M
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub delay: Option<String>,
    /// When to publish: 2026-01-31T12:00:00Z or epoch milliseconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<String>,
    /// Where to publish: Kafka topic, NATS subject or AMQP routing key
    #[arg(long)]
    pub target: Option<String>,
    /// The job's id; without one, one is made up
    #[arg(long, value_parser = job_id)]
    pub id: Option<JobId>,
    /// The ingest to send to; needed where the settings have several
    #[arg(long, value_name = "NAME")]
    pub ingest: Option<String>,
    /// A header, also a delay-* one; may stand several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// The body; `-` reads it from stdin
    #[arg(default_value = "")]
    pub body: String,
}

/// What was sent, and where.
#[derive(Debug, Serialize)]
struct Sent<'a> {
    id: &'a str,
    ingest: &'a str,
    broker: &'a str,
    topic: &'a str,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

fn duration(text: &str) -> Result<String, String> {
    parse_duration_ms(text).map(|_| text.to_owned())
}

fn time(text: &str) -> Result<String, String> {
    parse_time_ms(text).map(|_| text.to_owned())
}

/// Sends one request, and waits for the broker's confirm.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let (name, ingest) = ingest_of(&settings, args.ingest.as_deref())?;
    let broker = settings.brokers.get(&ingest.broker).ok_or_else(|| {
        Stop::because(Exit::Settings, format!("ingest.{name}.broker: there is no [brokers.{}]", ingest.broker), "name an existing broker")
    })?;
    let id = args.id.as_ref().map_or_else(|| format!("{:032x}", rand::random::<u128>()), |id| id.as_str().to_owned());
    let message = message(args, &id, body(args, settings.limits.max_body)?);
    judge(&settings, name, ingest, &message)?;
    let timeout = Duration::from_millis(settings.delivery.publish_timeout_ms);
    match publish(broker, &ingest.topic, message, timeout).await? {
        Outcome::Confirmed => {}
        other => return Err(not_sent(&other, broker, &ingest.topic)),
    }
    let sent = Sent { id: &id, ingest: name, broker: &ingest.broker, topic: &ingest.topic };
    let place = broker.connector.place();
    common.answer(&sent, &format!("sent {} to {} on {} ({place})", clean(&id), ingest.topic, ingest.broker))?;
    Ok(Exit::Ok)
}

fn ingest_of<'a>(settings: &'a Settings, name: Option<&str>) -> Result<(&'a str, &'a Ingest), Stop> {
    let names = settings.ingest.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let found = match name {
        Some(name) => settings.ingest.get_key_value(name),
        None if settings.ingest.len() == 1 => settings.ingest.first_key_value(),
        None => None,
    };
    let (message, hint) = match name {
        _ if names.is_empty() => ("the settings have no [ingest.NAME]".to_owned(), "nothing reads requests: add one".to_owned()),
        Some(name) => (format!("there is no [ingest.{name}]"), format!("--ingest is one of {names}")),
        None => ("the settings have several ingests".to_owned(), format!("choose one with --ingest: {names}")),
    };
    found.map(|(name, ingest)| (name.as_str(), ingest)).ok_or_else(|| Stop::because(Exit::Usage, message, hint))
}

fn body(args: &Args, max_body: u64) -> Result<Vec<u8>, Stop> {
    if args.body != "-" {
        return Ok(args.body.clone().into_bytes());
    }
    let mut body = Vec::new();
    // One byte more than allowed shows that the body is too large, without reading it to its end.
    std::io::stdin().lock().take(max_body.saturating_add(1)).read_to_end(&mut body)?;
    if body.len() as u64 > max_body {
        let message = format!("body_too_large: stdin has more than limits.max_body, {}", show_size(max_body));
        return Err(Stop::because(Exit::Usage, message, "store it elsewhere and send a reference"));
    }
    Ok(body)
}

fn message(args: &Args, id: &str, body: Vec<u8>) -> Message {
    let when = [("delay-for", &args.delay), ("delay-until", &args.until), ("delay-target", &args.target)];
    let mut message = Message::new(body);
    for (name, value) in when {
        if let Some(value) = value {
            message = message.with_header(name, value);
        }
    }
    message = message.with_header("delay-id", id);
    args.headers.iter().fold(message, |message, (name, value)| message.with_header(name, value))
}

/// A request that `run` would reject is not sent: the error shows here.
fn judge(settings: &Settings, name: &str, ingest: &Ingest, message: &Message) -> Result<(), Stop> {
    if ingest.envelope {
        let hint = "send the envelope with the broker's own tool, or choose another --ingest";
        return Err(Stop::because(Exit::Usage, format!("ingest.{name} has format = \"envelope\": its requests are not headers"), hint));
    }
    let rules = Rules::new(settings, name).map_err(|why| Stop::because(Exit::Settings, why, ""))?;
    let arrived = Message { destination: Destination::new(&ingest.topic), ..message.clone() };
    parse(&arrived, &rules, clock::wall_ms())
        .map(drop)
        .map_err(|rejection| Stop::because(Exit::Usage, format!("{}: {}", rejection.code.as_str(), rejection.detail), "nothing was sent"))
}

async fn publish(broker: &Broker, topic: &str, message: Message, timeout: Duration) -> Result<Outcome, Stop> {
    let (sink, mut outcomes) = broker.connector.sink(timeout).await?;
    let publication = Publication { token: 1, to: Destination::new(topic), message, dedupe_id: String::new(), deadline: None };
    sink.publish(vec![publication]).await;
    let outcome = match clock::timeout(timeout, outcomes.recv()).await {
        Some(Some(outcomes)) => outcomes.into_iter().next().map(|(_, outcome)| outcome),
        Some(None) => Some(Outcome::Unknown("the connection was lost".to_owned())),
        None => None,
    };
    // The outcome is known: errors on close change nothing.
    let _ = sink.close().await;
    Ok(outcome.unwrap_or_else(|| Outcome::Unknown(format!("no answer within {} ms", timeout.as_millis()))))
}

fn not_sent(outcome: &Outcome, broker: &Broker, topic: &str) -> Stop {
    let place = broker.connector.place();
    let (exit, why, hint) = match outcome {
        Outcome::Unroutable(why) => {
            (Exit::Unavailable, why, "create what the ingest reads, or let `dwell run` create it with declare = true")
        }
        Outcome::Refused(why) => (Exit::Unavailable, why, "send it again later"),
        Outcome::Unknown(why) => (Exit::Unavailable, why, "the broker may have stored the request: send it again with the same --id"),
        Outcome::Invalid(why) => (Exit::Failed, why, "the broker will never accept this request"),
        Outcome::Confirmed => (Exit::Ok, &String::new(), ""),
    };
    Stop::because(exit, format!("not sent to {topic} at {place}: {why}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_may_hold_what_it_likes_after_its_name() {
        assert_eq!(header("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(header("a="), Ok(("a".to_owned(), String::new())));
        assert!(header("=a").is_err() && header("a").is_err());
    }
}
