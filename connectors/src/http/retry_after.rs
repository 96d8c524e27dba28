//! The `retry-after` of an answer: how long a host wants to be left alone.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AsHeaderName, DATE, RETRY_AFTER};

/// The least wait: a date of the past and 0 seconds are this long too.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that a host gets.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// The wait that the answer asks for, 1 s to 1 h. A date counts from the `date` of the answer,
/// since the host's clock made both; from `now` where the answer has no readable one. `None`: no
/// such header, several, or neither whole seconds nor a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = single(headers, RETRY_AFTER)?;
    let wait = if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) {
        // Only a number that is too large fails.
        text.parse().map_or(MAX_WAIT, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(text).ok()?;
        let from = single(headers, DATE)
            .and_then(|date| httpdate::parse_http_date(date).ok())
            .unwrap_or(now);
        until.duration_since(from).unwrap_or_default()
    };
    Some(wait.clamp(MIN_WAIT, MAX_WAIT))
}

/// The value of a header that comes once.
fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    /// 1994-11-06 08:49:37 UTC, the example of RFC 9110.
    const EXAMPLE_S: u64 = 784_111_777;

    /// The seconds asked for, `now` being a minute before the example.
    fn asked(lines: &[(HeaderName, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value.parse().unwrap());
        }
        retry_after(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(EXAMPLE_S - 60))
            .map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_are_bounded() {
        for (text, expected) in [
            ("120", 120),
            (" 120 ", 120),
            ("0", 1),
            ("1", 1),
            ("007", 7),
            ("3600", 3600),
            ("3601", 3600),
            ("18446744073709551615", 3600),
            ("18446744073709551616", 3600),
            ("99999999999999999999999999999999999999999999", 3600),
        ] {
            assert_eq!(asked(&[(RETRY_AFTER, text)]), Some(expected), "{text}");
        }
    }

    #[test]
    fn dates_of_each_form_count_from_the_answers_date() {
        for until in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(asked(&[(RETRY_AFTER, until)]), Some(60), "{until}");
            for (date, expected) in [
                ("Sun, 06 Nov 1994 08:49:30 GMT", 7),
                ("Sunday, 06-Nov-94 08:49:30 GMT", 7),
                ("Sun, 06 Nov 1994 08:49:37 GMT", 1),
                ("Sun, 06 Nov 1994 09:49:37 GMT", 1),
                ("Sun, 06 Nov 1994 07:49:36 GMT", 3600),
                ("Thu, 01 Jan 1970 00:00:00 GMT", 3600),
                ("yesterday", 60),
                ("", 60),
            ] {
                assert_eq!(
                    asked(&[(RETRY_AFTER, until), (DATE, date)]),
                    Some(expected),
                    "{until} {date}"
                );
            }
        }
        let date = (DATE, "Sun, 06 Nov 1994 08:49:30 GMT");
        assert_eq!(
            asked(&[(RETRY_AFTER, "Fri, 31 Dec 9999 23:59:59 GMT"), date.clone()]),
            Some(3600)
        );
        // Two dates are none.
        assert_eq!(
            asked(&[(RETRY_AFTER, "Sun, 06 Nov 1994 08:49:37 GMT"), date.clone(), date.clone()]),
            Some(60)
        );
        // Seconds count from the receipt.
        assert_eq!(asked(&[(RETRY_AFTER, "20"), date]), Some(20));
    }

    #[test]
    fn what_is_unreadable_is_none() {
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[(DATE, "Sun, 06 Nov 1994 08:49:30 GMT")]), None);
        for text in [
            "",
            " ",
            "-1",
            "+1",
            "1.5",
            "1s",
            "0x10",
            "1e3",
            "1, 2",
            "soon",
            "١٢",
            "é",
            "1 2",
            "06 Nov 1994",
            "Sun, 36 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 99999 08:49:37 GMT",
            "1994-11-06T08:49:37Z",
        ] {
            assert_eq!(asked(&[(RETRY_AFTER, text)]), None, "{text}");
        }
        assert_eq!(asked(&[(RETRY_AFTER, "120"), (RETRY_AFTER, "120")]), None);
    }
}
