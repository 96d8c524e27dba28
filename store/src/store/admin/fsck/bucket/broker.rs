//! A broker that the namespace does not name, although jobs belong to it.

use redis::Value;

use crate::store::error::StoreError;
use crate::store::meta;
use crate::store::namespace::Namespace;

impl Namespace {
    /// Whether the namespace has this broker now; if so, adds it to this store.
    pub(super) async fn has_joined(&self, broker: &str) -> Result<bool, StoreError> {
        let field = meta::field_of(broker);
        let has = self
            .link
            .command("HEXISTS meta", redis::cmd("HEXISTS").arg(self.keys.meta()).arg(field))
            .await?;
        let has = matches!(has, Value::Int(1) | Value::Boolean(true));
        if has {
            self.learn(broker);
        }
        Ok(has)
    }

    /// Adds a broker to the namespace.
    pub(in crate::store::admin::fsck) async fn add_broker(
        &self,
        broker: &str,
    ) -> Result<(), StoreError> {
        meta::add_broker(&self.link, &self.keys, broker).await?;
        self.rejoin().await
    }
}
