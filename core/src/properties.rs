//! The properties of an AMQP message.

use serde::{Deserialize, Serialize};

use crate::allocated;

/// The basic properties of an AMQP 0-9-1 message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are those of the AMQP 0-9-1 specification, class basic")]
pub struct Properties {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<String>,
    pub reply_to: Option<String>,
    pub expiration: Option<String>,
    pub message_id: Option<String>,
    pub timestamp: Option<u64>,
    pub kind: Option<String>,
    pub user_id: Option<String>,
    pub app_id: Option<String>,
    pub cluster_id: Option<String>,
}

impl Properties {
    /// The approximate memory of the properties, in bytes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let Properties {
            content_type,
            content_encoding,
            correlation_id,
            reply_to,
            expiration,
            message_id,
            kind,
            user_id,
            app_id,
            cluster_id,
            ..
        } = self;
        let texts = [
            content_type,
            content_encoding,
            correlation_id,
            reply_to,
            expiration,
            message_id,
            kind,
            user_id,
            app_id,
            cluster_id,
        ];
        size_of::<Self>()
            + texts.into_iter().flatten().map(|text| allocated(text.len())).sum::<usize>()
    }
}
