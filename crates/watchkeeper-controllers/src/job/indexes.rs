//! Sets of completion indexes, written as `1,3-5,7`.

use std::fmt;

/// A set of indexes, as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads a set. Indexes of `completions` and above, and what cannot be understood, are left out.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let ranges = text.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<i32>().ok()?);
            let last = last.min(completions - 1);
            (0 <= first && first <= last).then_some((first, last))
        });
        Self::of_ranges(ranges.collect())
    }

    fn of_ranges(mut ranges: Vec<(i32, i32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// This set and more indexes.
    pub(super) fn with(&self, more: impl IntoIterator<Item = i32>) -> Self {
        let more = more.into_iter().map(|index| (index, index));
        Self::of_ranges(self.0.iter().copied().chain(more).collect())
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after > 0 && self.0[after - 1].1 >= index
    }

    /// The number of indexes.
    pub(super) fn count(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The number of indexes that are also in `other`.
    pub(super) fn common(&self, other: &Self) -> i32 {
        let overlap = |(first, last): &(i32, i32)| {
            let parts = other.0.iter().map(|(from, to)| (last.min(to) - first.max(from) + 1).max(0));
            parts.sum::<i32>()
        };
        self.0.iter().map(overlap).sum()
    }

    /// The set for a status; none if it is empty.
    pub(super) fn shown(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.to_string())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_it_is_read() {
        for text in ["", "0", "0,1", "1,3-5,7", "0-99999"] {
            assert_eq!(Indexes::parse(text, 100_000).to_string(), text);
        }
        assert_eq!(Indexes::parse("3-9,x,-1,2", 6).to_string(), "2-5");
    }

    #[test]
    fn indexes_are_added_and_counted() {
        let set = Indexes::parse("1,3-5", 10).with([2, 9, 4]);
        assert_eq!((set.to_string().as_str(), set.count()), ("1-5,9", 6));
        assert!(set.contains(1) && set.contains(5) && set.contains(9));
        assert!(!set.contains(0) && !set.contains(6) && !set.contains(10));
        assert_eq!(set.common(&Indexes::parse("0-1,5-9", 10)), 3);
        assert_eq!(Indexes::default().shown(), None);
    }
}
