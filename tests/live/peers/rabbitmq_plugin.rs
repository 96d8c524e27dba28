//! What users of RabbitMQ's delayed-message plugin do, with Dwell in its place: the cases of the plugin's own suite (test/plugin_SUITE.erl), and what
//! else its users rely on. docs/explanation/peers.md has the table of both.
//!
//! A delayed exchange `x` is a fanout that leads to the queue `delay.x`; what was bound to it is bound to `x.due`.

use std::path::Path;
use std::sync::Arc;

use dwell_connectors::{Acks, BrokerConfig, Destination, Message, Properties, Value, amqp};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::servers::{DwellServer, RabbitOptions, RabbitServer, RedisOptions, RedisServer};
use parking_lot::Mutex;
use serde_json::json;

use crate::routes::environment::{program, text};
use crate::routes::migration::shell;
use crate::support::wait_until;

/// The delayed exchanges, each with the type that `x-delayed-type` named, its queue and the keys by which that is bound.
const EXCHANGES: [(&str, &str, &str, &[&str]); 9] = [
    ("topic", "topic", "q.topic", &["a.b.c", "a.*.c", "a.#"]),
    ("direct", "direct", "q.direct", &["mykey"]),
    ("fanout", "fanout", "q.fanout", &["mykey", "", "otherkey"]),
    // Bound to the next one, as its `e2e` tests have it.
    ("first", "direct", "", &[]),
    ("second", "direct", "q.second", &[""]),
    ("order", "direct", "q.order", &[""]),
    ("keys", "topic", "q.keys", &["#"]),
    ("again", "direct", "q.again", &["k"]),
    ("round", "direct", "q.round", &["k"]),
];

struct Fixture {
    rabbit: RabbitServer,
    redis: RedisServer,
    dwell: DwellServer,
    broker: BrokerConfig,
    settings: String,
}

/// What was there before Dwell, in RabbitMQ's own form.
fn definitions() -> String {
    let exchange = |name: &str, kind: &str| json!({"name": name, "vhost": "/", "type": kind, "durable": true, "auto_delete": false, "internal": false, "arguments": {}});
    let queue = |name: &str, arguments| json!({"name": name, "vhost": "/", "durable": true, "auto_delete": false, "arguments": arguments});
    let bind = |from: &str, kind: &str, to: &str, key: &str| json!({"source": from, "vhost": "/", "destination": to, "destination_type": kind, "routing_key": key, "arguments": {}});
    let (mut exchanges, mut queues, mut bindings) = (Vec::new(), Vec::new(), Vec::new());
    for (name, kind, own, keys) in EXCHANGES {
        let (due, delay) = (format!("{name}.due"), format!("delay.{name}"));
        exchanges.extend([exchange(name, "fanout"), exchange(&due, kind)]);
        let beside = format!("{delay}.expired");
        let limit = json!({"x-queue-type": "quorum", "x-delivery-limit": i32::MAX});
        let mut arguments = limit.clone();
        arguments["x-dead-letter-exchange"] = json!("");
        arguments["x-dead-letter-routing-key"] = json!(beside);
        queues.extend([queue(&beside, limit), queue(&delay, arguments)]);
        bindings.push(bind(name, "queue", &delay, ""));
        if !own.is_empty() {
            // What nobody reads at once comes back to the delayed exchange.
            let letters = json!({"x-dead-letter-exchange": name, "x-message-ttl": 1});
            queues.push(queue(own, if name == "round" { letters } else { json!({}) }));
        }
        bindings.extend(keys.iter().map(|key| bind(&due, "queue", own, key)));
    }
    bindings.push(bind("first.due", "exchange", "second", ""));
    // As the page has it for producers that choose who gets a hidden copy.
    exchanges.extend([exchange("hidden", "topic"), exchange("hidden.due", "direct")]);
    queues.extend(["delay.hidden", "delay.audit", "q.hidden", "q.audit"].map(|name| queue(name, json!({}))));
    bindings.extend([bind("hidden", "queue", "delay.hidden", "#"), bind("hidden", "queue", "delay.audit", "audit")]);
    bindings.push(bind("hidden.due", "queue", "q.hidden", "k"));
    exchanges.push(exchange("self", "direct"));
    queues.extend(["delay.self", "q.self"].map(|name| queue(name, json!({}))));
    bindings.extend(["delay.self", "q.self"].map(|name| bind("self", "queue", name, "k")));
    json!({"exchanges": exchanges, "queues": queues, "bindings": bindings}).to_string()
}

fn settings(rabbit: &str, redis: &str) -> String {
    let names = EXCHANGES.iter().map(|(name, ..)| *name).chain(["hidden"]);
    let allow: Vec<String> = names.map(|name| format!("\"{name}.due/**\"")).chain(["\"self/**\"".to_owned()]).collect();
    let mut text = format!(
        "[redis]\nurls = [\"{redis}\"]\n[delivery]\nretry = []\n[brokers.main]\ntype = \"amqp\"\nurl = \"{rabbit}\"\nallow = [{}]\n",
        allow.join(", ")
    );
    for (name, ..) in EXCHANGES {
        text += &format!("[ingest.{name}]\nbroker = \"main\"\ntopic = \"delay.{name}\"\nexchange = \"{name}.due\"\n");
        text += "missing_delay = \"immediate\"\ndeclare = true\n";
    }
    text += "[ingest.hidden]\nbroker = \"main\"\ntopic = \"delay.hidden\"\nexchange = \"hidden.due\"\nmissing_delay = \"immediate\"\n";
    text += "[ingest.self]\nbroker = \"main\"\ntopic = \"delay.self\"\nexchange = \"self\"\nmissing_delay = \"immediate\"\n";
    text += "[ingest.audit]\nbroker = \"main\"\ntopic = \"delay.audit\"\ntarget = \"q.audit\"\nmissing_delay = \"immediate\"\n";
    text
}

/// A message as the suite publishes it: its body is its delay.
fn delayed(delay: impl Into<Value>) -> Message {
    let delay = delay.into();
    let body = match &delay {
        Value::Text(text) => text.clone(),
        Value::I32(ms) => ms.to_string(),
        Value::F64(ms) => ms.to_string(),
        other => format!("{other:?}"),
    };
    let properties = Properties { delivery_mode: Some(2), ..Properties::default() };
    let mut message = Message { properties: Some(Box::new(properties)), ..Message::new(body) };
    message.headers.push("x-delay", delay);
    message
}

fn with(mut message: Message, change: impl FnOnce(&mut Properties)) -> Message {
    change(message.properties.as_mut().unwrap());
    message
}

fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8(message.body.to_vec()).unwrap()).collect()
}

impl Fixture {
    async fn start() -> Fixture {
        let (rabbit, redis) = tokio::join!(RabbitServer::start(RabbitOptions::default()), RedisServer::start(RedisOptions::default()));
        let (rabbit, redis) = (rabbit.unwrap(), redis.unwrap());
        std::fs::write(rabbit.dir().join("before.json"), definitions()).unwrap();
        shell(&rabbit, rabbit.dir(), "rabbitmqctl import_definitions before.json").await;
        let settings = settings(&rabbit.url(), &redis.url());
        let broker = BrokerConfig::Amqp(amqp::Config::at(rabbit.url()));
        let dwell = DwellServer::start(program(), &settings).await.unwrap();
        Fixture { rabbit, redis, dwell, broker, settings }
    }

    async fn send(&self, exchange: &str, key: &str, messages: impl IntoIterator<Item = Message>) {
        let mut producer = Producer::open(&self.broker).await.unwrap();
        producer.send(&Destination { exchange: exchange.to_owned(), address: key.to_owned() }, messages).await.unwrap();
        producer.flush().await.unwrap();
    }

    /// Reads so many messages from this queue, in their order.
    async fn read(&self, queue: &str, count: usize) -> Vec<Message> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let consumer = Consumer::open(&self.broker, queue, Acks::Explicit, move |_, messages| into.lock().extend(messages));
        let _consumer = consumer.await.unwrap();
        wait_until(&format!("{count} messages in {queue}"), async || (seen.lock().len() >= count).then_some(())).await;
        let seen = seen.lock().clone();
        assert_eq!(seen.len(), count, "{queue}: {:?}", bodies(&seen));
        seen
    }

    /// Waits for a loop with this body that was rejected.
    async fn a_rejected_loop(&self, body: &str) -> Message {
        let is_it = |message: &&Message| message.body == body && text(message, "delayed-error").as_deref() == Some("loop");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let reading = Consumer::open(&self.broker, "delay.rejected", Acks::Explicit, move |_, messages| into.lock().extend(messages));
        let _reading = reading.await.unwrap();
        wait_until("a rejected loop", async || seen.lock().iter().find(is_it).cloned()).await
    }

    /// How many messages are ready in this queue.
    async fn ready(&self, queue: &str) -> u64 {
        let said = self.rabbit.dir().join("queues");
        shell(&self.rabbit, self.rabbit.dir(), "rabbitmqctl -q list_queues name messages_ready > queues").await;
        let lines = std::fs::read_to_string(said).unwrap();
        let line = lines.lines().find_map(|line| line.strip_prefix(&format!("{queue}\t"))).unwrap_or_else(|| panic!("{queue}: {lines}"));
        line.trim().parse().unwrap()
    }

    /// What `dwell stats` counts as waiting.
    async fn scheduled(&self) -> u64 {
        let file = self.dwell.dir().join("dwell.toml");
        let output = tokio::process::Command::new(program()).args(["stats", "-o", "json", "-c"]).arg(file).output().await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["scheduled"].as_u64().unwrap()
    }

    async fn restart_dwell(&mut self) {
        self.dwell = DwellServer::start(program(), &self.settings).await.unwrap();
    }
}

/// One test, because RabbitMQ takes seven seconds to start; each story has an exchange of its own, or all of one that another left empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_the_plugin_hold() {
    let mut fixture = Fixture::start().await;
    routes_as_the_type_says(&fixture).await;
    one_exchange_leads_to_another(&fixture).await;
    the_order_is_that_of_the_delays(&fixture).await;
    any_routing_key_is_taken_as_it_is(&fixture).await;
    equal_messages_are_each_delivered(&fixture).await;
    hidden_copies_stay_hidden(&fixture).await;
    a_message_may_come_back(&fixture).await;
    what_goes_round_for_ever_is_found(&fixture).await;
    an_exchange_that_leads_back_at_once_is_found_at_once(&fixture).await;
    the_time_to_live_begins_after_the_delay(&mut fixture).await;
    a_copy_that_expired_is_known(&mut fixture).await;
    an_exchange_that_takes_no_messages_is_told(&fixture).await;
    an_expired_queue_that_is_missing_is_told(&fixture).await;
    a_restart_of_the_broker_loses_nothing(&mut fixture).await;
    fixture.dwell.stop().await.unwrap();
    fixture.rabbit.kill().unwrap();
    fixture.redis.stop().await.unwrap();
}

/// `routing_topic`, `routing_direct`, `routing_fanout`.
async fn routes_as_the_type_says(fixture: &Fixture) {
    let cases: [(&str, &[&str], usize); 3] = [
        ("topic", &["a.b.c", "a.z.c", "a.j.k", "b.b.c"], 3),
        ("direct", &["mykey", "noroute", "mykey"], 2),
        ("fanout", &["mykey", "noroute", "mykey"], 3),
    ];
    for (exchange, keys, _) in cases {
        for key in keys {
            fixture.send(exchange, key, [delayed(Value::I32(0))]).await;
        }
    }
    for (exchange, _, count) in cases {
        assert_eq!(bodies(&fixture.read(&format!("q.{exchange}"), count).await), vec!["0"; count]);
    }
}

/// `e2e_nodelay`, `e2e_delay`: what comes from one delayed exchange passes through another at once.
async fn one_exchange_leads_to_another(fixture: &Fixture) {
    fixture.send("first", "", [0].map(|ms| delayed(Value::I32(ms)))).await;
    assert_eq!(bodies(&fixture.read("q.second", 1).await), ["0"]);
    fixture.send("first", "", [1500, 300, 900, 600].map(|ms| delayed(Value::I32(ms)))).await;
    let seen = fixture.read("q.second", 4).await;
    assert_eq!(bodies(&seen), ["300", "600", "900", "1500"]);
    assert!(seen.iter().all(|message| text(message, "delayed-round").as_deref() == Some("1")), "{seen:?}");
}

/// `delay_order`, `string_delay_header`, `delayed_messages_count`, and a float as JavaScript sends it.
async fn the_order_is_that_of_the_delays(fixture: &Fixture) {
    fixture.send("order", "", [6500, 5300, 6100].map(|ms| delayed(Value::I32(ms)))).await;
    fixture.send("order", "", ["5700"].map(|ms| delayed(Value::from(ms)))).await;
    fixture.send("order", "", [4900.7].map(|ms| delayed(Value::F64(ms)))).await;
    wait_until("5 that wait", async || (fixture.scheduled().await == 5).then_some(())).await;
    assert_eq!(bodies(&fixture.read("q.order", 5).await), ["4900.7", "5300", "5700", "6100", "6500"]);
    assert_eq!(fixture.scheduled().await, 0);
}

async fn any_routing_key_is_taken_as_it_is(fixture: &Fixture) {
    let keys = ["orders/eu/close", "a.*.b", "#", "x.#", "tab\there", "/", "**", ""];
    for key in keys {
        fixture.send("keys", key, [delayed(Value::I32(1))]).await;
    }
    let mut seen: Vec<String> = fixture.read("q.keys", keys.len()).await.into_iter().map(|message| message.destination.address).collect();
    let mut sent = keys.map(str::to_owned);
    seen.sort();
    sent.sort();
    assert_eq!(seen, sent);
}

/// Three with the same `message_id`, body and delay: one by one, so that each meets the one before, alive or over; and at once.
async fn equal_messages_are_each_delivered(fixture: &Fixture) {
    let equal = |ms| with(delayed(Value::I32(ms)), |properties| properties.message_id = Some("same".to_owned()));
    for _ in 0..2 {
        fixture.send("order", "", [equal(1)]).await;
        assert_eq!(bodies(&fixture.read("q.order", 1).await), ["1"]);
    }
    fixture.send("order", "", [equal(800), equal(800), equal(800)]).await;
    let seen = fixture.read("q.order", 3).await;
    let ids: std::collections::BTreeSet<_> = seen.iter().map(|message| text(message, "delayed-id")).collect();
    assert_eq!(ids.len(), 3);
    assert!(seen.iter().all(|message| message.properties.as_ref().unwrap().message_id.as_deref() == Some("same")), "{seen:?}");
}

/// RabbitMQ takes `BCC` off before anybody reads it, so its keys are bound where it is seen: at the exchange that is published to.
async fn hidden_copies_stay_hidden(fixture: &Fixture) {
    let mut message = delayed(Value::I32(300));
    message.headers.push("BCC", Value::List(vec!["audit".into()]));
    fixture.send("hidden", "k", [message, delayed(Value::I32(600))]).await;
    assert_eq!(bodies(&fixture.read("q.hidden", 2).await), ["300", "600"]);
    let [copy] = fixture.read("q.audit", 1).await.try_into().unwrap();
    assert_eq!((&copy.body[..], copy.headers.get("BCC")), (&b"300"[..], None));
}

/// A consumer publishes again what it received, as it was received, and once with a new delay.
async fn a_message_may_come_back(fixture: &Fixture) {
    fixture.send("again", "k", [delayed(Value::I32(1))]).await;
    for round in 1..=3 {
        let [received] = fixture.read("q.again", 1).await.try_into().unwrap();
        let mut again = received;
        if round == 3 {
            again.headers.push("x-delay", Value::I32(200));
        }
        fixture.send("again", "k", [again]).await;
    }
    let [last] = fixture.read("q.again", 1).await.try_into().unwrap();
    assert_eq!((text(&last, "delayed-round").as_deref(), text(&last, "delayed-attempt").as_deref()), (Some("3"), Some("1")), "{last:?}");
}

/// A queue that dead-letters into the delayed exchange, with nobody who reads it: RabbitMQ does not see this cycle.
async fn what_goes_round_for_ever_is_found(fixture: &Fixture) {
    fixture.send("round", "k", [delayed(Value::I32(1))]).await;
    let message = fixture.a_rejected_loop("1").await;
    assert_eq!(text(&message, "delayed-round").as_deref(), Some("64"));
    let deaths = message.headers.get("x-death");
    assert!(matches!(deaths, Some(Value::List(deaths)) if deaths.len() == 1), "{deaths:?}");
}

/// Dwell publishes to the exchange that its queue is bound to, and a second queue reads along.
async fn an_exchange_that_leads_back_at_once_is_found_at_once(fixture: &Fixture) {
    fixture.send("self", "k", [delayed(Value::I32(7))]).await;
    let message = fixture.a_rejected_loop("7").await;
    assert_eq!(text(&message, "delayed-round"), None);
    // What was sent, and what Dwell made of it.
    let seen = fixture.read("q.self", 2).await;
    assert_eq!(seen.iter().filter(|message| text(message, "delayed-attempt").is_some()).count(), 1, "{seen:?}");
}

/// `expiration` counts from the delivery, however long the request waits to be read; and a queue of its own keeps it.
async fn the_time_to_live_begins_after_the_delay(fixture: &mut Fixture) {
    fixture.dwell.stop().await.unwrap();
    let message = with(delayed(Value::I32(700)), |properties| properties.expiration = Some("300".to_owned()));
    fixture.send("order", "", [message.with_header("tag", "kept")]).await;
    wait_until("a request that expired", async || (fixture.ready("delay.order").await == 0).then_some(())).await;
    fixture.restart_dwell().await;
    let [seen] = fixture.read("q.order", 1).await.try_into().unwrap();
    assert_eq!((&seen.body[..], text(&seen, "tag").as_deref()), (&b"700"[..], Some("kept")));
    assert_eq!(seen.properties.as_ref().unwrap().expiration.as_deref(), Some("300"));
    assert!(seen.headers.iter().all(|header| !header.name.starts_with("x-")), "{:?}", seen.headers);
}

/// What was stored, given back and then expired bears no mark of its first delivery: to Dwell it is as the same message once more.
async fn a_copy_that_expired_is_known(fixture: &mut Fixture) {
    let request = with(delayed(Value::I32(1)).with_header("delay-id", "copy"), |properties| {
        (properties.message_id, properties.expiration) = (Some("copy".to_owned()), Some("2000".to_owned()));
    });
    fixture.send("order", "", [request.clone()]).await;
    assert_eq!(bodies(&fixture.read("q.order", 1).await), ["1"]);
    fixture.dwell.stop().await.unwrap();
    fixture.send("order", "", [request]).await;
    wait_until("the copy expired", async || (fixture.ready("delay.order.expired").await == 1).then_some(())).await;
    fixture.send("order", "", [delayed(Value::I32(50))]).await;
    fixture.restart_dwell().await;
    assert_eq!(bodies(&fixture.read("q.order", 1).await), ["50"]);
}

/// Not there: 69, as any destination that is missing. Not in `allow`: 78. Before a request is taken.
async fn an_exchange_that_takes_no_messages_is_told(fixture: &Fixture) {
    let file = fixture.dwell.dir().join("other.toml");
    for (exchange, code, said) in [
        ("order.due", 0, "\"ok\":true"),
        ("missing.due", 69, "there is no exchange `missing.due`, which ingest.order.exchange names"),
        ("other.due", 78, "no pattern of brokers.main.allow matches the exchange `other.due`"),
    ] {
        let settings = fixture.settings.replace("exchange = \"order.due\"", &format!("exchange = \"{exchange}\""));
        std::fs::write(&file, settings.replace("\"order.due/**\"", "\"order.due/**\", \"missing.due/**\"")).unwrap();
        let commands: &[&[&str]] = if code == 0 { &[&["check"]] } else { &[&["check"], &["run", "--wait", "0s"]] };
        for command in commands {
            let mut dwell = tokio::process::Command::new(program());
            dwell.args(*command).args(["--set", "probes.listen=127.0.0.1:0", "--set", "http.listen=127.0.0.1:0", "-o", "json", "-c"]);
            let output = dwell.arg(&file).kill_on_drop(true).output().await.unwrap();
            let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(code), "{command:?}: {all}");
            assert!(all.contains(said), "{command:?}: {all}");
        }
    }
}

/// Not there: 69, as a topic that is missing. With `declare` it is made.
async fn an_expired_queue_that_is_missing_is_told(fixture: &Fixture) {
    let file = fixture.dwell.dir().join("expired.toml");
    let of_hidden = "[ingest.hidden]\nbroker = \"main\"\n";
    for (more, command, code, said) in [
        ("expired_queue = \"gone\"\n", "check", 69, "there is no queue `gone`, which `expired_queue` names"),
        ("expired_queue = \"gone\"\n", "run", 69, "there is no queue `gone`, which `expired_queue` names"),
        ("expired_queue = \"gone\"\ndeclare = true\n", "check", 0, "`delay.hidden` or `gone` would be made (declare)"),
        ("expired_queue = \"delay.audit\"\n", "check", 78, "ingest.audit reads `delay.audit` too"),
    ] {
        std::fs::write(&file, fixture.settings.replace(of_hidden, &format!("{of_hidden}{more}"))).unwrap();
        let mut dwell = tokio::process::Command::new(program());
        dwell.args([command, "--set", "probes.listen=127.0.0.1:0", "--set", "http.listen=127.0.0.1:0", "-o", "json", "-c"]).arg(&file);
        let wait: &[&str] = if command == "run" { &["--wait", "0s"] } else { &[] };
        let output = dwell.args(wait).kill_on_drop(true).output().await.unwrap();
        let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{command} {more}: {all}");
        assert!(all.contains(said), "{command} {more}: {all}");
    }
}

/// `node_restart_before_delay_expires`, `node_restart_after_delay_expires`.
async fn a_restart_of_the_broker_loses_nothing(fixture: &mut Fixture) {
    fixture.send("order", "", [1000, 25_000].map(|ms| delayed(Value::I32(ms)))).await;
    wait_until("the first is due", async || (fixture.ready("q.order").await == 1).then_some(())).await;
    fixture.rabbit.stop().await.unwrap();
    fixture.rabbit.restart().await.unwrap();
    assert_eq!(bodies(&fixture.read("q.order", 2).await), ["1000", "25000"]);
}

/// The page says so.
#[test]
fn the_page_names_each_case_of_the_suite() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explanation/peers.md")).unwrap();
    for case in [
        "wrong_exchange_argument_type",
        "exchange_argument_type_not_self",
        "routing_topic",
        "routing_direct",
        "routing_fanout",
        "e2e_nodelay",
        "e2e_delay",
        "delay_order",
        "delayed_messages_count",
        "node_restart_before_delay_expires",
        "node_restart_after_delay_expires",
        "no_message_for_index",
        "string_delay_header",
        "fine_stats",
    ] {
        assert!(page.contains(case), "{case}");
    }
}
