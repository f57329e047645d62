//! The bucket of a duration in a histogram, found without a search.

/// Upper bounds of buckets in nanoseconds, each at least twice the one before; the last one is `u64::MAX`.
///
/// So there is at most one bound between two powers of two, and a value is compared with that one only.
pub(super) struct Buckets<const N: usize> {
    bounds: [u64; N],
    /// For each power of two, the number of bounds below it.
    below: [u8; u64::BITS as usize],
}

impl<const N: usize> Buckets<N> {
    pub(super) const fn new(bounds: [u64; N]) -> Self {
        let (mut below, mut power) = ([0; u64::BITS as usize], 0);
        while power < below.len() {
            while bounds[below[power] as usize] < 1 << power {
                below[power] += 1;
            }
            power += 1;
        }
        Self { bounds, below }
    }

    /// Returns the index of the first bound that `nanos` does not exceed.
    #[inline]
    pub(super) fn of(&self, nanos: u64) -> usize {
        let first = usize::from(self.below[(nanos | 1).ilog2() as usize]);
        first + usize::from(nanos > self.bounds[first])
    }

    /// Returns the bounds in seconds; the last one is infinite.
    pub(super) fn in_seconds(&self) -> impl Iterator<Item = f64> {
        let finite = self.bounds[..N - 1].iter().map(|bound| *bound as f64 / 1e9);
        finite.chain([f64::INFINITY])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_first_bound_that_it_does_not_exceed() {
        const BOUNDS: [u64; 5] = [1, 5, 10, 1_000_000, u64::MAX];
        let buckets = Buckets::new(BOUNDS);
        let values = BOUNDS.into_iter().flat_map(|bound| [bound - 1, bound, bound.saturating_add(1)]);
        for value in values.chain((0..64).map(|power| 1 << power)) {
            assert_eq!(buckets.of(value), BOUNDS.partition_point(|bound| *bound < value), "{value}");
        }
        assert_eq!(buckets.in_seconds().collect::<Vec<_>>(), [1e-9, 5e-9, 1e-8, 1e-3, f64::INFINITY]);
    }
}
