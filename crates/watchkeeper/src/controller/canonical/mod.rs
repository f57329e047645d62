//! Hashes of JSON values that do not depend on the order of members or on formatting.

mod text;
mod typed;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use serde::Serialize;
use serde::de::DeserializeSeed;

use crate::object::JsonError;
use text::{Place, Text};
use typed::Canonical;

/// The hash of what `value` is as JSON. Nothing is encoded; only map keys that are not strings allocate.
///
/// Members of objects count in any order, and a member that is `null` counts as absent. Elements of arrays count in their order. The
/// numbers 1 and 1.0 differ.
pub(crate) fn hash_of<T: Serialize + ?Sized>(value: &T, hasher: &FixedState) -> Result<u64, JsonError> {
    Ok(value.serialize(Canonical::new(hasher))?)
}

/// The hash of the JSON of an object as an API server sent it, or as a cache keeps it, without what changes while the object stays the
/// same for its author: `apiVersion`, `kind`, `status`, and the `resourceVersion`, `generation` and `managedFields` of its metadata.
///
/// It equals the [`hash_of`] an object without these fields.
pub(crate) fn hash_of_answer(json: &[u8], hasher: &FixedState) -> Result<u64, JsonError> {
    let mut text = serde_json::Deserializer::from_slice(json);
    let hash = Text { hasher, place: Place::Root }.deserialize(&mut text)?;
    text.end()?;
    Ok(hash)
}

/// What a value is: values of two kinds never have the same hash but by chance.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Tag {
    Null,
    Bool,
    Natural,
    Negative,
    Wide,
    Float,
    String,
    Array,
    Object,
    Member,
}

/// The hash of a value that has no parts.
fn leaf(hasher: &FixedState, tag: Tag, bits: u64) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(bits);
    state.write_u8(tag as u8);
    state.finish()
}

fn null(hasher: &FixedState) -> u64 {
    leaf(hasher, Tag::Null, 0)
}

fn string(hasher: &FixedState, text: &str) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(text.as_bytes());
    state.write_u64(text.len() as u64);
    state.write_u8(Tag::String as u8);
    state.finish()
}

fn integer(hasher: &FixedState, number: i128) -> u64 {
    match (u64::try_from(number), i64::try_from(number)) {
        (Ok(natural), _) => leaf(hasher, Tag::Natural, natural),
        (_, Ok(negative)) => leaf(hasher, Tag::Negative, negative as u64),
        _ => {
            let mut state = hasher.build_hasher();
            state.write_u64((number >> 64) as u64);
            state.write_u64(number as u64);
            state.write_u8(Tag::Wide as u8);
            state.finish()
        }
    }
}

/// JSON has no other floats than finite ones; encoders write `null` instead.
fn float(hasher: &FixedState, number: f64) -> u64 {
    if number.is_finite() { leaf(hasher, Tag::Float, number.to_bits()) } else { null(hasher) }
}

/// The elements of an array, in their order.
struct Elements<'h> {
    hasher: &'h FixedState,
    state: <FixedState as BuildHasher>::Hasher,
    count: u64,
}

impl<'h> Elements<'h> {
    fn new(hasher: &'h FixedState) -> Self {
        Self { hasher, state: hasher.build_hasher(), count: 0 }
    }

    fn push(&mut self, element: u64) {
        self.state.write_u64(element);
        self.count += 1;
    }

    fn finish(mut self) -> u64 {
        self.state.write_u64(self.count);
        self.state.write_u8(Tag::Array as u8);
        self.state.finish()
    }
}

/// The members of an object, in any order.
struct Members<'h> {
    hasher: &'h FixedState,
    null: u64,
    /// A sum does not depend on the order of its terms. An exclusive or would lose a member that occurs twice.
    sum: u64,
    count: u64,
    /// The key whose value comes next.
    key: u64,
}

impl<'h> Members<'h> {
    fn new(hasher: &'h FixedState) -> Self {
        Self { hasher, null: null(hasher), sum: 0, count: 0, key: 0 }
    }

    fn push(&mut self, key: u64, value: u64) {
        if value == self.null {
            return;
        }
        let mut state = self.hasher.build_hasher();
        state.write_u64(key);
        state.write_u64(value);
        state.write_u8(Tag::Member as u8);
        self.sum = self.sum.wrapping_add(state.finish());
        self.count += 1;
    }

    fn finish(self) -> u64 {
        let mut state = self.hasher.build_hasher();
        state.write_u64(self.sum);
        state.write_u64(self.count);
        state.write_u8(Tag::Object as u8);
        state.finish()
    }
}

#[cfg(test)]
mod tests;
