//! Assembling one JSON value from chunks, with as little copying as possible.

use crate::object::scan::Skipper;
use crate::object::{Malformed, ObjectName, name_hint};

/// The reason why a stream of JSON cannot be split any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The structure is broken; `at` counts from the start of the current chunk or value.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Something other than an object is larger than the cap.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The stream ended inside a value.
    #[error("the answer ended in the middle of a value")]
    Truncated,
}

/// The error of a value over the cap, which was skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{size} bytes are more than the cap of {cap}: keep such objects out with a selector")]
pub struct TooLarge {
    /// The size of the value.
    pub size: usize,
    /// The maximum size.
    pub cap: usize,
    /// The name of the object, if its beginning contains it.
    pub name: Option<ObjectName>,
}

/// The default cap on the size of one object: 16 MiB, as in client-go.
pub(crate) const OBJECT_CAP: usize = 16 << 20;

/// The number of bytes kept of a value over the cap, to find its name in.
const HEAD: usize = 64 << 10;

/// One value that may be spread over chunks. Its bytes are buffered only if it is, and only up to the cap.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    skipper: Skipper,
    carry: Vec<u8>,
    /// Bytes of the value so far.
    size: usize,
}

/// The result of [`Pending::take`].
pub(crate) enum Taken<'a> {
    /// The whole value, and its number of bytes in the chunk.
    Whole(&'a [u8], usize),
    /// The end of a value over the cap, and its number of bytes in the chunk.
    TooLarge(TooLarge, usize),
    /// The whole chunk belongs to the value, which continues.
    More,
}

impl Pending {
    /// Begins a new value. Its bytes come with the next call of `take`.
    pub(crate) fn reset(&mut self) {
        self.skipper = Skipper::default();
        self.carry.clear();
        self.size = 0;
        // One huge object must not pin its buffer for the life of the stream.
        self.carry.shrink_to(1 << 20);
    }

    pub(crate) fn take<'a>(&'a mut self, chunk: &'a [u8], cap: usize) -> Taken<'a> {
        let end = self.skipper.feed(chunk);
        let piece = &chunk[..end.unwrap_or(chunk.len())];
        self.size += piece.len();
        if self.size > cap {
            let room = HEAD.saturating_sub(self.carry.len()).min(piece.len());
            self.carry.truncate(HEAD);
            self.carry.extend_from_slice(&piece[..room]);
            return match end {
                Some(end) => {
                    Taken::TooLarge(TooLarge { size: self.size, cap, name: name_hint(&self.carry) }, end)
                }
                None => Taken::More,
            };
        }
        match end {
            Some(end) if self.carry.is_empty() => Taken::Whole(piece, end),
            Some(end) => {
                self.carry.extend_from_slice(piece);
                Taken::Whole(&self.carry, end)
            }
            None => {
                self.carry.extend_from_slice(piece);
                Taken::More
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value that `take` finds whole in its only chunk.
    fn whole<'a>(pending: &'a mut Pending, chunk: &'a [u8], cap: usize) -> Option<&'a [u8]> {
        match pending.take(chunk, cap) {
            Taken::Whole(value, _) => Some(value),
            Taken::TooLarge(..) | Taken::More => None,
        }
    }

    #[test]
    fn a_value_that_is_whole_in_its_chunk_is_not_copied() {
        let chunk = b"{\"a\":1},";
        let value = &chunk[..7];
        assert_eq!(
            whole(&mut Pending::default(), chunk, 100).map(<[u8]>::as_ptr_range),
            Some(value.as_ptr_range())
        );
    }

    #[test]
    fn a_value_may_be_as_large_as_the_cap() {
        assert!(whole(&mut Pending::default(), b"[1,2]", 5).is_some());
        assert!(whole(&mut Pending::default(), b"[1,2]", 4).is_none());
    }

    #[test]
    fn a_buffer_serves_the_next_value_as_well_unless_it_is_huge() {
        for (size, is_kept) in [(1000, true), (2 << 20, false)] {
            let mut pending = Pending::default();
            pending.take(b"[", OBJECT_CAP);
            pending.take(&vec![b'1'; size], OBJECT_CAP);
            assert!(pending.carry.capacity() > size);
            pending.reset();
            assert_eq!(pending.carry.capacity() > size, is_kept, "{size}");
        }
    }
}
