//! `dwell-lab demo`: real servers, a runtime, jobs, and their lateness.

use crate::demo;
use crate::demo::expectations::Summary;
use dwell::cli::common::{Common, Form};
use dwell::cli::exit::{Exit, Stop};
use dwell_testkit::environment::Result;
use dwell_testkit::servers::BrokerKind;

/// `dwell-lab demo`
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// The broker to show, or one of two without a broker: `queue`, where consumers fetch the jobs
    /// over HTTP, and `http`, where Dwell sends them to URLs
    #[arg(long, default_value = "nats")]
    pub broker: Shown,
}

/// What the demo shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shown {
    /// NATS JetStream
    Nats,
    /// Kafka
    Kafka,
    /// RabbitMQ
    Amqp,
    /// Queues of Dwell, without a broker
    Queue,
    /// HTTP targets, without a broker
    Http,
}

impl Shown {
    async fn play(self, silent: bool) -> Result<Summary> {
        let broker = match self {
            Shown::Nats => BrokerKind::Nats,
            Shown::Kafka => BrokerKind::Kafka,
            Shown::Amqp => BrokerKind::Amqp,
            Shown::Http => return Box::pin(demo::http::run(silent)).await,
            Shown::Queue => return Box::pin(demo::queues::run(silent)).await,
        };
        Box::pin(demo::broker::run(broker, silent)).await
    }
}

/// Runs the demo. Fails if a job deviates from its expected fate.
///
/// # Errors
/// A job deviates, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    super::until_signal(Box::pin(async {
        let summary = Box::pin(args.broker.play(common.output == Form::Json)).await?;
        common.answer(&summary, &format!("\n{summary}"))?;
        if summary.wrong.is_empty() {
            Ok(Exit::Ok)
        } else {
            Err(Stop::because(Exit::Failed, summary.wrong.join("; "), ""))
        }
    }))
    .await
}
