//! Exemplars: in each bucket of a histogram, the trace of the last observation that has one. The
//! rest of the histogram is the same as without.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::exemplar::HistogramWithExemplars;

use crate::telemetry::trace::TraceId;

/// The labels of an exemplar.
pub(super) type Exemplar = [(&'static str, TraceId); 1];
/// A histogram whose buckets may name a trace.
pub(super) type TracedHistogram = HistogramWithExemplars<Exemplar>;

/// The exemplar of an observation in this trace.
pub(super) fn exemplar(trace: TraceId) -> Exemplar {
    [("trace_id", trace)]
}

impl EncodeLabelValue for TraceId {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        write!(encoder, "{self}")
    }
}
