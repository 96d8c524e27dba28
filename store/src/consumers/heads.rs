//! The due time of the first job of each bucket of one queue, as far as this process knows: by the
//! answers of its pops, by wake-ups, and by looks at Redis.

use std::time::Duration;

use crate::clock::{self, Instant};

/// A master of a cluster that has not answered a call for this long is left out until it answers:
/// the buckets of the others are served meanwhile.
pub(super) const SILENT_MASTER_TIMEOUT: Duration = Duration::from_millis(250);
/// A waiting pop is granted a bucket this long before its first job is due, µs: the time for the
/// wake-up, the call and its answer. The call reaches further, up to
/// [`MAX_CLAIM_AHEAD`](crate::store::jobs::claim::MAX_CLAIM_AHEAD).
const GRANT_LEAD_US: i64 = 3000;
/// The jobs from which a call of several pops grows no more while other buckets have due jobs: a
/// job costs a third of what it costs alone, and the order stays close to that of the due times. A
/// pop of so many jobs shares no call.
pub(super) const SHARED_JOBS: usize = 8;

/// The first jobs of all buckets of a queue.
#[derive(Debug)]
pub(super) struct Heads {
    buckets: Vec<Head>,
    /// The buckets are on several masters.
    is_cluster: bool,
    /// The bucket of the last pop: among equals the next one comes first.
    last: usize,
    /// Due times are in µs from then on by the clock of this process, from how far ahead they are
    /// by the clock of their master: masters need not agree on the time.
    zero: Instant,
    /// Numbers pops and looks in the order in which they began.
    calls: u64,
    /// The last pop found fewer due jobs than it asked for.
    is_sparse: bool,
}

#[derive(Debug, Clone, Default)]
struct Head {
    /// The due time of the first job; `None` if no job is known.
    due_us: Option<i64>,
    /// The running average of the distance between the due times of popped jobs, µs; `None` before
    /// the first.
    step_us: Option<i64>,
    /// The pops that have no answer yet, and the jobs that they ask for.
    out: (usize, usize),
    /// The time since which none of these pops has been answered.
    asked: Option<Instant>,
    /// The newest call whose answer is known.
    told: u64,
    /// The last wake-up: the newest call by then, which may not have met the job, and the due time
    /// of the job.
    woken: Option<(u64, i64)>,
    /// No grant ahead of the due time before this time: its first job waits for a retry, which is
    /// handed out only once it is due.
    no_lead_until_us: Option<i64>,
    /// A look at this bucket has no answer yet.
    is_looked_at: bool,
    /// The master did not answer: no pop until a look does.
    is_away: bool,
    /// The number of its master.
    home: usize,
}

impl Head {
    /// The due time of the first job after those that the pops on their way ask for. `apart_us`:
    /// the distance of its jobs if it is not known.
    fn expected_us(&self, due_us: i64, apart_us: i64) -> i64 {
        let taken = i64::try_from(self.out.1).unwrap_or(i64::MAX);
        due_us.saturating_add(self.step_us.unwrap_or(apart_us).saturating_mul(taken))
    }

    /// The time from which a waiting pop may be granted the bucket.
    fn grant_at_us(&self) -> Option<i64> {
        let due_us = self.due_us?;
        let ahead_us = due_us.saturating_sub(GRANT_LEAD_US);
        Some(self.no_lead_until_us.map_or(ahead_us, |us| due_us.min(us).max(ahead_us)))
    }

    /// The pops on their way take all jobs that are known to be due, as the next one is expected
    /// then.
    fn is_spoken_for(&self, expected_us: i64, now_us: i64) -> bool {
        self.out.1 > 0 && (self.step_us.is_none() || expected_us > now_us)
    }

    /// Notes the due time of the first job that the call with number `call` found.
    fn tell(&mut self, call: u64, due_us: Option<i64>) {
        if call < self.told {
            return;
        }
        self.told = call;
        // The job of a wake-up may have come after the call.
        let woken = self.woken.filter(|(at, _)| *at >= call).map(|(_, us)| us);
        self.due_us = due_us.into_iter().chain(woken).min();
    }
}

impl Heads {
    pub(super) fn new(buckets: u16, is_cluster: bool) -> Heads {
        let homed = |home| Head { home, ..Head::default() };
        Heads {
            buckets: (0..usize::from(buckets)).map(homed).collect(),
            is_cluster,
            last: 0,
            zero: clock::now(),
            calls: 0,
            is_sparse: false,
        }
    }

    /// A time in µs.
    fn us(&self, now: Instant, ahead_us: i64) -> i64 {
        let elapsed = now.saturating_duration_since(self.zero).as_micros();
        i64::try_from(elapsed).unwrap_or(i64::MAX).saturating_add(ahead_us)
    }

    /// The bucket with the oldest due first job. Each pop on its way is expected to take as many
    /// jobs as it asks for, so that pops beside each other spread.
    pub(super) fn oldest(&self, now: Instant) -> Option<u16> {
        self.oldest_of(now, self.us(now, 0), |_, _| true)
    }

    /// The bucket for the next waiting pop: that with the oldest first job, due or about to be, of
    /// those without a pop on its way.
    pub(super) fn to_grant(&self, now: Instant) -> Option<u16> {
        let now_us = self.us(now, 0);
        self.oldest_of(now, now_us.saturating_add(GRANT_LEAD_US), |head, _| {
            head.out.0 == 0 && head.grant_at_us().is_some_and(|us| us <= now_us)
        })
    }

    /// The bucket with the oldest due first job of the masters that have none of these buckets.
    /// While another master has one, none whose due jobs are taken by the pops on their way.
    pub(super) fn oldest_beside(&self, now: Instant, buckets: &[u16]) -> Option<u16> {
        if !self.is_cluster {
            return buckets.is_empty().then(|| self.oldest(now)).flatten();
        }
        let (busy, now_us) = (self.masters_of(buckets), self.us(now, 0));
        self.oldest_of(now, now_us, |head, expected_us| {
            !busy.contains(&head.home)
                && (busy.is_empty() || !head.is_spoken_for(expected_us, now_us))
        })
    }

    /// The masters of these buckets.
    fn masters_of(&self, buckets: &[u16]) -> Vec<usize> {
        let heads = buckets.iter().filter_map(|bucket| self.buckets.get(usize::from(*bucket)));
        heads.map(|head| head.home).collect()
    }

    /// The bucket with the oldest first job that is due by `latest_us`, of those that are meant by
    /// the head and the due time of the job that the next pop is expected to find.
    fn oldest_of(
        &self,
        now: Instant,
        latest_us: i64,
        is_meant: impl Fn(&Head, i64) -> bool,
    ) -> Option<u16> {
        let (silent, count) = (self.silent(now), self.buckets.len());
        let apart_us = self.apart_us(latest_us)?;
        let rank = |(at, head): (usize, &Head)| {
            let due_us = head.due_us.filter(|us| *us <= latest_us)?;
            let expected_us = head.expected_us(due_us, apart_us);
            if silent.contains(&head.home) || !is_meant(head, expected_us) {
                return None;
            }
            let turn = (at + count - self.last - 1) % count;
            Some(((expected_us.min(latest_us), head.out.0, turn), at))
        };
        let (_, at) = self.buckets.iter().enumerate().filter_map(rank).min()?;
        u16::try_from(at).ok()
    }

    /// The average distance of the due first jobs from the oldest, µs; `None` without one. With
    /// evenly spread jobs, the jobs of one bucket are as far apart.
    fn apart_us(&self, now_us: i64) -> Option<i64> {
        let dues = || self.buckets.iter().filter_map(|head| head.due_us.filter(|us| *us <= now_us));
        let first_us = dues().min()?;
        let sum_us = dues().fold(0, |sum: i64, us| sum.saturating_add(us.saturating_sub(first_us)));
        Some(sum_us / i64::try_from(dues().count()).unwrap_or(1))
    }

    /// The jobs that one call asks of this bucket, where pops ask for so many together: as many as
    /// are expected to be due there, up to [`SHARED_JOBS`], or more if all due buckets of the
    /// masters that have none of the buckets `out` have to serve them. `is_again`: a call left one
    /// of these pops without a job, so more than an even share is not expected anywhere.
    pub(super) fn share(
        &self,
        bucket: u16,
        (jobs, is_again): (usize, bool),
        out: &[u16],
        now: Instant,
    ) -> usize {
        let (now_us, silent, busy) = (self.us(now, 0), self.silent(now), self.masters_of(out));
        let is_due = |head: &&Head| {
            head.due_us.is_some_and(|us| us <= now_us)
                && !silent.contains(&head.home)
                && !busy.contains(&head.home)
        };
        let even = jobs.div_ceil(self.buckets.iter().filter(is_due).count().max(1));
        let expected = || {
            let (head, apart_us) = (self.buckets.get(usize::from(bucket))?, self.apart_us(now_us)?);
            let late_us = now_us.saturating_sub(head.expected_us(head.due_us?, apart_us)).max(0);
            usize::try_from(late_us / head.step_us.unwrap_or(apart_us).max(1)).ok()
        };
        let expected = expected().map_or(1, |jobs| jobs.saturating_add(1)).min(SHARED_JOBS);
        let share = if is_again || self.is_sparse { even } else { even.max(expected) };
        // The masters with calls may have the jobs for the others.
        if busy.is_empty() { share } else { share.min(expected) }
    }

    /// The number of pops that have no answer yet.
    pub(super) fn calls_out(&self) -> usize {
        self.buckets.iter().map(|head| head.out.0).sum()
    }

    /// The time from which the next waiting pop may be granted a bucket without a pop on its way.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let silent = self.silent(now);
        let idle =
            self.buckets.iter().filter(|head| head.out.0 == 0 && !silent.contains(&head.home));
        let next_us = idle.filter_map(Head::grant_at_us).min()?;
        Some(now + clock::micros(next_us.saturating_sub(self.us(now, 0))))
    }

    /// The masters that do not answer.
    fn silent(&self, now: Instant) -> Vec<usize> {
        if !self.is_cluster {
            return Vec::new();
        }
        let is_silent = |head: &&Head| {
            head.is_away || head.asked.is_some_and(|since| now >= since + SILENT_MASTER_TIMEOUT)
        };
        self.buckets.iter().filter(is_silent).map(|head| head.home).collect()
    }

    /// Notes that a pop of this bucket begins. Returns the number of the pop.
    pub(super) fn pop_begins(&mut self, bucket: u16, jobs: usize, now: Instant) -> u64 {
        self.calls += 1;
        let at = usize::from(bucket);
        self.last = at;
        if let Some(head) = self.buckets.get_mut(at) {
            head.out = (head.out.0 + 1, head.out.1 + jobs);
            head.asked.get_or_insert(now);
        }
        self.calls
    }

    /// A pop took so many jobs of those that it asked for, and left a first one that is due in so
    /// many µs.
    pub(super) fn pop_took(
        &mut self,
        bucket: u16,
        call: u64,
        (jobs, asked): (usize, usize),
        ahead_us: Option<i64>,
        now: Instant,
    ) {
        self.is_sparse = jobs < asked && ahead_us.is_none_or(|us| us > 0);
        let due_us = ahead_us.map(|us| self.us(now, us));
        let Some(head) = self.buckets.get_mut(usize::from(bucket)) else { return };
        if let (Some(before), Some(after), Ok(jobs @ 1..), true) =
            (head.due_us, due_us, i64::try_from(jobs), call >= head.told)
        {
            let step_us = (after.saturating_sub(before) / jobs).max(0);
            head.step_us =
                Some(head.step_us.map_or(step_us, |us| (3 * us.min(i64::MAX / 4) + step_us) / 4));
        }
        head.is_away = false;
        head.tell(call, due_us);
    }

    /// A granted pop got nothing, and found that the first job is due in so many µs. If it could
    /// have had that job before, the next one comes when the job is due.
    pub(super) fn got_nothing(&mut self, bucket: u16, ahead_us: i64, now: Instant) {
        let due_us = self.us(now, ahead_us);
        if ahead_us <= GRANT_LEAD_US
            && let Some(head) = self.buckets.get_mut(usize::from(bucket))
        {
            head.no_lead_until_us = Some(due_us);
        }
    }

    /// A pop is over, whether it was answered or not.
    pub(super) fn pop_ends(&mut self, bucket: u16, jobs: usize, now: Instant) {
        let Some(head) = self.buckets.get_mut(usize::from(bucket)) else { return };
        head.out = (head.out.0.saturating_sub(1), head.out.1.saturating_sub(jobs));
        head.asked = (head.out.0 > 0).then_some(now);
    }

    /// The master of this bucket did not answer: none of its buckets is popped from until a look is
    /// answered.
    pub(super) fn master_is_away(&mut self, bucket: u16) {
        let Some(home) =
            self.buckets.get(usize::from(bucket)).map(|head| head.home).filter(|_| self.is_cluster)
        else {
            return;
        };
        self.buckets
            .iter_mut()
            .filter(|head| head.home == home)
            .for_each(|head| head.is_away = true);
    }

    /// A pop met a paused queue: a later look or wake-up finds its jobs.
    pub(super) fn is_paused(&mut self, call: u64) {
        self.buckets.iter_mut().for_each(|head| head.tell(call, None));
    }

    /// A job that is due in so many µs became the first of its bucket.
    pub(super) fn wake(&mut self, bucket: u16, ahead_us: i64, now: Instant) {
        let (call, due_us) = (self.calls, self.us(now, ahead_us));
        let Some(head) = self.buckets.get_mut(usize::from(bucket)) else { return };
        if head.due_us.is_none_or(|us| due_us < us) {
            head.due_us = Some(due_us);
        }
        // Of several wake-ups, the earliest that an answer may have missed counts.
        let earlier =
            head.woken.filter(|(at, _)| *at > head.told).map_or(due_us, |(_, us)| us.min(due_us));
        head.woken = Some((call, earlier));
    }

    /// Begins a look. Returns its number, and the buckets to look at: the buckets of masters that
    /// answer, and the others. A bucket whose last look has no answer yet is left out. `homes`: the
    /// number of each bucket's master.
    pub(super) fn look_begins(
        &mut self,
        homes: Option<Vec<usize>>,
        now: Instant,
    ) -> (u64, [Vec<u16>; 2]) {
        for (head, home) in self.buckets.iter_mut().zip(homes.into_iter().flatten()) {
            head.home = home;
        }
        self.calls += 1;
        let silent = self.silent(now);
        let mut parts = [Vec::new(), Vec::new()];
        for (bucket, head) in (0..).zip(&mut self.buckets).filter(|(_, head)| !head.is_looked_at) {
            head.is_looked_at = true;
            parts[usize::from(silent.contains(&head.home))].push(bucket);
        }
        (self.calls, parts)
    }

    /// A look found that the first jobs are due in so many µs; `None`: no answer.
    pub(super) fn looked(
        &mut self,
        call: u64,
        buckets: &[u16],
        found: Option<&[Option<i64>]>,
        now: Instant,
    ) {
        let now_us = self.us(now, 0);
        for (at, bucket) in buckets.iter().enumerate() {
            let Some(head) = self.buckets.get_mut(usize::from(*bucket)) else { continue };
            head.is_looked_at = false;
            if let Some(ahead_us) = found.and_then(|found| found.get(at)) {
                head.is_away = false;
                head.tell(call, ahead_us.map(|us| now_us.saturating_add(us)));
            }
        }
    }

    /// Whether any bucket answered this call or a later one.
    pub(super) fn has_answered(&self, call: u64) -> bool {
        self.buckets.iter().any(|head| head.told >= call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These first jobs, in ms from the start of the process.
    fn heads(dues_ms: &[Option<i64>], is_cluster: bool) -> Heads {
        let mut heads = Heads::new(u16::try_from(dues_ms.len()).unwrap(), is_cluster);
        let (zero, dues_us) =
            (heads.zero, dues_ms.iter().map(|ms| ms.map(|ms| 1000 * ms)).collect::<Vec<_>>());
        let (call, [buckets, _]) = heads.look_begins(None, zero);
        heads.looked(call, &buckets, Some(&dues_us), zero);
        heads
    }

    fn due_ms(heads: &Heads, bucket: u16) -> Option<i64> {
        heads.buckets[usize::from(bucket)].due_us.map(|us| us / 1000)
    }

    /// A pop of one job leaves the next one, so many ms later.
    fn pop(heads: &mut Heads, bucket: u16, step_ms: i64) {
        let (zero, next_us) = (heads.zero, due_ms(heads, bucket).map(|ms| 1000 * (ms + step_ms)));
        let call = heads.pop_begins(bucket, 1, zero);
        heads.pop_took(bucket, call, (1, 1), next_us, zero);
        heads.pop_ends(bucket, 1, zero);
    }

    #[test]
    fn the_bucket_with_the_oldest_first_job_comes_first_and_equals_take_turns() {
        let mut heads = heads(&[Some(30), Some(10), None, Some(10), Some(99)], false);
        let now = heads.zero + Duration::from_millis(50);
        let mut order = Vec::new();
        for _ in 0..4 {
            let bucket = heads.oldest(now).unwrap();
            pop(&mut heads, bucket, 20);
            order.push(bucket);
        }
        assert_eq!((order, heads.next(now)), (vec![1, 3, 0, 1], Some(now)));
    }

    #[test]
    fn a_waiting_pop_is_granted_a_bucket_shortly_before_its_job_is_due() {
        let mut heads = heads(&[Some(10), Some(50)], false);
        let zero = heads.zero;
        let at = |ms| zero + Duration::from_millis(ms);
        assert_eq!(
            (heads.next(zero), heads.to_grant(at(6)), heads.to_grant(at(7))),
            (Some(at(7)), None, Some(0))
        );
        assert_eq!(heads.oldest(at(7)), None, "a pop that does not wait gets what is due");
        // The first job waits for its retry.
        heads.got_nothing(0, 3000, at(7));
        assert_eq!(
            (heads.next(at(7)), heads.to_grant(at(9)), heads.to_grant(at(10))),
            (Some(at(10)), None, Some(0))
        );
        pop(&mut heads, 0, 10);
        assert_eq!(heads.next(at(11)), Some(at(17)), "the job after it is due at 20");
        heads.got_nothing(0, 9000, at(11));
        assert_eq!(heads.next(at(11)), Some(at(17)), "no call could have had it yet");
    }

    #[test]
    fn pops_beside_each_other_spread_as_their_jobs_are_expected_to_be_due() {
        let mut heads = heads(&[Some(0), Some(100)], false);
        let now = heads.zero + Duration::from_secs(1);
        pop(&mut heads, 0, 30);
        let order: Vec<u16> = (0..4)
            .map(|_| {
                let bucket = heads.oldest(now).unwrap();
                heads.pop_begins(bucket, 1, now);
                bucket
            })
            .collect();
        // Expected at 30, 60, 90, then 120 beside 100.
        assert_eq!(order, [0, 0, 0, 1]);
        assert_eq!(heads.to_grant(now), None, "each has a pop on its way");
    }

    #[test]
    fn a_wake_up_during_a_call_stands_and_a_later_answer_replaces_it() {
        let (mut heads, zero) = (heads(&[None, None], false), clock::now());
        heads.zero = zero;
        let (look, [buckets, _]) = heads.look_begins(None, zero);
        heads.wake(1, 100_000, zero);
        heads.looked(look, &buckets, Some(&[None, Some(200_000)]), zero);
        assert_eq!([due_ms(&heads, 0), due_ms(&heads, 1)], [None, Some(100)]);
        let first = heads.pop_begins(1, 1, zero);
        let second = heads.pop_begins(1, 1, zero);
        heads.pop_took(1, second, (1, 1), Some(300_000), zero);
        // Its answer is older.
        heads.pop_took(1, first, (1, 1), Some(200_000), zero);
        assert_eq!(due_ms(&heads, 1), Some(300));
    }

    #[test]
    fn a_master_that_does_not_answer_is_left_out_until_a_look_is_answered() {
        let mut heads = heads(&[Some(1), Some(2), Some(3)], true);
        let now = heads.zero + Duration::from_secs(1);
        let (call, [all, _]) = heads.look_begins(Some(vec![0, 1, 0]), now);
        heads.looked(call, &all, Some(&[Some(-3), Some(-2), Some(-1)]), now);
        heads.pop_begins(0, 1, now);
        assert_eq!(heads.to_grant(now), Some(1));
        let later = now + SILENT_MASTER_TIMEOUT;
        assert_eq!(heads.oldest(later), Some(1));
        heads.pop_ends(0, 1, later);
        heads.master_is_away(0);
        let (call, parts) = heads.look_begins(None, later);
        assert_eq!((heads.oldest(later), parts.clone()), (Some(1), [vec![1], vec![0, 2]]));
        assert!(heads.look_begins(None, later).1.iter().all(Vec::is_empty), "one look at a time");
        heads.looked(call, &parts[1], Some(&[Some(-900_000), Some(-1)]), later);
        assert_eq!(heads.oldest(later), Some(0));
    }

    #[test]
    fn a_call_of_several_pops_asks_for_the_jobs_that_are_expected_to_be_due() {
        let mut heads = heads(&[Some(0), Some(0), Some(900), None], false);
        let now = heads.zero + Duration::from_secs(1);
        let share = |heads: &Heads, bucket, jobs| heads.share(bucket, (jobs, false), &[], now);
        // Three buckets are due, and their first jobs are 300 ms apart.
        assert_eq!([0, 2, 3].map(|bucket| share(&heads, bucket, 3)), [4, 1, 1]);
        assert_eq!(share(&heads, 0, 100), 34, "the due buckets together serve all");
        // Their distance gets known.
        pop(&mut heads, 0, 10);
        assert_eq!(share(&heads, 0, 3), SHARED_JOBS);
        assert_eq!(heads.share(0, (3, true), &[], now), 1, "a call left one of them without a job");
        pop(&mut heads, 1, 990);
        assert_eq!(share(&heads, 1, 1), 1);
        heads.pop_begins(0, 98, now);
        assert_eq!(share(&heads, 0, 1), 2, "others take the jobs before");
        // The next one would be due later.
        let call = heads.pop_begins(2, 2, now);
        heads.pop_took(2, call, (1, 2), Some(1), now);
        assert_eq!(share(&heads, 0, 2), 1, "a call found fewer jobs than it asked for");
    }

    #[test]
    fn calls_of_several_pops_follow_each_other_on_each_master() {
        let due = [Some(1), Some(2), Some(3)];
        let single = heads(&due, false);
        let now = single.zero + Duration::from_secs(1);
        assert_eq!([&[][..], &[1]].map(|out| single.oldest_beside(now, out)), [Some(0), None]);
        let mut cluster = heads(&due, true);
        let now = cluster.zero + Duration::from_secs(1);
        cluster.look_begins(Some(vec![0, 1, 0]), now);
        let beside = [&[][..], &[2], &[1], &[0, 1]].map(|out| cluster.oldest_beside(now, out));
        assert_eq!(beside, [Some(0), Some(1), Some(0), None]);
    }
}
