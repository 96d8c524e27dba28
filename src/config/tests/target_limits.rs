//! Limits of targets: their rates, which of them applies, and their mistakes.

use super::*;
use crate::policy::limit::Rate;

fn limited(text: &str) -> Given {
    Given::least(text)
}

#[test]
fn a_target_has_a_rate_a_burst_and_a_number_that_may_be_out() {
    let text = "[brokers.main.limits.\"orders.sms\"]\nrate = \"100/s\"\n[brokers.main.limits.\"orders.*\"]\nrate = \"30/m\"\nburst = 5\n\
                [brokers.main.limits.\"orders.>\"]\nrate = \" 7 / h \"\nin_flight = 3\n\
                [brokers.main.limits.\"orders.pay\"]\nin_flight = 10";
    let settings = limited(text).settings();
    let limits: Vec<_> = settings.brokers["main"]
        .ordered_limits()
        .into_iter()
        .map(|(pattern, limit)| (pattern, limit.rate(), limit.in_flight))
        .collect();
    let rate = |count, per_us, burst| Some(Rate::new(count, per_us, burst));
    assert_eq!(
        limits,
        [
            ("orders.pay", None, Some(10)),
            ("orders.sms", rate(100, 1_000_000, None), None),
            ("orders.>", rate(7, 3_600_000_000, None), Some(3)),
            ("orders.*", rate(30, 60_000_000, Some(5)), None),
        ]
    );
    assert!(limited("").settings().brokers["main"].ordered_limits().is_empty());
}

#[test]
fn each_mistake_of_a_limit_is_told() {
    let of = |pattern: &str, text: &str| format!("[brokers.main.limits.\"{pattern}\"]\n{text}");
    let place = "brokers.main.limits.\"orders.*\"";
    let at = |key: &str| if key.is_empty() { place.to_owned() } else { format!("{place}.{key}") };
    for (text, key, part) in [
        (of("orders.*", "rate = \"100\""), at("rate"), "no unit"),
        (of("orders.*", "rate = \"100/d\""), at("rate"), "the unit is s, m or h"),
        (of("orders.*", "rate = \"0/s\""), at("rate"), "no attempt at all"),
        (of("orders.*", "rate = \"-1/s\""), at("rate"), "no whole number"),
        (of("orders.*", "rate = \"1.5/s\""), at("rate"), "no whole number"),
        (of("orders.*", "rate = \"1000001/s\""), at("rate"), "too large"),
        (of("orders.*", "rate = 100"), at("rate"), "in quotes"),
        (of("orders.*", "burst = 5"), at("burst"), "needs a rate"),
        (of("orders.*", "in_flight = 1\nburst = 5"), at("burst"), "needs a rate"),
        (of("orders.*", ""), at(""), "neither a rate nor in_flight"),
        (of("orders.*", "rate = \"1/s\"\nburst = 0"), at("burst"), "from 1"),
        (of("orders.*", "in_flight = 0"), at("in_flight"), "from 1"),
        (of("orders.*", "in_flight = -1"), at("in_flight"), "from 1"),
        (of("orders.*", "rate = \"1/s\"\nin_fligt = 5"), at("in_fligt"), "no such setting"),
        (of("", "rate = \"1/s\""), "brokers.main.limits.\"\"".to_owned(), "empty"),
        (
            of("orders..a", "rate = \"1/s\""),
            "brokers.main.limits.\"orders..a\"".to_owned(),
            "empty token",
        ),
        (
            of("a*.b", "rate = \"1/s\"") + "\n" + &of("a.*b", "rate = \"1/s\""),
            "brokers.main.limits.\"a.*b\"".to_owned(),
            "as many characters besides `*`",
        ),
    ] {
        let problems = limited(&text).problems();
        assert!(
            problems.iter().any(|problem| problem.key == key && problem.to_string().contains(part)),
            "{text}: {problems:#?}"
        );
        assert!(problems.iter().all(|problem| !problem.hint.is_empty()), "{text}: {problems:#?}");
    }
}
