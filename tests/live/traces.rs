//! Spans as a collector receives them: one for the request, one for each attempt, linked, in the
//! trace of the message; and that trace as the exemplar of the lateness.

use std::sync::Arc;

use dwell_connectors::{Acks, Destination, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Store};
use dwell_testkit::servers::{BrokerKind, DwellServer};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::support::wait_until;

/// All spans that were exported, each with the name of its service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collector {
    pub(crate) spans: Arc<Mutex<Vec<(String, Span)>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let service = text(&resource.resource.unwrap_or_default().attributes, "service.name")
                .unwrap_or_default();
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.lock().extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves on a free port until dropped; its URL.
    pub(crate) async fn start(&self) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(self.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        let mut task = JoinSet::new();
        task.spawn(async move { serving.await.unwrap() });
        (url, task)
    }

    /// The spans of one job by their start.
    fn of(&self, id: &str) -> Vec<Span> {
        let spans = self.spans.lock();
        assert!(spans.iter().all(|(service, _)| service == "dwell"));
        let mut spans: Vec<Span> = spans
            .iter()
            .filter(|(_, span)| attribute(span, "messaging.message.id").as_deref() == Some(id))
            .map(|(_, span)| span.clone())
            .collect();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }
}

fn text(
    attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue],
    key: &str,
) -> Option<String> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    text(&span.attributes, key)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The metrics as OpenMetrics.
async fn open_metrics(dwell: &DwellServer) -> String {
    let mut link = TcpStream::connect(("127.0.0.1", dwell.port())).await.unwrap();
    let call = "GET /metrics HTTP/1.1\r\nhost: dwell\r\naccept: application/openmetrics-text\r\nconnection: close\r\n\r\n";
    link.write_all(call.as_bytes()).await.unwrap();
    let mut answer = String::new();
    link.read_to_string(&mut answer).await.unwrap();
    answer
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn request(id: &str, target: &str) -> Message {
    Message::new("body")
        .with_header("delay-id", id)
        .with_header("delay-for", "20ms")
        .with_header("delay-target", target)
        .with_header("delay-retry", "50ms")
        .with_header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_and_its_attempts_are_spans_that_know_of_each_other() {
    let collector = Collector::default();
    let (url, _serving) = collector.start().await;
    let (redis, allow) = (Store::Private(Default::default()), ["orders.>"]);
    let environment = Environment::start(BrokerKind::Nats, redis, &allow, "", None).await.unwrap();
    environment.declare(&["orders.close"], Role::Letters).await.unwrap();
    let mut dwell =
        DwellServer::prepare(env!("CARGO_BIN_EXE_dwell").into(), environment.text()).unwrap();
    dwell.set_env([("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())]);
    dwell.restart().await.unwrap();
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let into = seen.clone();
    let _consumer =
        Consumer::open(environment.broker(), "orders.close", Acks::Explicit, move |_, messages| {
            into.lock().extend(messages)
        })
        .await
        .unwrap();
    let mut producer = Producer::open(environment.broker()).await.unwrap();
    let requests = [
        request("goes", "orders.close"),
        request("dies", "orders.nowhere"),
        request("wrong", "elsewhere"),
    ];
    producer.send(&Destination::new("delay.in"), requests).await.unwrap();
    producer.flush().await.unwrap();

    // Spans that are not exported yet go out at the end.
    let store = dwell::store::Store::attach(&environment.settings().redis).await.unwrap();
    wait_until("one has arrived and one is dead", async || {
        let dead: u64 = store.reader.counts(&[]).await.unwrap().dead.iter().sum();
        (seen.lock().len() == 1 && dead == 1).then_some(())
    })
    .await;
    let exemplar = format!(" 1 # {{trace_id=\"{TRACE}\"}} ");
    let named = wait_until("the lateness names its trace", async || {
        let metrics = open_metrics(&dwell).await;
        metrics.lines().find(|line| line.contains(&exemplar)).map(str::to_owned)
    })
    .await;
    assert!(named.starts_with("dwell_lateness_seconds_bucket{le="), "{named}");
    assert!(
        !dwell.metrics().await.unwrap().contains("trace_id"),
        "the text format has no exemplars"
    );
    dwell.stop().await.unwrap();

    let arrived = seen.lock()[0].clone();
    assert_eq!(
        arrived.headers.text("traceparent"),
        Some(format!("00-{TRACE}-{PARENT}-01").as_str()),
        "untouched"
    );
    let goes = collector.of("goes");
    let [request, attempt] = &goes[..] else { panic!("{goes:?}") };
    for (span, name, kind) in [(request, "process", "process"), (attempt, "publish", "send")] {
        assert_eq!(
            (hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()),
            (TRACE, PARENT)
        );
        for (key, value) in [
            ("messaging.system.name", "nats"),
            ("messaging.system", "nats"),
            ("messaging.operation.name", name),
            ("messaging.operation.type", kind),
            ("messaging.message.body.size", "4"),
        ] {
            assert_eq!(attribute(span, key).as_deref(), Some(value), "{key} of {span:?}");
        }
        let last = span.links.last().map(|link| (hex(&link.trace_id), hex(&link.span_id)));
        assert_eq!(
            last,
            Some((TRACE.to_owned(), PARENT.to_owned())),
            "the context that the message was made in"
        );
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    assert_eq!((request.name.as_str(), request.kind()), ("process delay.in", SpanKind::Consumer));
    assert_eq!(attribute(request, "dwell.outcome").as_deref(), Some("added"));
    assert_eq!((attempt.name.as_str(), attempt.kind()), ("publish orders.>", SpanKind::Client));
    assert_eq!(
        (
            attribute(attempt, "messaging.destination.template"),
            attribute(attempt, "messaging.destination.name")
        ),
        (Some("orders.>".into()), Some("orders.close".into()))
    );
    assert_eq!(
        (attribute(request, "messaging.destination.template"), attribute(request, "dwell.due_ms")),
        (None, None)
    );
    let due_ms = attribute(attempt, "dwell.due_ms");
    assert_eq!(due_ms.as_deref(), arrived.headers.text("delayed-due"));
    let lateness_ms: i64 = attribute(attempt, "dwell.lateness_ms").unwrap().parse().unwrap();
    assert!((0..60_000).contains(&lateness_ms), "{lateness_ms}");
    assert_eq!(
        (attribute(attempt, "dwell.attempt"), attribute(attempt, "dwell.outcome")),
        (Some("1".into()), Some("confirmed".into()))
    );
    let linked: Vec<_> = attempt.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
    assert_eq!(linked[..linked.len() - 1], [(&request.trace_id, &request.span_id)]);
    assert!(attempt.start_time_unix_nano >= request.end_time_unix_nano);

    let dies = collector.of("dies");
    let told: Vec<_> =
        dies.iter().map(|span| (span.name.as_str(), attribute(span, "error.type"))).collect();
    let unroutable = Some("unroutable".to_owned());
    assert_eq!(
        told,
        [
            ("process delay.in", None),
            ("publish orders.>", unroutable.clone()),
            ("publish orders.>", unroutable),
            ("publish delay.dead", None)
        ]
    );
    assert!(dies[1..].iter().all(|span| span.links[0].span_id == dies[0].span_id));

    let spans = collector.spans.lock();
    let refused: Vec<_> = spans
        .iter()
        .filter_map(|(_, span)| attribute(span, "error.type").map(|kind| (kind, span)))
        .collect();
    let (_, span) = refused.iter().find(|(kind, _)| kind == "target_not_allowed").unwrap();
    assert!(span.status.as_ref().unwrap().message.contains("elsewhere"), "{span:?}");
}
