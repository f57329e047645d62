//! Schedules in cron format: five fields, or a name such as `@daily`.

use std::time::Duration;

use jiff::civil::Weekday;
use jiff::{ToSpan, Zoned};

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// A schedule without a time within so many years has none.
const YEARS: i16 = 5;

/// When something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    Every(Duration),
    At(Box<Fields>),
}

/// The minutes, hours and days of a schedule; a set is a word with a bit for each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether any day of the month will do, so that only the day of the week counts; and the reverse.
    is_any_day: bool,
    is_any_weekday: bool,
}

impl Schedule {
    /// Reads a schedule. The error says in words what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let fields = match text {
            "" => return Err("empty spec string".to_owned()),
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => match other.strip_prefix("@every ") {
                Some(every) => return every_of(every).map(Self::Every),
                None if other.starts_with('@') => return Err(format!("unrecognized descriptor: {other}")),
                None => other,
            },
        };
        let parts: Vec<_> = fields.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
        };
        Ok(Self::At(Box::new(Fields {
            minutes: set(minutes, 0, 59, &[])?,
            hours: set(hours, 0, 23, &[])?,
            days: set(days, 1, 31, &[])?,
            months: set(months, 1, 12, &MONTHS)?,
            weekdays: set(weekdays, 0, 6, &DAYS)?,
            is_any_day: is_any(days),
            is_any_weekday: is_any(weekdays),
        })))
    }

    /// The first time of the schedule after `then`, in the time zone of `then`.
    pub(super) fn next(&self, then: &Zoned) -> Option<Zoned> {
        match self {
            Self::Every(every) => {
                let whole = then.timestamp().as_second();
                let seconds = whole.checked_add(i64::try_from(every.as_secs()).ok()?)?;
                Some(jiff::Timestamp::from_second(seconds).ok()?.to_zoned(then.time_zone().clone()))
            }
            Self::At(fields) => fields.next(then),
        }
    }
}

impl Fields {
    fn next(&self, then: &Zoned) -> Option<Zoned> {
        let last = then.year().checked_add(YEARS)?;
        let seconds = i64::from(then.second());
        let mut time = then.with().subsec_nanosecond(0).build().ok()?;
        time = time.checked_add((60 - seconds).seconds()).ok()?;
        while time.year() <= last {
            // Days begin by the calendar; hours and minutes pass, also where clocks are changed.
            time = if !has(self.months, i64::from(time.month())) {
                time.last_of_month().ok()?.tomorrow().ok()?.start_of_day().ok()?
            } else if !self.has_day(&time) {
                time.tomorrow().ok()?.start_of_day().ok()?
            } else if !has(self.hours, i64::from(time.hour())) {
                time.checked_add((60 - i64::from(time.minute())).minutes()).ok()?
            } else if !has(self.minutes, i64::from(time.minute())) {
                time.checked_add(1.minute()).ok()?
            } else {
                return Some(time);
            };
        }
        None
    }

    /// Whether a day will do: if both kinds of days are restricted, either is enough.
    fn has_day(&self, time: &Zoned) -> bool {
        let is_day = has(self.days, i64::from(time.day()));
        let is_weekday = has(self.weekdays, i64::from(sunday_based(time.weekday())));
        if self.is_any_day || self.is_any_weekday { is_day && is_weekday } else { is_day || is_weekday }
    }
}

fn sunday_based(day: Weekday) -> i8 {
    day.to_sunday_zero_offset()
}

fn has(set: u64, value: i64) -> bool {
    u32::try_from(value).is_ok_and(|value| set.checked_shr(value).unwrap_or_default() & 1 == 1)
}

fn is_any(field: &str) -> bool {
    field.split(',').any(|part| matches!(part.split('/').next(), Some("*" | "?")))
}

/// Reads a field: values, ranges and steps, separated by commas.
fn set(field: &str, first: u32, last: u32, names: &[&str]) -> Result<u64, String> {
    let mut set = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = step.parse().ok().filter(|step| *step > 0);
                (
                    range,
                    Some(step.ok_or_else(|| format!("step of range should be a positive number: {part}"))?),
                )
            }
            None => (part, None),
        };
        let value = |text: &str| value(text, first, names);
        let (from, to) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (first, last),
            Some((from, to)) => (value(from)?, value(to)?),
            None => {
                let only = value(range)?;
                (only, if step.is_some() { last } else { only })
            }
        };
        if from < first {
            return Err(format!("beginning of range ({from}) below minimum ({first}): {part}"));
        }
        if to > last {
            return Err(format!("end of range ({to}) above maximum ({last}): {part}"));
        }
        if from > to {
            return Err(format!("beginning of range ({from}) beyond end of range ({to}): {part}"));
        }
        set |= (from..=to).step_by(step.unwrap_or(1)).fold(0, |set, value| set | 1_u64 << value);
    }
    Ok(set)
}

fn value(text: &str, first: u32, names: &[&str]) -> Result<u32, String> {
    let at = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    let named = at.and_then(|at| u32::try_from(at).ok()).map(|at| at + first);
    named.or_else(|| text.parse().ok()).ok_or_else(|| format!("failed to parse int from {text}"))
}

/// Reads a duration such as `1h30m`, in whole seconds and at least one.
fn every_of(text: &str) -> Result<Duration, String> {
    let fail = || format!("failed to parse duration @every {text}");
    let (mut total, mut rest) = (0.0, text.trim());
    while !rest.is_empty() {
        let digits = rest.find(|sign: char| sign.is_ascii_alphabetic()).ok_or_else(fail)?;
        let number: f64 = rest[..digits].parse().map_err(|_| fail())?;
        let unit_end = rest[digits..].find(|sign: char| !sign.is_ascii_alphabetic());
        let unit_end = unit_end.map_or(rest.len(), |end| digits + end);
        total += number
            * match &rest[digits..unit_end] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(fail()),
            };
        rest = &rest[unit_end..];
    }
    let every = Duration::try_from_secs_f64(total).map_err(|_| fail())?;
    Ok(Duration::from_secs(every.as_secs().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, then: &str) -> String {
        let then: Zoned = then.parse().unwrap();
        let next = Schedule::parse(schedule).unwrap().next(&then);
        next.map_or("never".to_owned(), |next| next.strftime("%F %H:%M:%S").to_string())
    }

    #[test]
    fn the_next_time_is_the_first_that_all_fields_allow() {
        let then = "2026-01-01T00:00:00[UTC]"; // A Thursday.
        for (schedule, expected) in [
            ("* * * * *", "2026-01-01 00:01:00"),
            ("*/15 * * * *", "2026-01-01 00:15:00"),
            ("5/20 3 * * *", "2026-01-01 03:05:00"),
            ("0 0 * * *", "2026-01-02 00:00:00"),
            ("30 6-16/4 * * MON-FRI", "2026-01-01 06:30:00"),
            ("0 12 * feb,Mar sun", "2026-02-01 12:00:00"),
            ("0 0 31 * *", "2026-01-31 00:00:00"),
            ("0 0 13 * 5", "2026-01-02 00:00:00"),
            ("0 0 29 2 *", "2028-02-29 00:00:00"),
            ("0 0 31 2 *", "never"),
            ("@hourly", "2026-01-01 01:00:00"),
            ("@every 1h30m", "2026-01-01 01:30:00"),
            ("59 23 31 12 ?", "2026-12-31 23:59:00"),
        ] {
            assert_eq!(next(schedule, then), expected, "{schedule}");
        }
        assert_eq!(next("* * * * *", "2026-01-01T00:00:59.5[UTC]"), "2026-01-01 00:01:00");
    }

    #[test]
    fn times_are_those_of_the_time_zone() {
        assert_eq!(next("0 9 * * *", "2026-07-01T09:00:00[Europe/Berlin]"), "2026-07-02 09:00:00");
        // There is no half past two on this day.
        assert_eq!(next("30 2 * * *", "2026-03-29T00:00:00[Europe/Berlin]"), "2026-03-30 02:30:00");
        assert_eq!(next("0 * * * *", "2026-03-29T01:30:00[Europe/Berlin]"), "2026-03-29 03:00:00");
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_a_reason() {
        for (schedule, why) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-2 * * * *", "beginning of range (5) beyond end of range (2): 5-2"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every x", "failed to parse duration @every x"),
        ] {
            assert_eq!(Schedule::parse(schedule).unwrap_err(), why, "{schedule}");
        }
    }
}
