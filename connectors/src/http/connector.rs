//! HTTP targets as a [`Connector`].

use std::borrow::Cow;
use std::time::Duration;

use ::url::Position;
use async_trait::async_trait;

use super::config::Config;
use super::{headers, outcome, pattern, reach, sink, url};
use crate::{
    Capabilities, Connector, ConnectorError, ConsumerState, Declared, Destination, ErrorKind,
    Header, Headers, Message, Outcomes, Role, Sink, Source, SourceOptions, Value,
};

/// The differences between HTTP targets and brokers.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    sources: false,
    log: false,
    endpoint: "host",
    silent_hint: "check that the host answers requests within the `timeout` of its broker",
    event_prefix: "",
    log_filter: "hyper_util=warn,h2=warn,rustls=warn",
    ..Capabilities::new("http", "HTTP", "URL")
};

/// The method of every request.
const METHOD: &str = "POST";

#[async_trait]
impl Connector for Config {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn place(&self) -> String {
        "the hosts of `allow`".to_owned()
    }

    fn problems(&self) -> Vec<String> {
        Config::problems(self)
    }

    fn allows(&self, pattern: &str, to: &Destination) -> bool {
        // Each of many hosts may have a pattern: most are told apart without the parser.
        if let (Some(allowed), Some(named)) =
            (url::plain_origin(pattern), url::plain_origin(&to.address))
            && allowed != named
        {
            return false;
        }
        url::parse(&to.address).is_ok_and(|url| pattern::allows(pattern, &url))
    }

    fn forbidden(&self, to: &Destination) -> Option<String> {
        Config::forbidden(self, to)
    }

    fn is_pattern(&self, pattern: &str) -> bool {
        pattern.contains('*')
    }

    fn pattern_key(&self, pattern: &str) -> Option<String> {
        if pattern.contains('*') {
            pattern::key(pattern)
        } else {
            url::parse(pattern).ok().map(String::from)
        }
    }

    fn keys_of(&self, to: &Destination) -> Option<Vec<String>> {
        let url = url::parse(&to.address).ok()?;
        let origin = url::origin(&url);
        let first = format!("{origin}/{}", pattern::first_part(&url[Position::BeforePath..]));
        Some(vec![origin, first, url.into()])
    }

    fn hop_headers(&self, headers: &Headers) -> Vec<String> {
        headers::named_by_connection(headers)
    }

    fn pattern_problem(&self, pattern: &str) -> Option<(String, String)> {
        pattern::problem(pattern)
    }

    fn endpoint<'a>(&self, to: &'a Destination) -> Cow<'a, Destination> {
        match url::origin_of(&to.address) {
            Some(origin) => Cow::Owned(Destination::new(origin)),
            None => Cow::Borrowed(to),
        }
    }

    fn shown(&self, to: &Destination) -> String {
        url::shown(&to.address)
    }

    fn without_answer<'a>(&self, why: &'a str) -> &'a str {
        outcome::without_body(why)
    }

    fn dead_letters(&self, _common: &str) -> Option<Destination> {
        (!self.dead.is_empty()).then(|| Destination::new(&self.dead))
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Config::timeout(self))
    }

    fn carries(&self, header: &Header, _is_own: bool) -> Result<bool, String> {
        headers::carries(header)
    }

    // The conventions for messaging ask every span for a system, and know no name for HTTP: the name
    // of `type` is Dwell's own.

    fn span_operation(&self) -> &'static str {
        METHOD
    }

    fn span_destination(&self, to: &Destination) -> String {
        self.shown(to)
    }

    /// What the conventions for HTTP ask of a client.
    fn span_attributes(
        &self,
        to: &Destination,
        _group: &str,
        _message: &Message,
    ) -> Vec<(&'static str, Value)> {
        let mut attributes =
            vec![("http.request.method", METHOD.into()), ("url.full", Value::Text(self.shown(to)))];
        if let Ok(url) = url::parse(&to.address)
            && let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default())
        {
            attributes.push(("server.address", host.trim_matches(['[', ']']).into()));
            attributes.push(("server.port", Value::I64(i64::from(port))));
        }
        attributes
    }

    async fn source(&self, _options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
        Err(no_source())
    }

    async fn inspect(&self, _options: &SourceOptions) -> Result<ConsumerState, ConnectorError> {
        Err(no_source())
    }

    async fn reach(&self, patterns: &[&str]) -> Option<Vec<Result<String, ConnectorError>>> {
        Some(reach::reach(self, patterns).await)
    }

    async fn sink(
        &self,
        publish_timeout: Duration,
    ) -> Result<(Box<dyn Sink>, Outcomes), ConnectorError> {
        let (sink, outcomes) = sink::open(self, publish_timeout).await?;
        Ok((Box::new(sink), outcomes))
    }

    /// A URL is its server's: nothing is created.
    async fn declare(&self, _to: &Destination, _role: Role) -> Result<Declared, ConnectorError> {
        Ok(Declared::Existed)
    }
}

fn no_source() -> ConnectorError {
    let why = "an HTTP target takes messages, and none can be read from it";
    ConnectorError::new(ErrorKind::Config, why)
        .hint("read requests from a broker, or take them over HTTP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urls_of_a_host_have_one_endpoint_and_queries_are_not_shown() {
        let config = Config::default();
        let endpoint = |text: &str| config.endpoint(&Destination::new(text)).address.clone();
        for text in [
            "https://app.internal/a",
            "https://app.internal/b?c",
            "https://APP.internal:443",
            "https://app.internal?x",
        ] {
            assert_eq!(endpoint(text), "https://app.internal", "{text}");
        }
        assert_eq!(endpoint("https://app.internal:444/a"), "https://app.internal:444");
        assert_eq!(endpoint("http://app.internal/a"), "http://app.internal");
        assert_eq!(endpoint("http://127.1:8080/a"), "http://127.0.0.1:8080");
        assert_eq!(
            config.shown(&Destination::new("https://app.internal/a?token=secret")),
            "https://app.internal/a"
        );
        assert_eq!(config.shown(&Destination::new("no url?token=secret")), "no url");
        assert_eq!(
            config.shown(&Destination::new("https://user:secret@app.internal/a#secret")),
            "https://***@app.internal/a"
        );
        for spelling in [
            "https://bob:hu/nter@h",
            "https://bob:hunter",
            "https://bob:hu,nter@h",
            "bob:hunter@h",
            "https://bob:hu?nt@er@h",
        ] {
            let shown = config.shown(&Destination::new(spelling));
            assert!(!shown.contains("hu") && !shown.contains("nt"), "{spelling}: {shown}");
        }
    }

    #[test]
    fn a_span_has_the_server_and_the_url_without_its_query() {
        let config = Config::default();
        let attributes =
            |text: &str| config.span_attributes(&Destination::new(text), "", &Message::default());
        let expected = |url: &str, host: &str, port| {
            [
                ("http.request.method", "POST".into()),
                ("url.full", url.into()),
                ("server.address", host.into()),
                ("server.port", Value::I64(port)),
            ]
        };
        for (text, url, host, port) in [
            ("https://App.internal/a?token=secret", "https://app.internal/a", "app.internal", 443),
            ("http://[::1]:8080/a", "http://[::1]:8080/a", "::1", 8080),
        ] {
            assert_eq!(attributes(text), expected(url, host, port), "{text}");
        }
        assert_eq!(attributes("no url?token=secret").len(), 2);
        assert_eq!((config.span_system(), config.span_operation()), ("http", "POST"));
    }

    #[test]
    fn a_pattern_allows_its_own_host_however_both_are_written() {
        let allows =
            |pattern: &str, to: &str| Config::default().allows(pattern, &Destination::new(to));
        for pattern in [
            "https://app.internal/hooks/*",
            "https://app.internal:443/hooks/*",
            "HTTPS://APP.internal/hooks/*",
        ] {
            for to in [
                "https://app.internal/hooks/a",
                "https://app.internal:443/hooks/a?b",
                "https://App.Internal/x/../hooks/a",
            ] {
                assert!(allows(pattern, to), "{pattern} {to}");
            }
            for to in [
                "https://app.internal.evil.com/hooks/a",
                "https://app.internal:8443/hooks/a",
                "http://app.internal/hooks/a",
                "hooks/a",
            ] {
                assert!(!allows(pattern, to), "{pattern} {to}");
            }
        }
    }

    #[test]
    fn an_address_that_is_not_public_is_refused_unless_a_subnet_has_it() {
        let to = Destination::new("http://10.1.2.3/hook");
        assert!(Config::default().forbidden(&to).is_some_and(|why| why.contains("private")));
        let config: Config =
            serde_json::from_value(serde_json::json!({"subnets": ["10.1.0.0/16"]}))
                .expect("settings");
        assert_eq!(config.forbidden(&to), None);
        assert_eq!(Config::default().forbidden(&Destination::new("https://example.com/")), None);
    }
}
