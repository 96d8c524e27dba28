//! The URLs of the last targets, which are parsed once: most jobs go to few URLs.

use std::collections::HashMap;
use std::sync::Arc;

use ::url::Url;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;

use super::addresses::Subnets;
use super::url;
use crate::Outcome;

/// The most URLs that are remembered, and the most bytes of one: producers name them.
const MAX_CACHED_URLS: usize = 1024;
const MAX_CACHED_URL_BYTES: usize = 512;

/// A URL that may be requested.
#[derive(Debug)]
pub(super) struct Target {
    /// The whole URL, as HTTP/2 requests it.
    pub(super) uri: Uri,
    /// Its path and query, as HTTP/1.1 requests them from the host.
    pub(super) path: Uri,
    /// The header `host` of HTTP/1.1.
    pub(super) host: HeaderValue,
    /// The host, as [`url::origin`] shows it.
    pub(super) origin: Arc<str>,
}

/// Reads URLs.
#[derive(Debug)]
pub(super) struct Targets {
    subnets: Subnets,
    read: Mutex<HashMap<String, Arc<Target>>>,
}

impl Targets {
    pub(super) fn new(subnets: Subnets) -> Self {
        Targets { subnets, read: Mutex::default() }
    }

    /// The target of this URL, or the outcome of a request that cannot be sent.
    pub(super) fn read(&self, address: &str) -> Result<Arc<Target>, Outcome> {
        if let Some(target) = self.read.lock().get(address) {
            return Ok(Arc::clone(target));
        }
        let target = self.parsed(address)?;
        if address.len() <= MAX_CACHED_URL_BYTES {
            let mut read = self.read.lock();
            if read.len() >= MAX_CACHED_URLS {
                read.clear();
            }
            read.insert(address.to_owned(), Arc::clone(&target));
        }
        Ok(target)
    }

    fn parsed(&self, address: &str) -> Result<Arc<Target>, Outcome> {
        let url = url::parse(address).map_err(Outcome::Invalid)?;
        if let Some(why) = url::literal(&url).and_then(|address| self.subnets.permit(address).err())
        {
            return Err(Outcome::Failed(why));
        }
        let bad =
            || Outcome::Invalid("the client cannot send this URL: percent-encode it".to_owned());
        let uri = as_written(&url, address)
            .or_else(|| Uri::try_from(url.as_str()).ok())
            .ok_or_else(bad)?;
        let path = uri.path_and_query().cloned().map(Uri::from).ok_or_else(bad)?;
        let host = uri
            .authority()
            .and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
            .ok_or_else(bad)?;
        Ok(Arc::new(Target { uri, path, host, origin: url::origin(&url).into() }))
    }
}

/// The URL with its query byte for byte, where HTTP can carry that: the standard would encode a
/// `'`, which may be signed.
fn as_written(url: &Url, text: &str) -> Option<Uri> {
    let (_, query) = text.split_once('?').filter(|(_, query)| query.is_ascii())?;
    Uri::try_from(format!("{}?{query}", url::without_query(url))).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_sent_byte_for_byte() {
        let targets = Targets::new(Subnets::default());
        for (query, expected) in [
            ("sig=a%2Fb%2f%5C&v='1'(2)*~%7e", "sig=a%2Fb%2f%5C&v='1'(2)*~%7e"),
            ("/../%2e%2e/?a=b??", "/../%2e%2e/?a=b??"),
            ("", ""),
            // Characters that HTTP cannot carry are encoded, as the standard says.
            ("a=\"<>", "a=%22%3C%3E"),
            ("a=ü", "a=%C3%BC"),
        ] {
            let target = targets.read(&format!("https://APP.internal/a/../b?{query}")).unwrap();
            assert_eq!(
                target.uri.to_string(),
                format!("https://app.internal/b?{expected}"),
                "{query}"
            );
            assert_eq!(target.path.to_string(), format!("/b?{expected}"), "{query}");
        }
    }

    #[test]
    fn a_url_is_read_as_the_first_time_and_memory_is_bounded() {
        let targets = Targets::new(Subnets::default());
        for _ in 0..2 {
            let target = targets.read("https://APP.internal:443/a/../b").unwrap();
            assert_eq!(
                (target.uri.to_string().as_str(), &*target.origin),
                ("https://app.internal/b", "https://app.internal")
            );
            assert_eq!(
                (target.path.to_string().as_str(), target.host.as_bytes()),
                ("/b", b"app.internal".as_slice())
            );
            assert!(matches!(targets.read("https://app.internal/a#b"), Err(Outcome::Invalid(_))));
            assert!(matches!(targets.read("http://10.0.0.1/"), Err(Outcome::Failed(_))));
        }
        assert_eq!(targets.read.lock().len(), 1);
        for number in 0..2 * MAX_CACHED_URLS {
            targets.read(&format!("https://app.internal/{number}")).unwrap();
        }
        targets
            .read(&format!("https://app.internal/?{}", "x".repeat(MAX_CACHED_URL_BYTES)))
            .unwrap();
        let read = targets.read.lock();
        assert!(
            read.len() <= MAX_CACHED_URLS
                && read.keys().all(|url| url.len() <= MAX_CACHED_URL_BYTES)
        );
    }
}
