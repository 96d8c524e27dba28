//! Listeners, and the tokens of their callers.

use super::*;

#[test]
fn a_token_opens_the_admin_api_to_others() {
    let given = Given::least("").also("token", "hush\n");
    let token = given.path("token").display().to_string();
    let given = given.set("http.listen", "0.0.0.0:7464").set("http.token_file", &token);
    assert_eq!(*given.settings().http.token_file, Some(token.into()));
    let problem = given.also("token", "\n").problem();
    assert!(problem.message.contains("is empty"), "{problem}");
}

#[test]
fn the_token_of_an_application_says_what_it_may() {
    let text = "[http]\nlisten = \"0.0.0.0:7464\"\n[http.tokens.app]\ntoken_file = \"TOKEN\"\nmay = [\"schedule\", \"consume\"]\n\
                queues = [\"orders.*\", \"bills\"]\n[http.tokens.eye]\ntoken = \"see\"\nmay = [\"read\"]";
    let given = Given::least("").also("token", "hush\n");
    given.write(&format!(
        "{MINIMAL_SETTINGS}\n{}",
        text.replace("TOKEN", &given.path("token").display().to_string())
    ));
    let tokens = given.settings().http.tokens;
    let app = &tokens["app"];
    assert_eq!((app.secret(), tokens["eye"].secret()), ("hush", "see"));
    assert_eq!(
        [Scope::Schedule, Scope::Consume, Scope::Read, Scope::Act].map(|scope| app.may(scope)),
        [true, true, false, false]
    );
    assert_eq!(
        ["orders.eu", "bills", "bills.eu", "orders"].map(|queue| app.has_queue(queue)),
        [true, true, false, false]
    );
    assert!(!app.has_all() && tokens["eye"].has_all() && tokens["eye"].has_queue("any"));
    assert!(!format!("{tokens:?}").contains("hush"));
}

#[test]
fn each_mistake_of_a_token_or_a_listener_is_told() {
    let token = |text: &str| format!("[http.tokens.app]\n{text}");
    let twice = "[http.tokens.a]\ntoken = \"x\"\nmay = [\"read\"]\n[http.tokens.b]\ntoken = \"x\"\nmay = [\"act\"]";
    for (text, key, part) in [
        (token("may = [\"read\"]").as_str(), "http.tokens.app", "there is no token"),
        (token("token = \"x\"").as_str(), "http.tokens.app.may", "missing"),
        (token("token = \"x\"\nmay = []").as_str(), "http.tokens.app.may", "may do nothing"),
        (
            token("token = \"x\"\nmay = [\"raed\"]").as_str(),
            "http.tokens.app.may",
            "did you mean \"read\"?",
        ),
        (
            token("token = \"x\"\nmay = [\"read\"]\nqueues = []").as_str(),
            "http.tokens.app.queues",
            "no queue",
        ),
        (
            token("token = \"x\"\nmay = [\"read\"]\nqueues = [\"a b\"]").as_str(),
            "http.tokens.app.queues",
            "cannot be used",
        ),
        (
            token("token = \"x\"\ntoken_file = \"y\"\nmay = [\"read\"]").as_str(),
            "http.tokens.app",
            "both set",
        ),
        (token("token = \"\"\nmay = [\"read\"]").as_str(), "http.tokens.app.token", "empty"),
        (
            token("token_file = \"/nowhere\"\nmay = [\"read\"]").as_str(),
            "http.tokens.app.token_file",
            "no such file",
        ),
        ("[http.tokens.A]\ntoken = \"x\"\nmay = [\"read\"]", "http.tokens.A", "cannot be used"),
        (
            "[http.tokens.\"a.b\"]\ntoken = \"x\"\nmay = [\"read\"]",
            "http.tokens.\"a.b\"",
            "cannot be used",
        ),
        (twice, "http.tokens.b", "http.tokens.a is the same token"),
        ("[compat]\ndelay_queue = \"9277\"", "compat.delay_queue", "IP address"),
        ("[compat]\ndelay_queue = \"0.0.0.0:9277\"", "compat.delay_queue", "no token"),
        ("[compat]\nlmstfy = \"0.0.0.0:7777\"", "compat.lmstfy", "no token"),
        (
            "[compat]\nlmstfy = \"127.0.0.1:7464\"",
            "compat.lmstfy",
            "http.listen is the same address",
        ),
        (
            "[compat]\nlmstfy = \"127.0.0.1:1\"\ndelay_queue = \"127.0.0.1:1\"",
            "compat.lmstfy",
            "compat.delay_queue is the same",
        ),
    ] {
        let problem = Given::least(text).problem();
        assert_eq!(problem.key, key, "{text}: {problem}");
        assert!(problem.to_string().contains(part), "{text}: {problem}");
        assert!(!problem.hint.is_empty(), "{text}: {problem}");
    }
}

#[test]
fn drop_in_listeners_are_off_and_open_to_others_with_a_token_alone() {
    let compat = Given::least("").settings().compat;
    assert_eq!((compat.delay_queue.as_deref(), compat.lmstfy.as_deref()), (None, None));
    let compat = Given::least("[compat]\ndelay_queue = \"127.0.0.1:9277\"\nlmstfy = \"[::1]:0\"")
        .settings()
        .compat;
    assert_eq!(
        (compat.delay_queue.as_deref(), compat.lmstfy.as_deref()),
        (Some("127.0.0.1:9277"), Some("[::1]:0"))
    );
    Given::least(
        "[compat]\nlmstfy = \"0.0.0.0:7777\"\n[http.tokens.a]\ntoken = \"x\"\nmay = [\"consume\"]",
    )
    .settings();
}

#[test]
fn the_token_that_may_everything_is_no_applications_too() {
    let given =
        Given::least("[http.tokens.a]\ntoken = \"hush\"\nmay = [\"read\"]").also("token", "hush\n");
    let token = given.path("token").display().to_string();
    let problem = given.set("http.token_file", &token).problem();
    assert_eq!(
        problem.to_string().split("; ").next(),
        Some("http.tokens.a (dwell.toml:10): http.token_file is the same token")
    );
}
