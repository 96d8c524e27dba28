//! `schedule` stores new jobs: its arguments in a call, and the probe of the store with an empty
//! one.

use std::borrow::Cow;

use crate::job::{Conflict, Expire};
use crate::request::{NewJob, OwnQueues};
use crate::store::call::script_call::ScriptCall;
use crate::store::call::time::Time;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::scripts::Name;

impl Jobs {
    /// Whether the store accepts requests: sends an empty batch for a random bucket through the
    /// durability gate. A full Redis or a damaged bucket counts as an answer.
    pub async fn takes_requests(&self) -> Result<(), StoreError> {
        let bucket = rand::random_range(0..self.namespace.keys.buckets());
        let call = self.namespace.script_call(Name::Schedule, bucket, &[]);
        match self.namespace.gated_call(call).await {
            Err(error) if !matches!(error.class, Class::Script | Class::Oom) => {
                self.namespace.observer.failed(error.class);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// Appends the deadline of the call, which follows its jobs.
pub(super) fn schedule_deadline(call: &mut ScriptCall, deadline_us: Option<i64>) {
    if let Some(us) = deadline_us {
        call.arg(us);
    }
}

/// Appends one job to a call.
pub(super) fn schedule_arguments(call: &mut ScriptCall, request: &NewJob, record: &[u8]) {
    let policy = match request.conflict {
        _ if request.is_new_message => Cow::Borrowed("other"),
        Conflict::Replace => Cow::Borrowed("replace"),
        Conflict::Keep => Cow::Borrowed("keep"),
        Conflict::Reject => Cow::Borrowed("reject"),
        Conflict::Debounce { max_wait_ms } => Cow::Owned(format!("debounce {max_wait_ms}")),
    };
    call.arg(request.id.as_str()).arg(record).arg(Time::from(request.due)).arg(&*policy);
    let flags = u8::from(request.origin.maybe_redelivered)
        + 2 * u8::from(request.queue_full)
        + 4 * u8::from(request.job.expire.is_some());
    let expires = match request.job.expire {
        Some(Expire::At(at_ms)) => format!("@{at_ms}"),
        Some(Expire::After(_)) | None => String::new(),
    };
    call.arg(format!("{flags}{expires}{}", own_queues_argument(request.own_queues.as_ref())));
}

/// The queues of a caller in the notation of the scripts.
pub(in crate::store) fn own_queues_argument(own: Option<&OwnQueues>) -> String {
    own.map(|own| format!(" {}", own.text())).unwrap_or_default()
}
