//! A field of a cron expression: its items, and those of numbers as a set.

use dwell_core::quote;

use crate::error::ParseError;

/// A field, by its bounds and names.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) min: u8,
    pub(crate) max: u8,
    /// Names of the values from `min`.
    names: &'static [&'static str],
    /// Whether `?` is `*`.
    is_of_days: bool,
    forms: &'static str,
}

pub(crate) const SECOND: Field = Field::clock("second", 59);
pub(crate) const MINUTE: Field = Field::clock("minute", 59);
pub(crate) const HOUR: Field = Field::clock("hour", 23);
pub(crate) const DAY_OF_MONTH: Field = Field {
    name: "day of month",
    min: 1,
    max: 31,
    names: &[],
    is_of_days: true,
    forms: "write 1 to 31, *, a list, a range or a step of them, L, LW or 15W",
};
pub(crate) const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    is_of_days: false,
    forms: "write 1 to 12, JAN to DEC, *, or a list, a range or a step of them",
};
/// Sunday is 0 and 7.
pub(crate) const DAY_OF_WEEK: Field = Field {
    name: "day of week",
    min: 0,
    max: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    is_of_days: true,
    forms: "write 0 to 7, SUN to SAT, *, a list, a range or a step of them, 5L or 5#2",
};

impl Field {
    const fn clock(name: &'static str, max: u8) -> Self {
        let forms = if max == 23 {
            "write 0 to 23, *, or a list, a range or a step of them"
        } else {
            "write 0 to 59, *, or a list, a range or a step of them"
        };
        Self { name, min: 0, max, names: &[], is_of_days: false, forms }
    }

    /// Whether the text is `*`, or `?` in a field of days, and nothing else.
    pub(crate) fn is_wild(&self, text: &str) -> bool {
        text == "*" || (self.is_of_days && text == "?")
    }

    /// The items of a list, in upper case.
    pub(crate) fn items(&self, text: &str) -> Result<Vec<String>, ParseError> {
        let items: Vec<String> = text.split(',').map(str::to_ascii_uppercase).collect();
        if items.iter().any(String::is_empty) {
            return Err(self.flaw(text, "has an empty item", "remove a comma"));
        }
        if items.len() > 1 && items.iter().any(|item| self.is_wild(item)) {
            return Err(self.flaw(text, "has * in a list", "write * alone"));
        }
        Ok(items)
    }

    /// The set of a list of numbers: bit n is the value n.
    pub(crate) fn set(&self, text: &str) -> Result<u64, ParseError> {
        self.items(text)?.iter().try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    /// The set of an item without L, W and #: `*`, `5`, `1-5`, each also with a step.
    pub(crate) fn item(&self, item: &str) -> Result<u64, ParseError> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(item, step)?)),
            None => (item, None),
        };
        let (first, last) = if self.is_wild(range) {
            (self.min, self.max)
        } else if let Some((first, last)) = range.split_once('-') {
            self.range(item, first, last)?
        } else if range.is_empty() {
            let advice = format!("write *{item}");
            return Err(self.flaw(item, "has nothing before the step", &advice));
        } else {
            let value = self.value(item, range)?;
            (value, if step.is_some() { self.max } else { value })
        };
        let step = step.unwrap_or(1);
        Ok((first..=last).step_by(step).fold(0, |set, value| set | 1 << value))
    }

    fn range(&self, item: &str, first: &str, last: &str) -> Result<(u8, u8), ParseError> {
        let from = self.value(item, first)?;
        let mut to = self.value(item, last)?;
        // The Sunday at the end of FRI-SUN.
        if last == "SUN" && from > 0 {
            to = self.max;
        }
        if from > to {
            let advice = format!("write {first}-{},{}-{last}", self.max_name(), self.min_name());
            return Err(self.flaw(item, "runs backwards", &advice));
        }
        Ok((from, to))
    }

    fn max_name(&self) -> String {
        self.names.last().map_or_else(|| self.max.to_string(), |name| (*name).to_owned())
    }

    fn min_name(&self) -> String {
        self.names.first().map_or_else(|| self.min.to_string(), |name| (*name).to_owned())
    }

    /// A step, 1 or more. A long one leaves the first value alone.
    fn step(&self, item: &str, step: &str) -> Result<usize, ParseError> {
        if step.is_empty() || !step.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.flaw(item, "has a step that is no number", "write */15"));
        }
        match step.parse::<u32>() {
            Ok(0) => Err(self.flaw(item, "has a step of 0", "write 1 or more")),
            Ok(step) => Ok(step as usize),
            Err(_) => Err(self.flaw(item, "has a step that is too large", "write */15")),
        }
    }

    /// A number or a name of this field. `item`: where it stands.
    pub(crate) fn value(&self, item: &str, text: &str) -> Result<u8, ParseError> {
        if let Some(index) = self.names.iter().position(|name| *name == text) {
            // A name is at most the twelfth.
            return Ok(self.min + index as u8);
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(match self.other_field(text) {
                Some(advice) => self.flaw(item, "has a name of another field", advice),
                None => self.flaw(item, "cannot be read", self.forms),
            });
        }
        match text.parse::<u8>() {
            Ok(value) if (self.min..=self.max).contains(&value) => Ok(value),
            _ => Err(self.flaw(item, "is out of range", self.forms)),
        }
    }

    /// Where a name that this field does not have belongs.
    fn other_field(&self, text: &str) -> Option<&'static str> {
        if DAY_OF_WEEK.names.contains(&text) {
            Some("weekdays belong in the last field")
        } else if MONTH.names.contains(&text) {
            Some("months belong in the field before the last")
        } else {
            None
        }
    }

    pub(crate) fn flaw(&self, text: &str, flaw: &str, advice: &str) -> ParseError {
        ParseError::new(format!("{} {} {flaw}: {advice}", self.name, quote(text)))
    }
}
