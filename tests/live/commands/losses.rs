//! `dwell run` on queues of RabbitMQ that lose requests: a warning by name, or a refusal where
//! every request would be lost in silence.

use dwell_testkit::servers::{DwellServer, RabbitOptions, RabbitServer, RedisOptions, RedisServer};
use serde_json::json;

use super::fixture::{program, run_with};
use crate::routes::migration::import;
use crate::support::wait_until;

#[tokio::test]
async fn a_queue_that_loses_requests_is_a_warning_and_a_stream_is_refused_with_78() {
    let (rabbit, redis) = tokio::join!(
        RabbitServer::start(RabbitOptions::default()),
        RedisServer::start(RedisOptions::default())
    );
    let (rabbit, redis) = (rabbit.unwrap(), redis.unwrap());
    let queue = |name: &str, arguments| json!({ "name": name, "vhost": "/", "durable": true, "auto_delete": false, "arguments": arguments });
    let queues = [
        queue("delay.stream", json!({ "x-queue-type": "stream" })),
        queue("delay.short", json!({ "x-message-ttl": 60_000 })),
        queue("delay.dead", json!({})),
        queue("delay.rejected", json!({})),
    ];
    std::fs::write(rabbit.dir().join("queues.json"), json!({ "queues": queues }).to_string())
        .unwrap();
    import(&rabbit, rabbit.dir(), "queues.json").await;
    let settings = |topic: &str| {
        format!(
            "[redis]\nurls = [\"{}\"]\n[brokers.main]\ntype = \"amqp\"\nurl = \"{}\"\nallow = [\"/orders\"]\n\
             [ingest.main]\nbroker = \"main\"\ntopic = \"{topic}\"\n",
            redis.url(),
            rabbit.url()
        )
    };
    let dwell = DwellServer::start(program(), &settings("delay.short")).await.unwrap();
    let log = dwell.dir().join("log");
    let warning = wait_until("a warning", async || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().find(|line| line.contains("x-message-ttl of 60000 ms")).map(str::to_owned)
    });
    let warning = warning.await;
    for part in ["\"WARN\"", "requests may be lost before they are read", "delay.short"] {
        assert!(warning.contains(part), "{warning}");
    }
    let file = rabbit.dir().join("stream.toml");
    std::fs::write(&file, settings("delay.stream")).unwrap();
    for command in [&["run"][..], &["check"]] {
        let said = run_with(&[&["-c", file.to_str().unwrap()], command].concat(), b"");
        let all = format!("{}{}", said.out, said.err);
        assert!(
            said.code == 78 && all.contains("is a stream") && all.contains("quorum"),
            "{command:?}: {said:?}"
        );
    }
}
