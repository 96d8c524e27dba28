//! A web application with its worker inside: `POST /orders/17` begins an order, `DELETE` cancels
//! the job that would close it, and the worker closes what is left. Nothing else is needed but a
//! Redis. `cargo run -p dwell-engine --example axum_worker redis://127.0.0.1:6379`

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use dwell_engine::worker::{Context, Outcome, Routes};
use dwell_engine::{Client, Error, JobId, Redis, Task, Verdict, Worker};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// An order that is to be closed unless it is paid.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CloseOrder {
    order: u64,
}

impl Task for CloseOrder {
    const QUEUE: &'static str = "orders.close";
}

/// What the application shares: a database would be here.
#[derive(Clone)]
pub(crate) struct App {
    client: Client,
    /// How long a customer has to pay.
    time_to_pay: Duration,
    /// The orders that were closed.
    pub(crate) closed: Arc<Mutex<Vec<u64>>>,
}

impl App {
    pub(crate) fn new(client: Client, time_to_pay: Duration) -> App {
        App { client, time_to_pay, closed: Arc::default() }
    }

    /// The handlers of this application: for its worker, and for its tests.
    pub(crate) fn routes(&self) -> Routes {
        let app = self.clone();
        Routes::new().task(move |task, context| app.clone().close(task, context))
    }

    async fn close(self, task: CloseOrder, _: Context) -> Result<Outcome, Error> {
        self.closed.lock().await.push(task.order);
        Ok(Outcome::Finish)
    }
}

/// Begins an order. The id of the job is made from the order, so that a repeated call stores one
/// job.
async fn begin(
    State(app): State<App>,
    Path(order): Path<u64>,
) -> Result<StatusCode, (StatusCode, String)> {
    let schedule = CloseOrder { order }.schedule(app.time_to_pay).map_err(failed)?.id(id_of(order));
    app.client.schedule(&schedule).await.map_err(failed)?;
    Ok(StatusCode::ACCEPTED)
}

/// The order is paid: nothing is to be closed, if it is not too late.
async fn pay(
    State(app): State<App>,
    Path(order): Path<u64>,
) -> Result<StatusCode, (StatusCode, String)> {
    match app.client.cancel(&id_of(order)).await.map_err(failed)? {
        Verdict::Cancelled => Ok(StatusCode::NO_CONTENT),
        _ => Ok(StatusCode::CONFLICT),
    }
}

fn id_of(order: u64) -> JobId {
    format!("order-{order}").parse().expect("a short text without control characters is an id")
}

fn failed(error: Error) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

/// Serves requests and jobs until told to stop.
pub(crate) async fn run(
    app: App,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), Error> {
    let worker = Worker::new(app.client.clone()).routes(app.routes()).run(stop.clone());
    let router = Router::new().route("/orders/{order}", post(begin).delete(pay)).with_state(app);
    let server =
        axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).into_future();
    let (worked, served) = tokio::join!(worker, server);
    served.expect("axum's server ends without an error");
    worked
}

#[tokio::main]
#[allow(dead_code, reason = "a test calls `run` by itself")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&Redis::new(url), &[]).await?;
    let listener = TcpListener::bind("127.0.0.1:3000").await.expect("port 3000 is free");
    println!("POST or DELETE http://127.0.0.1:3000/orders/17; an order is closed after 10 s");
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        // Without signals there is nothing to wait for.
        let _ = tokio::signal::ctrl_c().await;
        told.cancel();
    });
    run(App::new(client, Duration::from_secs(10)), listener, stop).await
}
