//! The cost of the scripts in Redis. Not a test: `cargo test --release --test live speed --
//! --ignored --nocapture`.

use dwell::store::jobs::settle::Completion;
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer};

use super::fixture::{Fixture, LEASE, MAIN, PAST, held, request};

/// CPU that the server used, user and system, µs.
async fn cpu(fixture: &Fixture) -> f64 {
    let redis::Value::BulkString(info) = fixture.redis(&["INFO", "cpu"]).await else { panic!() };
    let info = String::from_utf8(info).unwrap();
    let used = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .parse::<f64>()
            .unwrap()
    };
    (used("used_cpu_user_main_thread:") + used("used_cpu_sys_main_thread:")) * 1e6
}

/// µs inside scripts, as the server counts them.
async fn inside(fixture: &Fixture) -> f64 {
    let redis::Value::BulkString(info) = fixture.redis(&["INFO", "commandstats"]).await else {
        panic!()
    };
    let info = String::from_utf8(info).unwrap();
    let Some(line) = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")) else {
        return 0.0;
    };
    line.split("usec=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_a_life_of_200_byte_jobs_128_a_call() {
    const ROUNDS: u64 = 400;
    let appendonly = std::env::var_os("DWELL_SPEED_AOF").map(|_| AppendFsync::EverySec);
    let server =
        RedisServer::start(RedisOptions { appendonly, ..RedisOptions::default() }).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    let mut spent = [(0.0, 0.0); 3];
    for round in 0..ROUNDS + 1 {
        let batch: Vec<_> = (0..128)
            .map(|n| {
                let mut request =
                    request(&format!("order-{:08}", round * 128 + n), round * 128 + n, PAST);
                request.job.body = vec![b'x'; 200].into();
                request
            })
            .collect();
        let mut marks = vec![(inside(&fixture).await, cpu(&fixture).await)];
        fixture.store.jobs.schedule(&batch).await.unwrap();
        marks.push((inside(&fixture).await, cpu(&fixture).await));
        let jobs: Vec<_> = fixture
            .store
            .jobs
            .claim(0, MAIN, LEASE, 128, 1 << 20)
            .await
            .unwrap()
            .jobs
            .iter()
            .map(held)
            .collect();
        assert_eq!(jobs.len(), 128);
        marks.push((inside(&fixture).await, cpu(&fixture).await));
        fixture.store.jobs.complete(0, &jobs, Completion::Fired).await.unwrap();
        marks.push((inside(&fixture).await, cpu(&fixture).await));
        // The first round loads scripts.
        for (at, pair) in marks.windows(2).enumerate().filter(|_| round > 0) {
            spent[at].0 += pair[1].0 - pair[0].0;
            spent[at].1 += pair[1].1 - pair[0].1;
        }
    }
    let redis::Value::BulkString(info) = fixture.redis(&["INFO", "persistence"]).await else {
        panic!()
    };
    if let Some(bytes) = String::from_utf8(info)
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("aof_current_size:"))
    {
        println!(
            "{} bytes of append-only file a life",
            bytes.trim().parse::<u64>().unwrap() / (128 * (ROUNDS + 1))
        );
    }
    for (name, (inside, cpu)) in ["schedule", "claim", "complete"].into_iter().zip(spent) {
        let jobs = (ROUNDS * 128) as f64;
        println!(
            "{name}: {:.2} µs a job inside scripts, {:.2} µs of CPU in all",
            inside / jobs,
            cpu / jobs
        );
    }
}
