//! Hashing of typed values, by a serializer.

use foldhash::fast::FixedState;
use serde::Serialize;
use serde::ser::{self, Error as _, Serializer};

use super::{Elements, Members, Tag, float, integer, leaf, null, string};

/// Hashes a value while it is serialized, as `serde_json` would encode it.
#[derive(Clone, Copy)]
pub(super) struct Canonical<'h> {
    hasher: &'h FixedState,
    /// Whether the value is the key of a member: numbers and truth values are strings there.
    is_key: bool,
}

impl<'h> Canonical<'h> {
    pub(super) fn new(hasher: &'h FixedState) -> Self {
        Self { hasher, is_key: false }
    }

    fn of_key(hasher: &'h FixedState) -> Self {
        Self { hasher, is_key: true }
    }

    /// A value that cannot be a key.
    fn no_key<T>(self, value: impl FnOnce(&'h FixedState) -> T) -> Result<T, serde_json::Error> {
        if self.is_key {
            return Err(serde_json::Error::custom("a key must be a string"));
        }
        Ok(value(self.hasher))
    }

    fn scalar(
        self,
        text: impl ToString,
        value: impl FnOnce(&FixedState) -> u64,
    ) -> Result<u64, serde_json::Error> {
        Ok(if self.is_key { string(self.hasher, &text.to_string()) } else { value(self.hasher) })
    }
}

macro_rules! integers {
    ($($method:ident $kind:ty),*) => {
        $(fn $method(self, number: $kind) -> Result<u64, Self::Error> {
            self.serialize_i128(number.into())
        })*
    };
}

impl<'h> Serializer for Canonical<'h> {
    type Ok = u64;
    type Error = serde_json::Error;
    type SerializeSeq = Elements<'h>;
    type SerializeTuple = Elements<'h>;
    type SerializeTupleStruct = Elements<'h>;
    type SerializeTupleVariant = Variant<'h, Elements<'h>>;
    type SerializeMap = Members<'h>;
    type SerializeStruct = Members<'h>;
    type SerializeStructVariant = Variant<'h, Members<'h>>;

    integers!(serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64);
    integers!(serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64);

    fn serialize_i128(self, number: i128) -> Result<u64, Self::Error> {
        self.scalar(number, |hasher| integer(hasher, number))
    }

    fn serialize_u128(self, number: u128) -> Result<u64, Self::Error> {
        match i128::try_from(number) {
            Ok(number) => self.serialize_i128(number),
            Err(_) => Err(serde_json::Error::custom("a number is out of range")),
        }
    }

    fn serialize_bool(self, value: bool) -> Result<u64, Self::Error> {
        self.scalar(value, |hasher| leaf(hasher, Tag::Bool, value.into()))
    }

    fn serialize_f32(self, number: f32) -> Result<u64, Self::Error> {
        self.scalar(number, |hasher| float(hasher, number.into()))
    }

    fn serialize_f64(self, number: f64) -> Result<u64, Self::Error> {
        self.scalar(number, |hasher| float(hasher, number))
    }

    fn serialize_char(self, value: char) -> Result<u64, Self::Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<u64, Self::Error> {
        Ok(string(self.hasher, text))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<u64, Self::Error> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<u64, Self::Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<u64, Self::Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<u64, Self::Error> {
        self.no_key(null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<u64, Self::Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<u64, Self::Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<u64, Self::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<u64, Self::Error> {
        let mut members = self.no_key(Members::new)?;
        members.push(string(self.hasher, variant), value.serialize(self)?);
        Ok(members.finish())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Self::Error> {
        self.no_key(Elements::new)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Self::Error> {
        self.no_key(Elements::new)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Self::Error> {
        self.no_key(Elements::new)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Self::Error> {
        let contents = self.no_key(Elements::new)?;
        Ok(Variant { hasher: self.hasher, variant, contents })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Self::Error> {
        self.no_key(Members::new)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Self::Error> {
        self.no_key(Members::new)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Self::Error> {
        let contents = self.no_key(Members::new)?;
        Ok(Variant { hasher: self.hasher, variant, contents })
    }
}

/// The contents of an enum's variant: the one member of an object, under the name of the variant.
pub(super) struct Variant<'h, T> {
    hasher: &'h FixedState,
    variant: &'static str,
    contents: T,
}

impl<T> Variant<'_, T> {
    fn finish(self, contents: impl FnOnce(T) -> u64) -> u64 {
        let mut members = Members::new(self.hasher);
        members.push(string(self.hasher, self.variant), contents(self.contents));
        members.finish()
    }
}

impl Elements<'_> {
    fn serialize<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), serde_json::Error> {
        self.push(value.serialize(Canonical::new(self.hasher))?);
        Ok(())
    }
}

impl Members<'_> {
    fn serialize<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), serde_json::Error> {
        let value = value.serialize(Canonical::new(self.hasher))?;
        self.push(string(self.hasher, key), value);
        Ok(())
    }
}

impl ser::SerializeSeq for Elements<'_> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        self.serialize(value)
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish())
    }
}

impl ser::SerializeTuple for Elements<'_> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        self.serialize(value)
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish())
    }
}

impl ser::SerializeTupleStruct for Elements<'_> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        self.serialize(value)
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish())
    }
}

impl ser::SerializeTupleVariant for Variant<'_, Elements<'_>> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        self.contents.serialize(value)
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish(Elements::finish))
    }
}

impl ser::SerializeMap for Members<'_> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Self::Error> {
        self.key = key.serialize(Canonical::of_key(self.hasher))?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        let value = value.serialize(Canonical::new(self.hasher))?;
        self.push(self.key, value);
        Ok(())
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish())
    }
}

impl ser::SerializeStruct for Members<'_> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Self::Error> {
        self.serialize(key, value)
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish())
    }
}

impl ser::SerializeStructVariant for Variant<'_, Members<'_>> {
    type Ok = u64;
    type Error = serde_json::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Self::Error> {
        self.contents.serialize(key, value)
    }

    fn end(self) -> Result<u64, Self::Error> {
        Ok(self.finish(Members::finish))
    }
}
