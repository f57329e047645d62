//! The wire format of protobuf, for writing: fields of a message, one after the other.

/// The wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// The fields of a message. Zeros and empty texts are left out, as they are the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// A message with one message in it.
    pub(crate) fn of(number: u32, inner: Self) -> Self {
        let mut message = Self::default();
        message.message(number, inner);
        message
    }

    /// A message with one boolean in it, also if that is false.
    pub(crate) fn of_flag(number: u32, value: bool) -> Self {
        let mut message = Self::default();
        message.integer(number, value.into());
        message
    }

    pub(crate) fn text(&mut self, number: u32, value: &str) -> &mut Self {
        if value.is_empty() { self } else { self.repeated(number, value) }
    }

    /// Adds a text that may be empty, as one of a list is.
    pub(crate) fn repeated(&mut self, number: u32, value: &str) -> &mut Self {
        self.bytes(number, value.as_bytes())
    }

    pub(crate) fn bytes(&mut self, number: u32, value: &[u8]) -> &mut Self {
        self.tag(number, BYTES).varint(value.len() as u64).0.extend_from_slice(value);
        self
    }

    pub(crate) fn message(&mut self, number: u32, value: Self) -> &mut Self {
        self.bytes(number, &value.0)
    }

    pub(crate) fn flag(&mut self, number: u32, value: bool) -> &mut Self {
        self.number(number, value.into())
    }

    pub(crate) fn number(&mut self, number: u32, value: u64) -> &mut Self {
        if value == 0 { self } else { self.integer(number, value) }
    }

    /// Adds a number, also if it is zero.
    pub(crate) fn integer(&mut self, number: u32, value: u64) -> &mut Self {
        self.tag(number, VARINT).varint(value)
    }

    pub(crate) fn double(&mut self, number: u32, value: f64) -> &mut Self {
        self.tag(number, FIXED64).0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds the fields of another message.
    pub(crate) fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, number: u32, wire_type: u32) -> &mut Self {
        self.varint(u64::from(number << 3 | wire_type))
    }

    fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of the description of the format.
    #[test]
    fn fields_are_written_as_protobuf_says() {
        let mut message = Message::default();
        assert_eq!(message.number(1, 150).clone().into_bytes(), [0x08, 0x96, 0x01]);
        let outer = Message::of(3, message);
        assert_eq!(outer.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.text(2, "testing").text(3, "").flag(4, false);
        assert_eq!(message.into_bytes(), *b"\x12\x07testing");
        assert_eq!(Message::of_flag(2, false).into_bytes(), [0x10, 0]);
        let mut message = Message::default();
        message.double(16, 1.0);
        assert_eq!(message.into_bytes(), [0x81, 0x01, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }
}
