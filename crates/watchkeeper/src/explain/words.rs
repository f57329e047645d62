//! Durations and times in words.

use std::time::Duration;

use crate::clock::{Clock, Instant};

/// Returns a duration to the precision that a reader needs: `350 ms`, `42 s`, `5 min`, `3 h`, `4 days`.
pub(super) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns a number with its noun, in the plural unless it is one.
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns the plural of a kind, such as `ConfigMaps`, after its plural name, such as `configmaps`.
pub(super) fn kinds(kind: &str, plural: &str) -> String {
    let plural = plural.split('.').next().unwrap_or(plural);
    let is_same = |(one, other): &(char, char)| one.eq_ignore_ascii_case(other);
    let common = kind.chars().zip(plural.chars()).take_while(is_same).count();
    kind.chars().take(common).chain(plural.chars().skip(common)).collect()
}

/// Returns a number as a rank: `1st`, `2nd`, `11th`.
pub(super) fn ordinal(number: u32) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Turns the monotonic times of records into wall times.
pub(super) struct Times {
    pub(super) now: Instant,
    wall: jiff::Timestamp,
}

impl Times {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { now: clock.now(), wall: clock.wall() }
    }

    /// Returns the wall time of `at`, in RFC 3339 with milliseconds.
    pub(super) fn wall(&self, at: Instant) -> String {
        let wall = if at <= self.now {
            self.wall.checked_sub(self.now - at)
        } else {
            self.wall.checked_add(at - self.now)
        };
        wall.unwrap_or(self.wall).strftime("%FT%T.%3fZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    #[test]
    fn durations_are_rounded_down_to_their_unit() {
        let words = |millis| human(Duration::from_millis(millis));
        assert_eq!([words(0), words(999), words(1_500), words(119_999)], ["0 ms", "999 ms", "1 s", "119 s"]);
        assert_eq!([words(120_000), words(7_200_000), words(172_800_000)], ["2 min", "2 h", "2 days"]);
        assert_eq!([counted(1, "key"), counted(0, "key")], ["1 key", "0 keys"]);
        let plurals = [
            ("ConfigMap", "configmaps"),
            ("Ingress", "ingresses.networking.k8s.io"),
            ("Endpoints", "endpoints"),
        ];
        assert_eq!(
            plurals.map(|(kind, plural)| kinds(kind, plural)),
            ["ConfigMaps", "Ingresses", "Endpoints"]
        );
        assert_eq!(kinds("NetworkPolicy", "networkpolicies"), "NetworkPolicies");
        let ranks = [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal);
        assert_eq!(ranks, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]);
    }

    #[tokio::test(start_paused = true)]
    async fn times_before_and_after_now_become_wall_times() {
        let clock = Env::simulated(1).clock;
        let times = Times::new(&clock);
        let later = times.now + Duration::from_millis(1_500);
        let (first, second): (jiff::Timestamp, jiff::Timestamp) =
            (times.wall(times.now).parse().unwrap(), times.wall(later).parse().unwrap());
        assert_eq!(second.duration_since(first), jiff::SignedDuration::from_millis(1_500));
    }
}
