//! The record of a job in Redis: any bytes are read or refused, and a job that was read can be
//! delivered.

use bytes::Bytes;
use dwell::job::{Conflict, Due, JobId};
use dwell::request::{NewJob, Origin};
use dwell::store::reader::lookup::{JobState, StoredJob};
use dwell::store::record::{self, StateRecord};
use dwell::view;

use crate::promises;
use crate::rules::KINDS;

/// The state, its length in a byte before it; then the record.
pub(crate) fn target(bytes: &[u8]) {
    let mut input = crate::input::Input(bytes);
    let state = StateRecord::decode(input.bytes());
    let bytes = Bytes::copy_from_slice(input.rest());
    let _ = record::replaced(&bytes);
    let Ok(read) = record::decode(bytes) else { return };
    let id = JobId::new("a").expect("an id");
    let origin =
        Origin { fingerprint: read.fingerprint, maybe_redelivered: true, is_message: true };
    let new_job = NewJob {
        id: id.clone(),
        generated: read.generated,
        call_id: None,
        is_new_message: false,
        queue_full: false,
        own_queues: None,
        due: Due::In(0),
        conflict: Conflict::Keep,
        job: read.job.clone(),
        origin,
        reply_to: None,
    };
    promises::comes_back(&new_job);
    for kind in KINDS {
        // Any answer will do.
        let _ =
            dwell_connectors::fuzz::publishable(kind, promises::attempt(read.clone(), &id), 4096);
    }
    let size = read.job.body.len();
    let found = StoredJob {
        id,
        state: JobState::Dead,
        score_ms: i64::MAX,
        record: read,
        state_record: state.ok(),
        held_by: None,
        size,
    };
    let _ = format!("{:?}", view::Job::of(&found, &[1]).with_body(&found));
}
