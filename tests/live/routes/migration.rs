//! docs/how-to/migrate-from-rabbitmq-plugin.md, run as it is written: its files, its commands, and
//! a producer that changes nothing.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_testkit::servers::{
    BrokerKind, DwellServer, RabbitOptions, RabbitServer, RedisOptions, RedisServer, find,
};
use serde_json::{Value, json};
use tokio::process::Command;

use super::clients::client;
use super::environment::program;
use super::files;

/// The topology before: the plugin's exchange, but of an ordinary type, because no RabbitMQ has the
/// plugin any more.
const BEFORE: &str = r#"{
  "exchanges": [{"name": "my-exchange", "vhost": "/", "type": "direct", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}],
  "queues": [{"name": "orders", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}}],
  "bindings": [{"source": "my-exchange", "vhost": "/", "destination": "orders", "destination_type": "queue", "routing_key": "order.close", "arguments": {}}]
}"#;

/// The blocks of this language on the page, in order, without the indent of the list that they
/// stand in.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        let bare = line.strip_prefix("   ").unwrap_or(line);
        match &mut block {
            None if bare == fence => block = Some(String::new()),
            Some(text) if bare == "```" => blocks.push(std::mem::take(text)),
            Some(text) => *text += &format!("{bare}\n"),
            None => {}
        }
        if bare == "```" {
            block = None;
        }
    }
    blocks
}

/// Runs commands as a shell does, in this folder, with the tools of this server.
async fn shell(rabbit: &RabbitServer, folder: &Path, commands: &str) {
    let tools = find::rabbitmq_server().unwrap().parent().unwrap().display().to_string();
    let path = format!("{tools}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell
        .arg("-ec")
        .arg(commands)
        .current_dir(folder)
        .envs(rabbit.tools_environment())
        .env("PATH", path)
        .kill_on_drop(true);
    let output = shell.output().await.unwrap();
    assert!(
        output.status.success(),
        "{commands}{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Imports a file of definitions from this folder. RabbitMQ listens a moment before its tools may
/// change anything.
pub(crate) async fn import(rabbit: &RabbitServer, folder: &Path, file: &str) {
    shell(
        rabbit,
        folder,
        &format!("rabbitmqctl await_startup; rabbitmqctl import_definitions {file}"),
    )
    .await;
}

#[tokio::test]
async fn producers_and_consumers_of_the_plugin_change_nothing() {
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/how-to/migrate-from-rabbitmq-plugin.md"),
    )
    .unwrap();
    let (commands, definitions) = (blocks(&page, "sh"), blocks(&page, "json"));
    assert_eq!(
        (commands.len(), definitions.len()),
        (5, 3),
        "the page has other steps than this test"
    );
    let [seen, second, held, changed, back] = commands.try_into().unwrap();
    let (rabbit, redis) = tokio::join!(
        RabbitServer::start(RabbitOptions::default()),
        RedisServer::start(RedisOptions::default())
    );
    let (rabbit, redis) = (rabbit.unwrap(), redis.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let [due, fanout, direct] = definitions.try_into().unwrap();
    let direct =
        direct.replace("x-delayed-message", "direct").replace("\"x-delayed-type\": \"direct\"", "");
    for (name, text) in [
        ("standing.json", BEFORE),
        ("due.json", &due),
        ("fanout.json", &fanout),
        ("back.json", &direct),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    import(&rabbit, folder.path(), "standing.json").await;

    shell(&rabbit, folder.path(), &seen).await;
    shell(&rabbit, folder.path(), &second).await;
    let settings = files::settings("rabbitmq-plugin", &redis.url(), |_| rabbit.url());
    let mut dwell = DwellServer::start(program(), &settings).await.unwrap();
    // Nothing is held where there is no plugin.
    shell(
        &rabbit,
        folder.path(),
        &format!("test '[]' = \"$({})\"", held.trim().replace("rabbitmqctl", "rabbitmqctl -q")),
    )
    .await;
    shell(&rabbit, folder.path(), &changed).await;

    // With a delay, without one, and with one below zero.
    let message = |body: &str, headers: Value| json!({"to": "my-exchange/order.close", "headers": headers, "body_base64": STANDARD.encode(body)});
    let requests = [
        message("late", json!([["x-delay", 1500], ["tag", "kept"]])),
        message("soon", json!([["x-delay", 300]])),
        message("now", json!([])),
        message("past", json!([["x-delay", -5]])),
    ];
    client(BrokerKind::Amqp, &["send", &rabbit.url()], &requests).await;
    let seen = client(BrokerKind::Amqp, &["read", &rabbit.url(), "orders", "4", "30"], &[]).await;
    let bodies: Vec<Vec<u8>> = seen
        .iter()
        .map(|line| STANDARD.decode(line["body_base64"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(bodies[2..], [b"soon".to_vec(), b"late".to_vec()], "{seen:?}");
    assert!(
        bodies[..2].contains(&b"now".to_vec()) && bodies[..2].contains(&b"past".to_vec()),
        "{seen:?}"
    );
    assert!(seen.iter().all(|line| line["from"] == "my-exchange.due/order.close"), "{seen:?}");
    let names: Vec<&str> = seen[3]["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| pair[0].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"tag") && names.contains(&"delayed-id") && !names.contains(&"x-delay"),
        "{names:?}"
    );

    // The way back: the exchange takes what is new, and Dwell delivers what it has.
    client(
        BrokerKind::Amqp,
        &["send", &rabbit.url()],
        &[message("held", json!([["x-delay", 5_000]]))],
    )
    .await;
    shell(&rabbit, folder.path(), &back).await;
    client(BrokerKind::Amqp, &["send", &rabbit.url()], &[message("new", json!([]))]).await;
    let seen = client(BrokerKind::Amqp, &["read", &rabbit.url(), "orders", "2", "60"], &[]).await;
    let mut from: Vec<&str> = seen.iter().map(|line| line["from"].as_str().unwrap()).collect();
    from.sort_unstable();
    assert_eq!(from, ["my-exchange.due/order.close", "my-exchange/order.close"], "{seen:?}");
    dwell.stop().await.unwrap();

    // Several exchanges, as the page has them.
    let several = format!("[redis]\nurls = [\"{}\"]\n{}", redis.url(), blocks(&page, "toml")[0]);
    std::fs::write(folder.path().join("several.toml"), several).unwrap();
    let mut check = Command::new(program());
    let said = check
        .args(["check", "--offline", "-c"])
        .arg(folder.path().join("several.toml"))
        .output()
        .await
        .unwrap();
    assert!(said.status.success(), "{said:?}");
}
