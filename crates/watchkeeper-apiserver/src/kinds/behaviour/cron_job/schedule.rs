//! The syntax of schedules: five fields in the manner of crontab, or a descriptor. The controller has the times.

use crate::failure::quoted;
use crate::kinds::go_duration;

/// The bounds of a field, and the words for its values.
struct Bounds {
    least: u64,
    most: u64,
    words: &'static [&'static str],
    /// The value of the first word.
    first: u64,
}

const fn numbers(least: u64, most: u64) -> Bounds {
    Bounds { least, most, words: &[], first: 0 }
}

const FIELDS: [Bounds; 5] = [
    numbers(0, 59),
    numbers(0, 23),
    numbers(1, 31),
    Bounds { words: MONTHS, first: 1, ..numbers(1, 12) },
    Bounds { words: DAYS, ..numbers(0, 6) },
];
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DESCRIPTORS: &[&str] =
    &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Says why a schedule cannot be understood, in the words of the real server.
pub(super) fn problem(schedule: &str) -> Option<String> {
    check(schedule).err()
}

fn check(schedule: &str) -> Result<(), String> {
    let has_zone = ["TZ=", "CRON_TZ="].iter().any(|prefix| schedule.starts_with(prefix));
    let (_, spec) = schedule.split_once(' ').filter(|_| has_zone).unwrap_or(("", schedule));
    let spec = spec.trim();
    if spec.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if spec.starts_with('@') {
        return match spec.strip_prefix("@every ") {
            None if DESCRIPTORS.contains(&spec) => Ok(()),
            None => Err(format!("unrecognized descriptor: {spec}")),
            Some(period) => match go_duration::problem(period) {
                None => Ok(()),
                Some(problem) => Err(format!("failed to parse duration {spec}: {problem}")),
            },
        };
    }
    let fields: Vec<_> = spec.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let ranges = fields.iter().zip(&FIELDS);
    ranges
        .flat_map(|(field, bounds)| field.split(',').map(move |range| (range, bounds)))
        .try_for_each(|(range, bounds)| if range.is_empty() { Ok(()) } else { check_range(range, bounds) })
}

/// Checks one range with its step, such as `*`, `5`, `1-5` or `*/15`.
fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<_> = text.split('/').collect();
    let ends: Vec<_> = parts[0].split('-').collect();
    let is_all = ["*", "?"].contains(&ends[0]);
    let start = if is_all { bounds.least } else { value(ends[0], bounds)? };
    let mut end = match ends[..] {
        _ if is_all => bounds.most,
        [_] => start,
        [_, end] => value(end, bounds)?,
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { least, most, .. } = bounds;
    if start < *least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > *most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let at = bounds.words.iter().position(|word| word.eq_ignore_ascii_case(text));
    at.map_or_else(|| number(text), |at| Ok(bounds.first + at as u64))
}

fn number(text: &str) -> Result<u64, String> {
    let number: i64 = text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax", quoted(text))
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // robfig/cron: TestParseScheduleErrors
    #[test]
    fn schedules_are_read_as_by_the_real_server() {
        for good in [
            "*/5 * * * ?",
            "0 0 1,15 jan-MAR mon",
            "59 23 31 12 6",
            "@hourly",
            "@every 1h30m",
            "5/15 * * * *",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, expected) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("@unknown", "unrecognized descriptor: @unknown"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(problem(bad).as_deref(), Some(expected), "{bad}");
        }
    }
}
