//! The rules for values and their combinations.

use super::*;

/// One broken rule per line: the text, the reported setting, and a part of the message or hint.
#[test]
fn every_rule_is_kept() {
    let other = |kind: &str, place: &str, ingest: &str| {
        format!(
            "[brokers.o]\ntype = \"{kind}\"\n{place}\nallow = []\n[ingest.z]\nbroker = \"o\"\n{ingest}"
        )
    };
    for (text, key, part) in [
        ("[redis]\nbuckets = 0", "redis.buckets", "from 1 to 1024"),
        ("[redis]\nbuckets = 1025", "redis.buckets", "from 1 to 1024"),
        ("[redis]\nbuckets = -1", "redis.buckets", "from 1 to 1024"),
        ("[redis]\nbuckets = 1.5", "redis.buckets", "a fraction"),
        ("[redis]\nbuckets = \"16\"", "redis.buckets", "without quotes"),
        ("[redis]\nnamespace = \"\"", "redis.namespace", "empty"),
        ("[redis]\nnamespace = \"a{b}\"", "redis.namespace", "brace"),
        ("[redis]\nnamespace = \"a\\u0007\"", "redis.namespace", "control"),
        ("[redis]\nurls = []", "redis.urls", "no URL"),
        ("[redis]\nurls = [\"http://h\"]", "redis.urls", "`http` is not a Redis scheme"),
        ("[redis]\nurls = [\"h:6379\"]", "redis.urls", "not a URL"),
        ("[redis]\nurls = [\"redis://:6379\"]", "redis.urls", "no host"),
        ("[redis]\nurls = [\"redis://h:port\"]", "redis.urls", "port"),
        ("[redis]\nurls = [\"redis://h:6379/abc\"]", "redis.urls", "number of a database"),
        ("[redis]\nurls = [\"redis://h/0/1?x=1\"]", "redis.urls", "number of a database"),
        ("[redis]\nurls = [\"redis://h\", \"redis://i\"]", "redis.urls", "takes one URL"),
        ("[redis]\nmode = \"cluster\"\nurls = [\"redis://h\", \"redis://h\"]", "redis.urls", "is repeated"),
        ("[redis]\nmode = \"sentinel\"\nmaster = \"\"", "redis.master", "empty"),
        ("[redis]\nurls_file = \"/nowhere/urls\"", "redis.urls_file", "no such file"),
        ("[redis]\ndurability = \"disk\"", "redis.durability", "\"fsync+replica\""),
        ("[brokers.\"a b\"]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []", "brokers.a b", "name cannot be used"),
        ("[brokers.b]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = [\"\"]", "brokers.b.allow", "empty"),
        ("[brokers.b]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = [\"orders\"]", "brokers.b.allow", "has no `/`"),
        ("[brokers.b]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = [\"a..b\"]", "brokers.b.allow", "empty token"),
        ("[brokers.b]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = [\"x.>.y\"]", "brokers.b.allow", "after `>`"),
        ("[brokers.b]\ntype = \"nats\"\nurl = \"nats://h\"", "brokers.b.allow", "missing"),
        ("[brokers.b]\ntype = \"nats\"\nallow = []", "brokers.b", "url"),
        ("[brokers.b]\nallow = []", "brokers.b.type", "missing"),
        ("[brokers.\"a.b\"]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []", "brokers.a.b", "name cannot be used"),
        ("[ingest.z]\nbroker = \"main\"", "ingest.z.topic", "reads the same topic"),
        ("[ingest.z]\nbroker = \"gone\"\ntopic = \"b\"", "ingest.z.broker", "no broker \"gone\""),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"\"", "ingest.z.topic", "empty"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ngroup = \" \"", "ingest.z.group", "empty"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nrejected = \"\"", "ingest.z.rejected", "empty"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nrejected = \"b\"", "ingest.z.rejected", "for ever"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ntarget = \"b\"", "ingest.z.target", "for ever"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ntarget = \"a.*\"", "ingest.z.target", "nothing may be published to"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nexchange = \"x\"", "ingest.z.exchange", "has no exchanges"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nid_from = \"key\"", "ingest.z.id_from", "have no key"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nid_from = \"keys\"", "ingest.z.id_from", "did you mean \"key\"?"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ndeclare = 1", "ingest.z.declare", "true or false"),
        ("[ingest.Z]\nbroker = \"main\"\ntopic = \"b\"", "ingest.Z", "name cannot be used"),
        ("[delivery]\nttr = \"0\"", "delivery.ttr", "too small"),
        ("[delivery]\nttr = \"13h\"", "delivery.ttr", "limits.max_ttr"),
        ("[delivery]\nttr = 30", "delivery.ttr", "in quotes"),
        ("[delivery]\npublish_timeout = \"99ms\"", "delivery.publish_timeout", "too small"),
        ("[delivery]\npublish_timeout = \"11m\"", "delivery.publish_timeout", "too large"),
        ("[delivery]\nretry = [\"2m\", \"later\"]", "delivery.retry", "later"),
        ("[limits]\nmax_retries = 6", "delivery.retry", "limits.max_retries is 6"),
        ("[limits]\nmax_rounds = -1", "limits.max_rounds", "from 0 to 1000000000"),
        ("[limits]\nmax_retries = 1001", "limits.max_retries", "from 0 to 1000"),
        ("[delivery]\nmax_late = \"1 month\"", "delivery.max_late", "1 month"),
        ("[delivery]\ndead = \"delay.in\"", "delivery.dead", "for ever"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"z.>\"\nrejected = \"z.bad\"", "ingest.z.rejected", "ingest.z (`z.>`)"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"z.*\"\ntarget = \"z.orders\"", "ingest.z.target", "ingest.z (`z.*`)"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"z\"\nrejected = \"delay.in\"", "ingest.z.rejected", "by ingest.main"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"*.dead\"", "delivery.dead", "by ingest.z (`*.dead`)"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nstart = \"newest\"", "ingest.z.start", "write earliest, latest or a time"),
        (other("amqp", "url = \"amqp://h\"", "start = \"latest\"").as_str(), "ingest.z.start", "a queue has no log"),
        (
            other("kafka", "bootstrap = \"h:9092\"", "start = \"latest\"\n[ingest.y]\nbroker = \"o\"\ntopic = \"b\"").as_str(),
            "ingest.z.start",
            "ingest.y has the same group `dwell`",
        ),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nmax_age = \"0\"", "ingest.z.max_age", "too small"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ndue_header = \"Delay-Until\"", "ingest.z.due_header", "by itself"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nexpire_header = \"Delay-Expire\"", "ingest.z.expire_header", "by itself"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ndue_header = \"X-Delay\"", "ingest.z.due_header", "by itself"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ndue_header = \"eta: \"", "ingest.z.due_header", "no header has this name"),
        (other("kafka", "bootstrap = \"h\"", "topic = \"^delay.*\"").as_str(), "ingest.z.topic", "cannot be read: `^delay.*` is a pattern"),
        (other("amqp", "url = \"amqp://h\"", "rejected = \"/delay.in\"").as_str(), "ingest.z.rejected", "for ever"),
        (
            "[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nexpired_queue = \"x\"",
            "ingest.z.expired_queue",
            "cannot dead-letter expired messages",
        ),
        (other("kafka", "bootstrap = \"h\"", "expired_queue = \"x\"").as_str(), "ingest.z.expired_queue", "of type \"kafka\""),
        (other("amqp", "url = \"amqp://h\"", "expired_queue = \"x \"").as_str(), "ingest.z.expired_queue", "white space"),
        (
            other("amqp", "url = \"amqp://h\"", "expired_queue = \"delay.in\"").as_str(),
            "ingest.z.expired_queue",
            "this ingest reads `delay.in` too",
        ),
        (other("amqp", "url = \"amqp://h\"", "expired_queue = \"x\"\nrejected = \"x\"").as_str(), "ingest.z.rejected", "ingest.z (`x`)"),
        (
            other("amqp", "url = \"amqp://h\"", "declare = true\ntarget = \"delay.in.expired\"").as_str(),
            "ingest.z.target",
            "(`delay.in.expired`)",
        ),
        (
            other("amqp", "url = \"amqp://h\"", "expired_queue = \"x\"\n[ingest.zz]\nbroker = \"o\"\ntopic = \"b\"\nexpired_queue = \"x\"")
                .as_str(),
            "ingest.zz.expired_queue",
            "ingest.z reads `x` too",
        ),
        (
            other("amqp", "url = \"amqp://h\"", "declare = true\n[ingest.zz]\nbroker = \"o\"\ntopic = \"delay.in.expired\"").as_str(),
            "ingest.zz.topic",
            "ingest.z reads the same queue (`expired_queue`)",
        ),
        (
            other("amqp", "url = \"amqp://h\"", "topic = \"b\"\n[ingest.zz]\nbroker = \"o\"\nexpired_queue = \"b\"").as_str(),
            "ingest.zz.expired_queue",
            "ingest.z reads `b` too",
        ),
        ("[events]\nbroker = \"gone\"", "events.broker", "no broker \"gone\""),
        ("[events]\nbroker = \"mian\"", "events.broker", "did you mean \"main\"?"),
        ("[events]\nbroker = \"main\"\nto = \"\"", "events.to", "empty"),
        ("[events]\nbroker = \"main\"\nto = \"audit.>\"", "events.to", "nothing may be published to"),
        ("[events]\nbroker = \"main\"\nto = \"delay.in\"", "events.to", "for ever"),
        (
            "[ingest.z]\nbroker = \"main\"\ntopic = \"audit.*\"\n[events]\nbroker = \"main\"\nto = \"audit.jobs\"",
            "events.to",
            "ingest.z (`audit.*`)",
        ),
        (
            "[brokers.o]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = []\n[events]\nbroker = \"o\"\nto = \"amq.topic/x\"",
            "events.to",
            "nothing may be published to",
        ),
        ("[events]\nof = [\"dead\", \"canceled\"]", "events.of", "did you mean \"cancelled\"?"),
        ("[delivery]\ndead = \"dead.*\"", "delivery.dead", "nothing may be published to"),
        ("[delivery]\ndedupe_window = \"0\"", "delivery.dedupe_window", "too small"),
        ("[delivery]\nmax_in_flight = 0", "delivery.max_in_flight", "from 1"),
        ("[delivery]\nmax_in_flight_bytes = \"1kB\"", "delivery.max_in_flight_bytes", "limits.max_body"),
        ("[limits]\nmax_delay = \"0\"", "limits.max_delay", "too small"),
        ("[limits]\nmax_delay = \"101y\"", "limits.max_delay", "101y"),
        ("[limits]\nmax_body = \"1GiB\"", "limits.max_body", "too large"),
        ("[limits]\nmax_ttr = \"50d\"", "limits.max_ttr", "too large"),
        ("[limits]\nmax_inbound_bytes = \"1000kB\"", "limits.max_inbound_bytes", "limits.max_body"),
        ("[limits]\nmax_inbound_bytes = \"2GiB\"", "limits.max_inbound_bytes", "too large"),
        ("[limits]\nmax_inbound_bytes = \" \"", "limits.max_inbound_bytes", "is not a size"),
        ("[limits]\nmax_inbound_bytes = \"\\u00a0\"", "limits.max_inbound_bytes", "is not a size"),
        ("[http]\nlisten = \"0.0.0.0:7464\"", "http.listen", "no token"),
        ("[http]\nlisten = \"7464\"", "http.listen", "IP address"),
        ("[http]\ntoken_file = \"/nowhere/token\"", "http.token_file", "no such file"),
        ("[probes]\nlisten = \"localhost\"", "probes.listen", "IP address"),
        ("[probes]\nlisten = \"127.0.0.1:7464\"", "probes.listen", "same address"),
        ("[shutdown]\ndrain = \"2h\"", "shutdown.drain", "too large"),
    ] {
        let problem = Given::least(text).problem();
        assert_eq!(problem.key, key, "{text}: {problem}");
        assert!(problem.to_string().contains(part), "{text}: {problem}");
        assert!(!problem.hint.is_empty() || key == "brokers.b", "{text}: {problem}");
    }
}

#[test]
fn what_is_unusual_and_right_is_taken() {
    for text in [
        "[redis]\nmode = \"sentinel\"\nurls = [\"redis://a:26379\", \"rediss://me:hush@[::1]:26379/3\"]",
        "[redis]\nmode = \"cluster\"\nurls = [\"redis://a\", \"redis://b\"]\ndurability = \"fsync+replica\"",
        "[http]\nlisten = \"[::1]:0\"",
        "[limits]\nmax_body = \"100MiB\"\n[delivery]\nmax_in_flight_bytes = \"100MiB\"",
        "[delivery]\nretry = []\ndead = \"\"\nmax_late = \"PT15M\"",
        "[delivery]\nmax_late = \" \"",
        "[limits]\nmax_inbound_bytes = \"\"",
        "[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nstart = \"2026-01-31T12:00:00+01:00\"\nmax_age = \"2d\"",
        "[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nmax_age = \"\\u00a0\"",
        // A broker's name and kinds alone; and an exchange with a key.
        "[events]\nbroker = \"main\"\nof = [\"dead\"]",
        "[brokers.o]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = []\n[events]\nbroker = \"o\"\nto = \"audit/jobs\"",
        "[events]\nto = \"audit.>\"",
        "[brokers.dead_end-2]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []",
    ] {
        Given::least(text).settings();
    }
}

#[test]
fn only_declare_gives_the_expired_queue_a_name() {
    let of = |ingest: &str| {
        let text = format!(
            "[brokers.o]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = []\n[ingest.z]\nbroker = \"o\"\n{ingest}"
        );
        (*Given::least(&text).settings().ingest["z"].expired_queue).clone()
    };
    assert_eq!(of(""), None);
    assert_eq!(of("expired_queue = \"late\"").as_deref(), Some("late"));
    assert_eq!(of("declare = true\ntopic = \"in\"").as_deref(), Some("in.expired"));
    assert_eq!(of("declare = true\nexpired_queue = \"late\"").as_deref(), Some("late"));
    assert_eq!(
        *Given::least("").set("ingest.main.declare", "true").settings().ingest["main"]
            .expired_queue,
        None
    );
    // Without `expired_queue` this queue belongs to others.
    of("rejected = \"delay.in.expired\"");
    let text = "[brokers.o]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = []\n[ingest.z]\nbroker = \"o\"\nexpired_queue = \"late\"";
    let rules = crate::request::RequestRules::direct(&Given::least(text).settings());
    let reads = |queue: &str| rules.brokers["o"].reads(&dwell_connectors::Destination::new(queue));
    assert_eq!([reads("delay.in"), reads("late"), reads("delay.in.expired")], [true, true, false]);
}

#[test]
fn an_exchange_that_no_request_may_reach_is_a_mistake() {
    let with = |exchange: &str| {
        Given::least(&format!(
            "[brokers.rabbit]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = [\"/orders\", \"shop*/**\", \"amq.topic/*\"]\n\
             [ingest.z]\nbroker = \"rabbit\"\ntopic = \"b\"\nexchange = \"{exchange}\""
        ))
    };
    for exchange in ["", "shop.due"] {
        with(exchange).settings();
    }
    // With a default target, the exchange needs no match in `allow`.
    with("other").set("ingest.z.target", "orders").settings();
    for (exchange, part) in [
        ("other", "no pattern of brokers.rabbit.allow matches the exchange `other`"),
        ("amq.topic", "nothing may be published to"),
    ] {
        let problem = with(exchange).problem();
        assert_eq!(problem.key, "ingest.z.exchange", "{problem}");
        assert!(problem.to_string().contains(part), "{problem}");
    }
}

#[test]
fn properties_of_kafka_have_any_names_and_some_are_refused() {
    let with = |properties: &str| {
        format!(
            "[redis]\nurls = [\"redis://127.0.0.1:6379\"]\n[brokers.main]\ntype = \"kafka\"\nbootstrap = \"127.0.0.1:9092\"\nallow = [\"*\"]\n\
             properties = {properties}\n[ingest.main]\nbroker = \"main\"\n"
        )
    };
    Given::file(&with("{ \"linger.ms\" = 2, \"check.crcs\" = true, sasl.username = \"u\" }"))
        .settings();
    let problems =
        format!("{:?}", Given::file(&with("{ acks = 0, no.such = \"x\" }")).load().unwrap_err());
    assert!(
        problems.contains("`acks` cannot be set") && problems.contains("`no.such` is no property"),
        "{problems}"
    );
}

#[test]
#[cfg(feature = "http")]
fn no_url_gets_events() {
    let text = "[brokers.web]\ntype = \"http\"\nallow = [\"https://app.internal/*\"]\n[events]\nbroker = \"web\"\nto = \"https://app.internal/a\"";
    let problem = Given::least(text).problem();
    assert_eq!(problem.key, "events.broker", "{problem}");
    assert!(problem.to_string().contains("of type \"http\" gets no events"), "{problem}");
}
