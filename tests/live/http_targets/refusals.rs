//! Refusals at the request: the list of OWASP's cheat sheet on server-side request forgery, and
//! headers that HTTP cannot carry.

use serde_json::json;

use super::fixture::Fixture;
use super::receiver::Receiver;

/// A target, and a word of the reason. Each passes a pattern that allows its host by its text, so
/// that another rule refuses.
const REFUSED: [(&str, &str); 41] = [
    // Another host than the one that is allowed.
    ("https://evil.example/hooks/a", "does not match"),
    ("https://app.internal.evil.example/hooks/a", "does not match"),
    ("https://app.internal:444/hooks/a", "does not match"),
    ("http://app.internal/hooks/a", "does not match"),
    ("https://app.internal/hooks/../admin", "does not match"),
    ("https://app.internal/hooks/%2e%2e/admin", "does not match"),
    ("https://app.internal%00.evil.example/hooks/a", "malformed"),
    // Spellings that one parser reads as another.
    ("https://app.internal@evil.example/hooks/a", "user info"),
    ("https://user:pass@app.internal/hooks/a", "user info"),
    ("https://evil.example#@app.internal/hooks/a", "fragment"),
    ("https://app.internal/hooks/a#b", "fragment"),
    ("https://evil.example\\@app.internal/hooks/a", "`\\`"),
    ("https://app.internal/hooks\\..\\admin", "`\\`"),
    ("https://app.internal/hooks/..%2fadmin", "percent-encoded slash"),
    ("https://app.internal/hooks/..%5Cadmin", "percent-encoded slash"),
    ("https://app.internal./hooks/a", "trailing dot"),
    ("https://app.internal/hooks/a\r\nx: y", "control characters"),
    ("https://app.internal/hooks/\u{0}", "control characters"),
    ("https://app.internal/hooks/a b", "white space"),
    // Schemes.
    ("file:///etc/passwd", "scheme"),
    ("gopher://127.0.0.1:6379/_INFO", "scheme"),
    ("ftp://app.internal/hooks/a", "scheme"),
    ("dict://127.0.0.1:11211/stat", "scheme"),
    ("app.internal/hooks/a", "not absolute"),
    // This machine, and metadata services, in each spelling.
    ("http://127.0.0.1/", "loopback"),
    ("http://2130706433/", "loopback"),
    ("http://0x7f000001/", "loopback"),
    ("http://0x7f.1/", "loopback"),
    ("http://0177.0.0.1/", "loopback"),
    ("http://127.1/", "loopback"),
    ("http://0/", "this host"),
    ("http://[::1]/", "loopback"),
    ("http://[::ffff:127.0.0.1]/", "loopback"),
    ("http://[::ffff:7f00:1]/", "loopback"),
    ("http://169.254.169.254/latest/meta-data/", "metadata"),
    ("http://2852039166/latest/meta-data/", "metadata"),
    ("http://[::ffff:169.254.169.254]/", "metadata"),
    ("http://[64:ff9b::a9fe:a9fe]/", "metadata"),
    ("http://[fd00:ec2::254]/", "private"),
    ("http://100.100.100.200/", "CGNAT"),
    ("http://10.0.0.1/", "private"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_may_not_be_called_is_refused_with_its_reason() {
    let receiver = Receiver::always(200).await;
    // Addresses are allowed by their text, and not by their kind.
    let allow = [
        "https://app.internal/hooks/*",
        "http://127.0.0.1/*",
        "http://0.0.0.0/*",
        "http://[::1]/*",
        "http://[::ffff:7f00:1]/*",
        "http://169.254.169.254/*",
        "http://[::ffff:a9fe:a9fe]/*",
        "http://[64:ff9b::a9fe:a9fe]/*",
        "http://[fd00:ec2::254]/*",
        "http://100.100.100.200/*",
        "http://10.0.0.1/*",
    ];
    let fixture = Fixture::start(
        &[&receiver],
        &format!("\n[brokers.guarded]\ntype = \"http\"\nallow = {allow:?}\n"),
    )
    .await;
    for (target, word) in REFUSED {
        let job = json!({"broker": "guarded", "for": "0s", "target": target});
        let (status, problem) = fixture.call("POST /v1/jobs", &job).await;
        assert_eq!(
            (status, &problem["code"]),
            (400, &json!("target_not_allowed")),
            "{target:?}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(word) && detail.starts_with("target `"), "{target:?}: {detail}");
    }
    // The query, where tokens stand, is not said back; nor is the one of a URL that cannot be read.
    for target in [
        "https://evil.example/?token=hush",
        "https://evil.example#?token=hush",
        "nonsense?token=hush",
    ] {
        let (status, problem) = fixture
            .call("POST /v1/jobs", &json!({"broker": "guarded", "for": "0s", "target": target}))
            .await;
        assert!(status == 400 && !problem.to_string().contains("hush"), "{target}: {problem}");
    }
    // A name tells its address only when it is looked up: the attempt fails.
    let target = receiver.url("/").replace("127.0.0.1", "localhost");
    let more = format!("\n[brokers.named]\ntype = \"http\"\nallow = [\"{target}\"]\n");
    let named = Fixture::start(&[], &more).await;
    named
        .schedule(
            json!({"id": "named", "broker": "named", "for": "0s", "target": target, "retry": []}),
        )
        .await;
    let dead = named.until_state("named", "dead").await;
    let error = dead["last_error"].as_str().unwrap();
    assert!(
        error.contains("`localhost` resolves to ")
            && error.contains("loopback")
            && error.contains("`subnets`"),
        "{error}"
    );
    assert!(receiver.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_http_cannot_carry_is_refused() {
    let receiver = Receiver::always(200).await;
    let fixture = Fixture::start(&[&receiver], "").await;
    for headers in [
        json!({"x": "a\r\nhost: evil"}),
        json!({"x": "a\nb"}),
        json!({"x": "a\u{0}"}),
        json!({"a b": "x"}),
        json!({"a:": "x"}),
        json!({"a\r\nb": "x"}),
        json!({":path": "/"}),
        json!({"ü": "x"}),
    ] {
        let (status, problem) = fixture
            .call(
                "POST /v1/jobs",
                &json!({"for": "0s", "target": receiver.url("/"), "headers": headers}),
            )
            .await;
        assert_eq!((status, &problem["code"]), (400, &json!("bad_header")), "{headers}: {problem}");
    }
    assert!(receiver.seen().is_empty());
}
