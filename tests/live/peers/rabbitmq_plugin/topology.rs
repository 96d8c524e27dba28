//! The exchanges and queues of the suite in RabbitMQ, and the settings that lead Dwell to them.

use serde_json::json;

/// The delayed exchanges, each with the type that `x-delayed-type` named, its queue and the keys by
/// which that is bound.
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

/// The topology before Dwell, in RabbitMQ's own form.
pub(super) fn definitions() -> String {
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
            // A message that nobody reads at once comes back to the delayed exchange.
            let letters = json!({"x-dead-letter-exchange": name, "x-message-ttl": 1});
            queues.push(queue(own, if name == "round" { letters } else { json!({}) }));
        }
        bindings.extend(keys.iter().map(|key| bind(&due, "queue", own, key)));
    }
    bindings.push(bind("first.due", "exchange", "second", ""));
    // As the page has it for producers that choose who gets a hidden copy.
    exchanges.extend([exchange("hidden", "topic"), exchange("hidden.due", "direct")]);
    queues.extend(
        ["delay.hidden", "delay.audit", "q.hidden", "q.audit"].map(|name| queue(name, json!({}))),
    );
    bindings.extend([
        bind("hidden", "queue", "delay.hidden", "#"),
        bind("hidden", "queue", "delay.audit", "audit"),
    ]);
    bindings.push(bind("hidden.due", "queue", "q.hidden", "k"));
    exchanges.push(exchange("self", "direct"));
    queues.extend(["delay.self", "q.self"].map(|name| queue(name, json!({}))));
    bindings.extend(["delay.self", "q.self"].map(|name| bind("self", "queue", name, "k")));
    json!({"exchanges": exchanges, "queues": queues, "bindings": bindings}).to_string()
}

pub(super) fn settings(rabbit: &str, redis: &str) -> String {
    let names = EXCHANGES.iter().map(|(name, ..)| *name).chain(["hidden"]);
    let allow: Vec<String> =
        names.map(|name| format!("\"{name}.due/**\"")).chain(["\"self/**\"".to_owned()]).collect();
    let mut text = format!(
        "[redis]\nurls = [\"{redis}\"]\n[delivery]\nretry = []\n[brokers.main]\ntype = \"amqp\"\nurl = \"{rabbit}\"\nallow = [{}]\n",
        allow.join(", ")
    );
    for (name, ..) in EXCHANGES {
        text += &format!(
            "[ingest.{name}]\nbroker = \"main\"\ntopic = \"delay.{name}\"\nexchange = \"{name}.due\"\n"
        );
        text += "missing_delay = \"immediate\"\ndeclare = true\n";
    }
    text += "[ingest.hidden]\nbroker = \"main\"\ntopic = \"delay.hidden\"\nexchange = \"hidden.due\"\nmissing_delay = \"immediate\"\n";
    text += "[ingest.self]\nbroker = \"main\"\ntopic = \"delay.self\"\nexchange = \"self\"\nmissing_delay = \"immediate\"\n";
    text += "[ingest.audit]\nbroker = \"main\"\ntopic = \"delay.audit\"\ntarget = \"q.audit\"\nmissing_delay = \"immediate\"\n";
    text
}
