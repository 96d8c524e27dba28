//! Queues: their defaults, names and mistakes.

use super::*;
use crate::job::OnTimeout;
use crate::policy::limit::Rate;

#[test]
fn queues_alone_are_enough() {
    let settings = Given::file("[queues.emails]").settings();
    assert!(
        settings.brokers.is_empty() && settings.ingest.is_empty() && !settings.queues.is_empty()
    );
    let rules = settings.queue("emails").unwrap();
    assert_eq!(
        (rules.name.as_str(), rules.ttr.ms(), rules.on_timeout),
        ("emails", 30_000, OnTimeout::Ready)
    );
    assert_eq!(
        (rules.retry_ms(), rules.max_jobs(), rules.dead_retention.ms()),
        (settings.delivery.retry.as_slice(), None, 14 * 86_400_000)
    );
    assert!(settings.queue("email").is_none());
    let env = [("DWELL_QUEUES__EMAILS__TTR".to_owned(), "5s".to_owned())];
    assert_eq!(
        load_from(None, &env, &Overrides::default()).unwrap().queue("emails").unwrap().ttr.ms(),
        5_000
    );
}

#[test]
fn a_queue_has_rules_of_its_own() {
    let text = "[delivery]\nretry = [\"1s\"]\n[queues.\"orders.*\"]\nttr = \"1m\"\nretry = []\non_timeout = \"retry\"\nmax_jobs = 7\n\
                dead_retention = \"0\"\n[queues.\"orders.eu\"]";
    let settings = Given::least(text).set("queues.\"orders.eu\".ttr", "2s").settings();
    let orders = settings.queue("orders.us").unwrap();
    assert_eq!(
        (orders.name.as_str(), orders.ttr.ms(), orders.on_timeout),
        ("orders.*", 60_000, OnTimeout::Retry)
    );
    assert_eq!(
        (orders.retry_ms().len(), orders.max_jobs(), orders.dead_retention.ms()),
        (0, Some(7), 0)
    );
    let eu = settings.queue("orders.eu").unwrap();
    assert_eq!((eu.name.as_str(), eu.ttr.ms(), eu.retry_ms()), ("orders.eu", 2_000, &[1_000][..]));
}

#[test]
fn a_queue_may_have_a_rate() {
    let settings = Given::file("[queues.a]\nrate = \"30/m\"\nburst = 5\n[queues.b]").settings();
    let limit = |name: &str| settings.queue(name).unwrap().limit();
    assert_eq!((limit("a"), limit("b")), (Some(Rate::new(30, 60_000_000, Some(5))), None));
}

#[test]
fn each_mistake_of_a_queue_is_told() {
    for (text, key, part) in [
        ("[queues.\"a b\"]", "queues.\"a b\"", "cannot be used"),
        ("[queues.\"\"]", "queues.\"\"", "cannot be used"),
        (
            &format!("[queues.{}]", "a".repeat(256)),
            &format!("queues.{}", "a".repeat(256)),
            "1 to 255",
        ),
        ("[queues.\"a.*\"]\nttr = \"0\"", "queues.\"a.*\".ttr", "too small"),
        ("[queues.a]\nttr = \"13h\"", "queues.a.ttr", "limits.max_ttr"),
        ("[queues.a]\nretry = [\"later\"]", "queues.a.retry", "later"),
        (
            "[limits]\nmax_retries = 7\n[queues.a]\nretry = [\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"]",
            "queues.a.retry",
            "8 steps",
        ),
        ("[queues.a]\non_timeout = \"redy\"", "queues.a.on_timeout", "did you mean \"ready\"?"),
        ("[queues.a]\nmax_jobs = -1", "queues.a.max_jobs", "a number from 0"),
        ("[queues.a]\ndead_retention = \"101y\"", "queues.a.dead_retention", "101y"),
        ("[queues.\"a.b\"]\nrate = \"1\"", "queues.\"a.b\".rate", "no unit"),
        ("[queues.a]\nburst = 5", "queues.a.burst", "needs a rate"),
        ("[queues.a]\nrate = \"1/s\"\nburst = 0", "queues.a.burst", "from 1"),
        ("[queues.a]\nin_flight = 0", "queues.a.in_flight", "from 1"),
        ("[queues.a]\nin_flight = 5\nburst = 5", "queues.a.burst", "needs a rate"),
        (
            "[queues.\"a.*\"]\n[queues.\"*.b\"]",
            "queues.\"a.*\"",
            "queues.\"*.b\" has as many characters",
        ),
        (
            "[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ndeliver_to = \"queue\"",
            "ingest.z.deliver_to",
            "format is \"headers\"",
        ),
        (
            "[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nformat = \"envelope\"\ndeliver_to = \"queue\"",
            "ingest.z.deliver_to",
            "there is no queue",
        ),
    ] {
        let problem = Given::least(text).problem();
        assert_eq!(problem.key, key, "{text}: {problem}");
        assert!(problem.to_string().contains(part), "{text}: {problem}");
        assert!(
            !problem.hint.is_empty() && problem.source.starts_with("dwell.toml:"),
            "{text}: {problem}"
        );
    }
    let text = "[limits]\nmax_retries = 1\n[delivery]\nretry = []\n[queues.a]\nretry = [\"later\", \"1m\"]";
    let problems = Given::least(text).problems();
    assert!(
        problems.len() == 2
            && problems.iter().all(|problem| problem.key == "queues.a.retry")
            && problems[0].message.contains("later")
            && problems[1].message.contains("2 steps"),
        "{problems:#?}"
    );
    let problem = Given::file("[queues.a]\n[ingest.z]\nbroker = \"main\"").problem();
    assert_eq!(
        (problem.key.as_str(), problem.hint.as_str()),
        ("ingest.z.broker", "add [brokers.main]")
    );
}

#[test]
fn an_envelope_may_name_queues() {
    let ingest = "[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nformat = \"envelope\"\ndeliver_to = \"queue\"\n[queues.\"*\"]";
    let settings = Given::least(ingest).settings();
    let of = |name: &str| settings.ingest[name].deliver_to;
    assert_eq!((of("z"), of("main")), (DeliverTo::Queue, DeliverTo::Target));
}
