//! Ages in tables, with at most two units: `45s`, `4m30s`, `3h5m`, `2d5h`, `20d`.

use jiff::Timestamp;
use serde_json::Value;

/// Returns the time since a timestamp, or `<unknown>`.
pub(crate) fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => human(now.as_second() - time.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// Formats a duration in seconds.
pub(crate) fn human(seconds: i64) -> String {
    // A small negative age is clock skew; a larger one is invalid.
    match seconds {
        ..-1 => return "<invalid>".to_owned(),
        -1..0 => return "0s".to_owned(),
        0..120 => return format!("{seconds}s"),
        _ => {}
    }
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match () {
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_have_one_or_two_units() {
        for (seconds, text) in [
            (0, "0s"),
            (-1, "0s"),
            (-5, "<invalid>"),
            (119, "119s"),
            (120, "2m"),
            (270, "4m30s"),
            (2700, "45m"),
            (11_100, "3h5m"),
            (108_000, "30h"),
            (190_800, "2d5h"),
            (1_728_000, "20d"),
            (86_400 * 800, "2y70d"),
            (86_400 * 3650, "10y"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }
}
