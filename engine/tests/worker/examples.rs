//! The examples run.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::axum_worker::{self, App};
use super::worker_process::{self, CloseOrder};
use super::*;

#[tokio::test]
async fn a_worker_process_handles_its_tasks() {
    let fixture = Fixture::new().await;
    let id = fixture.client.enqueue(&CloseOrder { order: 17 }, NOW).await.unwrap();
    let stop = CancellationToken::new();
    let running = Running {
        task: tokio::spawn(worker_process::run(fixture.client.clone(), stop.clone())),
        stop,
    };
    fixture.until_state(&id, None).await;
    running.stop().await;
}

#[tokio::test]
async fn a_web_application_closes_what_was_not_paid() {
    let fixture = Fixture::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let app = App::new(fixture.client.clone(), Duration::from_secs(6));
    let running =
        Running { task: tokio::spawn(axum_worker::run(app.clone(), listener, stop.clone())), stop };
    let call = async |method: &str, order: u64| {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let request =
            format!("{method} /orders/{order} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let answers = [call("POST", 1).await, call("POST", 2).await, call("DELETE", 1).await];
    assert_eq!(answers, ["202", "202", "204"]);
    soon(async {
        while app.closed.lock().await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(*app.closed.lock().await, [2], "the other one was paid");
    running.stop().await;
}

#[tokio::test]
async fn the_routes_of_the_application_run_in_memory() {
    let fixture = Fixture::new().await;
    let app = App::new(fixture.client.clone(), CONDITION_TIMEOUT);
    let mut queue = dwell_engine::testing::TestQueue::new(app.routes()).unwrap();
    queue.enqueue(&CloseOrder { order: 17 }, Due::In(1000)).unwrap();
    assert!(queue.run_due().await.is_empty());
    queue.advance(Duration::from_secs(1));
    assert_eq!(queue.run_due().await.len(), 1);
    assert_eq!(*app.closed.lock().await, [17]);
}
