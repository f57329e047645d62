//! Hashing of JSON text, by a visitor.

use std::fmt;

use foldhash::fast::FixedState;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Elements, Members, Tag, float, integer, leaf, null, string};

/// Hashes the value that comes next in a text.
#[derive(Clone, Copy)]
pub(super) struct Text<'h> {
    pub(super) hasher: &'h FixedState,
    pub(super) place: Place,
}

/// Where in an object of Kubernetes a value stands.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Root,
    Metadata,
    Elsewhere,
}

impl Place {
    /// The place of the member `key`; `None` where it does not count.
    fn of(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Root, "apiVersion" | "kind" | "status") => None,
            (Self::Root, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "resourceVersion" | "generation" | "managedFields") => None,
            _ => Some(Self::Elsewhere),
        }
    }
}

impl<'h> Text<'h> {
    fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<u64, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(null(self.hasher))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<u64, E> {
        Ok(leaf(self.hasher, Tag::Bool, value.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(integer(self.hasher, number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Ok(integer(self.hasher, number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        Ok(float(self.hasher, number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        Ok(string(self.hasher, text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<u64, A::Error> {
        let mut elements = Elements::new(self.hasher);
        while let Some(element) = array.next_element_seed(self.at(Place::Elsewhere))? {
            elements.push(element);
        }
        Ok(elements.finish())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<u64, A::Error> {
        let mut members = Members::new(self.hasher);
        while let Some((key, place)) = object.next_key_seed(Key(self))? {
            match place {
                Some(place) => members.push(key, object.next_value_seed(self.at(place))?),
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members.finish())
    }
}

/// The hash of a key, and the place of its value.
struct Key<'h>(Text<'h>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = (u64, Option<Place>);

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = (u64, Option<Place>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok((string(self.0.hasher, key), self.0.place.of(key)))
    }
}
