//! `dwell send`: a request through the broker, as a producer sends it.

/// `dwell send`
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["delay", "until"])))]
pub struct Args {
    /// How long to wait: 5000 (ms), 90s, 1h30m or PT15M
    #[arg(long = "for", value_name = "DURATION")]
    pub delay: Option<String>,
    /// When to publish: 2026-01-31T12:00:00Z or epoch milliseconds
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Where to publish: Kafka topic, NATS subject or AMQP routing key
    #[arg(long)]
    pub target: Option<String>,
    /// The job's id
    #[arg(long)]
    pub id: Option<String>,
    /// The ingest to send to; needed where the settings have several
    #[arg(long, value_name = "NAME")]
    pub ingest: Option<String>,
    /// A header; may stand several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// The body; `-` reads it from stdin
    #[arg(default_value = "")]
    pub body: String,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}
