//! How is one JSON value put together from chunks, with as little copying as possible?

use crate::object::Malformed;
use crate::object::scan::Skipper;

/// Why a stream of JSON cannot be split any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The structure is broken; `at` counts from the start of the piece in hand.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// One object is larger than the cap.
    #[error("an object of more than {cap} bytes: raise the cap, or keep such objects out with a selector")]
    TooLarge {
        /// The largest size allowed.
        cap: usize,
    },
    /// The stream ended inside a value.
    #[error("the answer ended in the middle of a value")]
    Truncated,
}

/// The default cap on the size of one object: 16 MiB, as in client-go.
pub(crate) const OBJECT_CAP: usize = 16 << 20;

/// One value that may be spread over chunks: only its own bytes are buffered, and only if it is.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    skipper: Skipper,
    carry: Vec<u8>,
}

/// What [`Pending::take`] found in a chunk.
pub(crate) enum Taken<'a> {
    /// The whole value, and how many bytes of the chunk it took.
    Whole(&'a [u8], usize),
    /// All of the chunk belongs to the value, which goes on.
    More,
}

impl Pending {
    /// Begins a new value. Its bytes come with the next call of `take`.
    pub(crate) fn reset(&mut self) {
        self.skipper = Skipper::default();
        self.carry.clear();
        // One huge object must not pin its buffer for the life of the stream.
        self.carry.shrink_to(1 << 20);
    }

    pub(crate) fn take<'a>(&'a mut self, chunk: &'a [u8], cap: usize) -> Result<Taken<'a>, SplitError> {
        let end = self.skipper.feed(chunk);
        if self.carry.len() + end.unwrap_or(chunk.len()) > cap {
            return Err(SplitError::TooLarge { cap });
        }
        match end {
            Some(end) if self.carry.is_empty() => Ok(Taken::Whole(&chunk[..end], end)),
            Some(end) => {
                self.carry.extend_from_slice(&chunk[..end]);
                Ok(Taken::Whole(&self.carry, end))
            }
            None => {
                self.carry.extend_from_slice(chunk);
                Ok(Taken::More)
            }
        }
    }
}
