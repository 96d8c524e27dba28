//! The request of a message.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Method, Request};

use super::headers;
use super::signer::Signer;
use crate::Message;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The request of a message, without its URL. `id`: by which receivers drop duplicates. `Err`: why
/// it can never be sent.
pub(super) fn request(
    message: &Message,
    id: &str,
    signer: Option<&Signer>,
) -> Result<Request<Bytes>, String> {
    let mut headers = headers::to_http(&message.headers)?;
    // The client leaves out 0, which some servers want to see (411).
    headers.insert(CONTENT_LENGTH, HeaderValue::from(message.body.len()));
    // The receivers' libraries want an id.
    let random = id.is_empty().then(|| format!("{:032x}", rand::random::<u128>()));
    let id = random.as_deref().unwrap_or(id);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now_s));
    if let Ok(value) = HeaderValue::try_from(id) {
        headers.insert(WEBHOOK_ID, value);
    }
    if let Some(signer) = signer
        && let Ok(value) = HeaderValue::try_from(signer.sign(id, now_s, &message.body))
    {
        headers.insert(WEBHOOK_SIGNATURE, value);
    }
    let mut request = Request::new(message.body.clone());
    (*request.method_mut(), *request.headers_mut()) = (Method::POST, headers);
    Ok(request)
}
