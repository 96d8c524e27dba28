//! The extractor of a JSON object, or of an array of such objects.

use std::fmt;

use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::extract;
use super::state::Api;
use crate::http::server::Problem;

/// The most elements of an array.
pub(super) const MAX_ELEMENTS: usize = 1000;
/// The most bytes of an array, unless one job of `limits.max_body` may be larger.
const MAX_ARRAY_BYTES: u64 = 8 << 20;

/// A JSON object, or an array of at most a thousand. Each element is read on its own, so that a
/// wrong one is a problem of its own.
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<Result<T, Problem>>),
}

impl<T: DeserializeOwned> FromRequest<Api> for OneOrMany<T> {
    type Rejection = Problem;

    async fn from_request(mut request: Request, api: &Api) -> Result<Self, Problem> {
        let largest = extract::largest_body(api.limits()).max(MAX_ARRAY_BYTES);
        DefaultBodyLimit::max(usize::try_from(largest).unwrap_or(usize::MAX)).apply(&mut request);
        read(&extract::json(request, api).await?)
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<OneOrMany<T>, Problem> {
    if bytes.trim_ascii_start().first() != Some(&b'[') {
        return extract::read(bytes).map(OneOrMany::One);
    }
    let Elements::<MAX_ELEMENTS>(elements) = serde_json::from_slice(bytes)
        .map_err(|error| Problem::bad(format!("the body does not fit this call: {error}")))?;
    if elements.len() > MAX_ELEMENTS {
        return Err(Problem::bad(format!(
            "the body does not fit this call: it must be an array of at most {MAX_ELEMENTS} objects"
        )));
    }
    Ok(OneOrMany::Many(
        elements.into_iter().map(|element| extract::read(element.get().as_bytes())).collect(),
    ))
}

/// The elements of an array as they are written. Of a longer array, one more than the most.
pub(crate) struct Elements<'a, const MAX_ELEMENTS: usize>(pub(crate) Vec<&'a RawValue>);

impl<'de, const MAX_ELEMENTS: usize> Deserialize<'de> for Elements<'de, MAX_ELEMENTS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(Vec::new()))
    }
}

impl<'de, const MAX_ELEMENTS: usize> Visitor<'de> for Elements<'de, MAX_ELEMENTS> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<Self, A::Error> {
        while self.0.len() <= MAX_ELEMENTS
            && let Some(element) = array.next_element()?
        {
            self.0.push(element);
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        a: u8,
    }

    #[test]
    fn a_wrong_element_is_a_problem_of_its_own() {
        let Ok(OneOrMany::Many(items)) =
            read::<Item>(br#" [{"a": 1}, {"b": 1}, [1], 5, {"a": 2}]"#)
        else {
            panic!("no array")
        };
        assert_eq!(
            items.iter().map(|item| item.as_ref().ok().map(|item| item.a)).collect::<Vec<_>>(),
            [Some(1), None, None, None, Some(2)]
        );
        assert!(matches!(read::<Item>(br#"{"a": 1}"#), Ok(OneOrMany::One(Item { a: 1 }))));
        assert!(matches!(read::<Item>(b"[]"), Ok(OneOrMany::Many(items)) if items.is_empty()));
        for text in ["", "5", "\"a\"", "{\"b\": 1}", "[", "[{]", "[1,]", "[] 1"] {
            assert!(read::<Item>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_array_has_at_most_a_thousand_elements() {
        let of = |count: usize| format!("[{}]", vec![r#"{"a": 1}"#; count].join(","));
        assert!(
            matches!(read::<Item>(of(1000).as_bytes()), Ok(OneOrMany::Many(items)) if items.len() == 1000)
        );
        let problem = read::<Item>(of(1001).as_bytes())
            .err()
            .map(|problem| serde_json::to_string(&problem).unwrap())
            .unwrap();
        assert!(problem.contains("an array of at most 1000 objects"), "{problem}");
    }
}
