//! The buckets of the histograms, in seconds.

/// From half a millisecond (an idle machine) to an hour (an outage).
pub(super) const LATENESS_SECONDS: [f64; 20] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0, 1800.0, 3600.0,
];
/// Up to the longest sensible `publish_timeout`.
pub(super) const CONFIRM_SECONDS: [f64; 15] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// From one script on loopback to a Redis that stalls.
pub(super) const REDIS_SECONDS: [f64; 16] = [
    0.000_05, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0,
];
