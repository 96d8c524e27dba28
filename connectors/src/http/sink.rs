//! The sink: each publication is a task, which sends one request and reports its outcome.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::config::Config;
use super::connection::{HttpClient, client};
use super::signer::Signer;
use super::slots::{HostSlots, SLOTS};
use super::targets::Targets;
use super::{headers, outcome, url};
use crate::{ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink, Token};

/// The most bytes of an answer's body that are read.
const BODY_MAX: usize = 4 << 10;
/// How long the body of an answer may take: the status has decided.
const BODY_TIME: Duration = Duration::from_secs(1);
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

pub(super) async fn open(config: &Config, publish_timeout: Duration) -> Result<(HttpSink, Outcomes), ConnectorError> {
    let signer = match &config.secret_file {
        Some(file) => Some(Signer::start(file).await?),
        None => None,
    };
    let timeout = config.timeout().min(publish_timeout);
    let (sender, outcomes) = mpsc::unbounded_channel();
    let requests = Requests {
        client: client(config, timeout, SLOTS).await?,
        slots: Arc::default(),
        targets: Targets::new(config.subnets.clone()),
        signer,
        outcomes: sender,
    };
    Ok((HttpSink { requests: Arc::new(requests), timeout }, outcomes))
}

pub(super) struct HttpSink {
    requests: Arc<Requests>,
    timeout: Duration,
}

/// What all requests share.
struct Requests {
    client: HttpClient,
    slots: Arc<HostSlots>,
    targets: Targets,
    signer: Option<Arc<Signer>>,
    outcomes: mpsc::UnboundedSender<Vec<(Token, Outcome)>>,
}

#[async_trait]
impl Sink for HttpSink {
    async fn publish(&self, batch: Vec<Publication>) {
        let latest = Instant::now() + self.timeout;
        for publication in batch {
            let requests = Arc::clone(&self.requests);
            let until = publication.deadline.map_or(latest, |deadline| deadline.min(latest));
            // Boxed: the runtime moves a task several times until it runs.
            tokio::spawn(Box::pin(async move {
                let token = publication.token;
                // The caller may have closed its end: then nobody waits for the outcome.
                requests.attempt(publication, until, |outcome| drop(requests.outcomes.send(vec![(token, outcome)]))).await;
            }));
        }
    }

    /// Whether a path exists shows only when it is used.
    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        Ok(url::parse(&to.address).is_ok())
    }

    /// Requests that are under way go on, and report their outcomes.
    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        Ok(())
    }
}

impl Requests {
    /// Sends one request, and reports its outcome once. A body that the report does not need is read
    /// after it, so that the connection can be used again.
    async fn attempt(&self, publication: Publication, until: Instant, report: impl FnOnce(Outcome) + Send) {
        let (request, origin) = match self.request(publication.to, publication.message, &publication.dedupe_id) {
            Ok(ready) => ready,
            Err(outcome) => return report(outcome),
        };
        let begun = Instant::now();
        // At least half of the attempt is the host's: a slow one would get requests whose time is nearly
        // over, and each would burn an attempt.
        let patience = until.saturating_duration_since(begun) / 2;
        let Some(_slot) = self.slots.acquire(origin, begun + patience).await else {
            return report(Outcome::Refused(format!("never sent: the host has {SLOTS} requests without an answer")));
        };
        if Instant::now() >= until {
            return report(Outcome::Refused("never sent: the time of the attempt was over".to_owned()));
        }
        // The timer first: a process that was suspended while it connected sends nothing afterwards.
        let answer = tokio::select! {
            biased;
            () = sleep_until(until) => Err(()),
            answer = self.client.request(request) => Ok(answer),
        };
        match answer {
            Err(()) => report(outcome::of_silence(begun.elapsed())),
            Ok(Err(error)) => report(outcome::of_error(&error)),
            Ok(Ok(answer)) => {
                let (head, body) = answer.into_parts();
                if head.status.is_success() {
                    report(outcome::of_answer(head.status, &head.headers, b""));
                    start_of(body).await;
                } else {
                    report(outcome::of_answer(head.status, &head.headers, &start_of(body).await));
                }
            }
        }
    }

    /// The request of a message, and the host that gets it; or the outcome of what cannot be sent.
    fn request(&self, to: Destination, message: Message, id: &str) -> Result<(Request<Full<Bytes>>, Arc<str>), Outcome> {
        let target = self.targets.read(&to.address)?;
        let mut headers = headers::to_http(&message.headers).map_err(Outcome::Invalid)?;
        // The client leaves out 0, which some servers want to see (411).
        headers.insert(CONTENT_LENGTH, HeaderValue::from(message.body.len()));
        // The receivers' libraries want an id.
        let random = id.is_empty().then(|| format!("{:032x}", rand::random::<u128>()));
        let id = random.as_deref().unwrap_or(id);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now_s));
        if let Ok(value) = HeaderValue::try_from(id) {
            headers.insert(WEBHOOK_ID, value);
        }
        if let Some(signer) = &self.signer
            && let Ok(value) = HeaderValue::try_from(signer.sign(id, now_s, &message.body))
        {
            headers.insert(WEBHOOK_SIGNATURE, value);
        }
        let mut request = Request::new(Full::new(message.body));
        (*request.method_mut(), *request.uri_mut(), *request.version_mut()) = (Method::POST, target.uri, Version::HTTP_11);
        *request.headers_mut() = headers;
        Ok((request, target.origin))
    }
}

/// The start of a body: at most [`BODY_MAX`] bytes, and what comes within [`BODY_TIME`]. A longer
/// body is not read on: its connection is closed.
async fn start_of(mut body: Incoming) -> Vec<u8> {
    let mut start = Vec::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(data) = frame.data_ref() {
                start.extend_from_slice(&data[..data.len().min(BODY_MAX - start.len())]);
            }
            if start.len() >= BODY_MAX {
                break;
            }
        }
    };
    // What came until then is enough.
    let _ = timeout(BODY_TIME, read).await;
    start
}
