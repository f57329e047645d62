//! Random names, words and numbers that look like those of a cluster.

use watchkeeper::clock::Generator;

const WORDS: [&str; 40] = [
    "api",
    "auth",
    "billing",
    "cart",
    "catalog",
    "checkout",
    "config",
    "crawler",
    "data",
    "edge",
    "email",
    "events",
    "export",
    "feed",
    "gateway",
    "geo",
    "graph",
    "identity",
    "import",
    "index",
    "inventory",
    "ledger",
    "media",
    "metrics",
    "notify",
    "orders",
    "payments",
    "planner",
    "pricing",
    "profile",
    "proxy",
    "quota",
    "ranking",
    "reports",
    "search",
    "session",
    "shipping",
    "stream",
    "tenant",
    "worker",
];

/// The letters and digits that the control plane makes suffixes of.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A number below `bound`, small ones more often; the greater `power`, the more so.
pub(super) fn skewed(chance: &Generator, bound: u64, power: f64) -> u64 {
    (chance.unit().powf(power) * bound as f64) as u64
}

/// Whether something of probability `percent` happens.
pub(super) fn happens(chance: &Generator, percent: u64) -> bool {
    chance.below(100) < percent
}

/// One of `choices`.
pub(super) fn one<'a>(chance: &Generator, choices: &[&'a str]) -> &'a str {
    choices[chance.below(choices.len() as u64) as usize]
}

/// A word of the trade.
pub(super) fn word(chance: &Generator) -> &'static str {
    one(chance, &WORDS)
}

/// `length` letters and digits as the control plane would choose them.
pub(super) fn letters(chance: &Generator, length: usize) -> String {
    (0..length).map(|_| char::from(ALPHABET[chance.below(27) as usize])).collect()
}

/// `length` hexadecimal digits, as in digests and container ids.
pub(super) fn hex(chance: &Generator, length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        text += &format!("{:016x}", chance.next_u64());
    }
    text.truncate(length);
    text
}

/// Five letters and digits that no other index below 27^5 has.
pub(super) fn unique_suffix(index: u32) -> String {
    const ALL: u64 = 27_u64.pow(5);
    // A factor that shares no divisor with 27 permutes the numbers below `ALL`.
    let mut number = (u64::from(index) * 8_675_309 + 5_551_212) % ALL;
    let mut suffix = String::new();
    for _ in 0..5 {
        suffix.push(char::from(ALPHABET[(number % 27) as usize]));
        number /= 27;
    }
    suffix
}

/// Several words with a space between them.
pub(super) fn phrase(chance: &Generator, words: u64) -> String {
    (0..words).map(|_| word(chance)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn suffixes_do_not_repeat() {
        let suffixes: BTreeSet<_> = (0..100_000).map(unique_suffix).collect();
        assert_eq!(suffixes.len(), 100_000);
    }

    #[test]
    fn skewed_numbers_stay_below_their_bound_and_are_mostly_small() {
        let chance = Generator::seeded(1);
        let drawn: Vec<_> = (0..1000).map(|_| skewed(&chance, 100, 3.0)).collect();
        assert!(drawn.iter().all(|number| *number < 100));
        assert!(drawn.iter().filter(|number| **number < 25).count() > 500);
    }
}
