//! Claims whose answer was lost: their jobs are given back.

use redis::Value;

use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::record::Nonce;
use crate::store::scripts::Name;

/// A claim whose answer was lost.
#[derive(Debug, Clone)]
pub(in crate::store::jobs) struct LostClaim {
    pub(super) bucket: u16,
    pub(super) broker: String,
    pub(super) nonce: Nonce,
}

impl Jobs {
    pub(super) async fn reclaim_lost(&self, bucket: u16, broker: &str) -> Result<(), StoreError> {
        self.reclaim_where(|lost| lost.bucket == bucket && lost.broker == broker).await
    }

    /// Gives back the jobs of all claims for this broker whose answer was lost. For an instance
    /// that stops claiming; repeat until it succeeds.
    pub async fn reclaim_all_lost(&self, broker: &str) -> Result<(), StoreError> {
        self.reclaim_where(|lost| lost.broker == broker).await
    }

    /// A damaged bucket does not stop the others.
    async fn reclaim_where(&self, is_meant: impl Fn(&LostClaim) -> bool) -> Result<(), StoreError> {
        let lost: Vec<LostClaim> =
            self.lost_claims.lock().iter().filter(|lost| is_meant(lost)).cloned().collect();
        let mut result = Ok(());
        for lost in lost {
            match self.reclaim(lost.nonce, lost.bucket, &lost.broker).await {
                Ok(_) => self.lost_claims.lock().retain(|other| other.nonce != lost.nonce),
                Err(error) if error.class == Class::Script => result = Err(error),
                Err(error) => return Err(error),
            }
        }
        result
    }

    /// Gives back the jobs of a claim whose answer was lost, and counts them.
    pub async fn reclaim(
        &self,
        nonce: Nonce,
        bucket: u16,
        broker: &str,
    ) -> Result<i64, StoreError> {
        let mut call = self.namespace.script_call(Name::Reclaim, bucket, &[broker.to_owned()]);
        call.arg(&nonce[..]);
        match self.namespace.call(&call).await? {
            Value::Int(count) => Ok(count),
            other => Err(StoreError::new(
                Class::Script,
                format!("redis: reclaim answered {other:?} instead of a number"),
            )),
        }
    }
}
