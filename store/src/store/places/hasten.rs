//! Jobs of a broker that wait for a place are due again at a time that only spreads them. Once a place
//! is free, the next ones are due at once.

use redis::Value;

use crate::job::JobId;
use crate::policy::limit::Turn;
use crate::store::error::StoreError;
use crate::store::namespace::Namespace;

const SCRIPT: &str = include_str!("../scripts/hasten.lua");

impl Namespace {
    /// Has these jobs of one bucket be due now, each if it waits with this turn in its state. Returns
    /// the number of those that are. A job that was changed meanwhile stays as it is.
    pub async fn hasten(
        &self,
        bucket: u16,
        broker: &str,
        jobs: &[(JobId, Turn)],
    ) -> Result<usize, StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(2).arg(self.keys.state(bucket)).arg(self.keys.due(bucket, broker));
        for (id, turn) in jobs {
            command.arg(id.as_str()).arg(&turn.to_bytes()[..]);
        }
        match self.link.command("hasten", &command).await? {
            Value::Int(count) => Ok(usize::try_from(count).unwrap_or(0)),
            _ => Ok(0),
        }
    }
}
