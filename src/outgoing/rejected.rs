//! A rejected request as published to `rejected`: as received, without the parts that the broker
//! does not take.

use dwell_connectors::{Capabilities, Header, Message, Value};

use super::{one_line, without_copies, without_ttl};
use crate::delayed_headers::{ERROR, ERROR_DETAIL};
use crate::request::Rejection;
use crate::units::quote;

/// The most headers that the error names as left out.
const MAX_NAMED_HEADERS: usize = 4;
/// The most characters of the error, once all headers are left out.
const MAX_SHORT_ERROR_CHARS: usize = 200;

/// A rejected request. It is published as received, with its error. If the broker calls that
/// invalid, it is published without, in this order: headers that not every broker can carry; all
/// headers; half of the body, then a quarter, down to nothing; the key. `delayed-error-detail`
/// names what is left out.
#[derive(Debug)]
pub struct Rejected {
    request: Message,
    code: &'static str,
    detail: String,
    headers: Headers,
    /// The bytes of the body to publish.
    body: usize,
    key: bool,
}

/// The headers of the request to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Headers {
    All,
    Plain,
    None,
}

impl Rejected {
    /// The request as received, for a broker of this kind. Removes the notes of an earlier
    /// rejection: a request may come back, and readers would take the first of two values.
    #[must_use]
    pub fn new(mut request: Message, rejection: &Rejection, broker: &Capabilities) -> Self {
        request.headers.retain(|header| {
            ![ERROR, ERROR_DETAIL].iter().any(|ours| header.name.eq_ignore_ascii_case(ours))
        });
        without_copies(&mut request, broker);
        without_ttl(&mut request, broker);
        as_text(&mut request, broker);
        let body = request.body.len();
        let (code, detail) = (rejection.code.as_str(), one_line(&rejection.detail));
        Rejected { request, code, detail, headers: Headers::All, body, key: true }
    }

    /// Leaves out the body beyond `most` bytes.
    pub fn cut(&mut self, most: usize) {
        self.body = self.body.min(most);
    }

    /// The message to publish.
    #[must_use]
    pub fn message(&self) -> Message {
        let mut message = self.request.clone();
        message.body.truncate(self.body);
        match self.headers {
            Headers::All => {}
            Headers::Plain => message.headers.retain(is_plain),
            Headers::None => {
                message.headers = dwell_connectors::Headers::default();
                message.properties = None;
            }
        }
        if !self.key {
            message.key = None;
        }
        let mut detail = self.detail.clone();
        if let Some(left_out) = self.left_out() {
            if self.headers == Headers::None {
                detail = detail.chars().take(MAX_SHORT_ERROR_CHARS).collect();
            }
            detail = one_line(&format!(
                "{detail}; left out, because the broker does not take it: {left_out}"
            ));
        }
        message.headers.push(ERROR, Value::Text(self.code.to_owned()));
        message.headers.push(ERROR_DETAIL, Value::Text(detail));
        message
    }

    /// Leaves out the next part. False if only the error is left: then all parts come back, for
    /// another try when the broker may have changed.
    pub fn leave_out(&mut self) -> bool {
        let request = &self.request;
        if self.headers == Headers::All && request.headers.iter().any(|header| !is_plain(header)) {
            self.headers = Headers::Plain;
        } else if self.headers != Headers::None
            && !(request.headers.is_empty() && request.properties.is_none())
        {
            self.headers = Headers::None;
        } else if self.body > 0 {
            self.body /= 2;
        } else if self.key && request.key.is_some() {
            self.key = false;
        } else {
            (self.headers, self.body, self.key) = (Headers::All, request.body.len(), true);
            return false;
        }
        true
    }

    /// The parts that are left out, in words; `None` if there are none.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        let request = &self.request;
        let mut parts = Vec::new();
        match self.headers {
            Headers::All => {}
            Headers::Plain => {
                let names: Vec<&str> = request
                    .headers
                    .iter()
                    .filter(|header| !is_plain(header))
                    .map(|header| header.name.as_str())
                    .collect();
                let shown = names
                    .iter()
                    .take(MAX_NAMED_HEADERS)
                    .map(|name| quote(name))
                    .collect::<Vec<_>>()
                    .join(", ");
                let more = names.len().saturating_sub(MAX_NAMED_HEADERS);
                parts.push(if more > 0 {
                    format!("the headers {shown} and {more} more")
                } else {
                    format!("the headers {shown}")
                });
            }
            Headers::None => {
                let properties =
                    if request.properties.is_some() { " and the properties" } else { "" };
                parts.push(format!("all {} headers{properties}", request.headers.len()));
            }
        }
        if self.body < request.body.len() {
            parts.push(format!("the body from byte {} of {} on", self.body, request.body.len()));
        }
        if !self.key {
            parts.push("the key".to_owned());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The headers that park a message in a queue become text, which does not park: a rejected message
/// is to be seen now.
fn as_text(request: &mut Message, broker: &Capabilities) {
    let parks = |header: &Header| {
        broker.parking_headers.iter().any(|name| header.name.eq_ignore_ascii_case(name))
    };
    let text = |header: Header| match header.value.plain().filter(|_| parks(&header)) {
        Some(text) => Header { value: Value::Text(text.into_owned()), ..header },
        None => header,
    };
    request.headers = std::mem::take(&mut request.headers).into_iter().map(text).collect();
}

/// Whether every broker can carry this header.
fn is_plain(header: &Header) -> bool {
    let named = !header.name.is_empty()
        && header.name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    named && header.value.plain().is_some_and(|text| !text.contains(['\r', '\n']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Code;

    const PLAIN_CAPABILITIES: Capabilities = Capabilities::new("plain", "plain", "topic");
    const COPY_CAPABILITIES: Capabilities =
        Capabilities { copy_headers: &["CC", "BCC"], ..PLAIN_CAPABILITIES };

    #[test]
    fn what_would_end_the_message_is_left_out() {
        let broker = Capabilities { ttl_header: Some("X-TTL"), ..PLAIN_CAPABILITIES };
        let request = Message::new("x").with_header("x-ttl", "5m").with_header("a", "1");
        let rejected = Rejected::new(request, &Rejection::new(Code::BadHeader, "no"), &broker);
        let headers = rejected.message().headers;
        assert_eq!((headers.get("x-ttl"), headers.text("a")), (None, Some("1")));
    }

    fn request() -> Message {
        let mut message = Message::new("12345")
            .with_header("a", "1")
            .with_header("b c", "2")
            .with_header("d", "3\r4");
        message.headers.push("e", Value::Bytes(b"\xff".as_slice().into()));
        message.key = Some("k".into());
        message
    }

    /// Names of headers, body, whether there is a key, and detail.
    fn shown(rejected: &Rejected) -> (String, String, bool, String) {
        let message = rejected.message();
        let names: Vec<&str> = message.headers.iter().map(|header| header.name.as_str()).collect();
        let text = |name| message.headers.text(name).expect("a header of ours").to_owned();
        assert_eq!(text(ERROR), "bad_header");
        (
            names.join(" "),
            String::from_utf8(message.body.to_vec()).expect("digits"),
            message.key.is_some(),
            text(ERROR_DETAIL),
        )
    }

    #[test]
    fn more_is_left_out_step_by_step_and_named() {
        let mut rejected =
            Rejected::new(request(), &Rejection::new(Code::BadHeader, "why"), &PLAIN_CAPABILITIES);
        let all = ("a b c d e delayed-error delayed-error-detail", "12345", true, "why");
        let steps = [
            ("a delayed-error delayed-error-detail", "12345", true, "the headers `b c`, `d`, `e`"),
            ("delayed-error delayed-error-detail", "12345", true, "all 4 headers"),
            (
                "delayed-error delayed-error-detail",
                "12",
                true,
                "all 4 headers, the body from byte 2 of 5 on",
            ),
            (
                "delayed-error delayed-error-detail",
                "1",
                true,
                "all 4 headers, the body from byte 1 of 5 on",
            ),
            (
                "delayed-error delayed-error-detail",
                "",
                true,
                "all 4 headers, the body from byte 0 of 5 on",
            ),
            (
                "delayed-error delayed-error-detail",
                "",
                false,
                "all 4 headers, the body from byte 0 of 5 on, the key",
            ),
        ];
        let owned = |(names, body, key, detail): (&str, &str, bool, &str)| {
            (names.to_owned(), body.to_owned(), key, detail.to_owned())
        };
        // Twice: after the last step all parts come back.
        for _ in 0..2 {
            assert_eq!((shown(&rejected), rejected.left_out()), (owned(all), None));
            for (names, body, key, left_out) in steps {
                assert!(rejected.leave_out());
                let detail =
                    format!("why; left out, because the broker does not take it: {left_out}");
                assert_eq!(shown(&rejected), owned((names, body, key, &detail)));
            }
            assert!(!rejected.leave_out());
        }
    }

    #[test]
    fn what_is_not_there_is_not_left_out() {
        let mut rejected = Rejected::new(
            Message::new(""),
            &Rejection::new(Code::BadHeader, "why"),
            &PLAIN_CAPABILITIES,
        );
        assert!(!rejected.leave_out());
        let mut rejected = Rejected::new(
            Message::new("").with_header("a", "b"),
            &Rejection::new(Code::BadHeader, "x".repeat(500)),
            &PLAIN_CAPABILITIES,
        );
        assert!(rejected.leave_out() && shown(&rejected).3.len() < 300);
        assert!(!rejected.leave_out());
        assert_eq!(shown(&rejected).3, "x".repeat(500));
    }

    #[test]
    fn what_was_said_of_it_before_is_not_said_again() {
        let request = Message::new("")
            .with_header("delayed-error", "old")
            .with_header("a", "b")
            .with_header("Delayed-Error-Detail", "old");
        let message =
            Rejected::new(request, &Rejection::new(Code::BadHeader, "new"), &PLAIN_CAPABILITIES)
                .message();
        let all: Vec<_> = message
            .headers
            .iter()
            .map(|header| (header.name.as_str(), header.value.as_text()))
            .collect();
        assert_eq!(
            all,
            [("a", Some("b")), (ERROR, Some("bad_header")), (ERROR_DETAIL, Some("new"))]
        );
    }

    #[test]
    fn what_would_park_the_letter_is_text() {
        const PARKING_CAPABILITIES: Capabilities =
            Capabilities { parking_headers: &["x-opt-delivery-time"], ..PLAIN_CAPABILITIES };
        let mut request = Message::new("");
        request.headers.push("x-opt-delivery-time", Value::I64(5));
        request.headers.push("other", Value::I64(6));
        let message =
            Rejected::new(request, &Rejection::new(Code::BadHeader, "why"), &PARKING_CAPABILITIES)
                .message();
        assert_eq!(message.headers.get("x-opt-delivery-time"), Some(&Value::Text("5".to_owned())));
        assert_eq!(message.headers.get("other"), Some(&Value::I64(6)));
    }

    #[test]
    fn copies_to_other_queues_are_a_note() {
        let request = || {
            Message::new("").with_header("CC", "a").with_header("cc", "b").with_header("BCC", "c")
        };
        let names = |broker| {
            let message =
                Rejected::new(request(), &Rejection::new(Code::BadHeader, "why"), broker).message();
            message.headers.iter().take(3).map(|header| header.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&COPY_CAPABILITIES), ["delayed-cc", "cc", "delayed-bcc"]);
        let again = Rejected::new(
            request().with_header("delayed-cc", "old"),
            &Rejection::new(Code::BadHeader, "why"),
            &COPY_CAPABILITIES,
        )
        .message();
        assert_eq!(
            again
                .headers
                .iter()
                .filter(|header| header.name == "delayed-cc")
                .map(|header| header.value.as_text())
                .collect::<Vec<_>>(),
            [Some("a")]
        );
        assert_eq!(names(&PLAIN_CAPABILITIES), ["CC", "cc", "BCC"]);
    }
}
