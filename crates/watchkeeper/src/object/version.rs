//! Resource versions: opaque by contract, decimal numbers in practice.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The resource version of an object, a list or a store.
///
/// Equality is always meaningful. Order is defined only between decimal versions of one resource, which is what every
/// Kubernetes API server uses; for any other version, [`PartialOrd`] gives `None`.
///
/// ```
/// use watchkeeper::ResourceVersion;
/// assert!(ResourceVersion::from("99") < ResourceVersion::from("100"));
/// assert_eq!(ResourceVersion::from("abc").partial_cmp(&ResourceVersion::from("1")), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourceVersion(Repr);

#[derive(Clone, PartialEq, Eq, Hash, Default)]
enum Repr {
    #[default]
    Unset,
    /// Decimal, without leading zeros, so that it displays as the text it was parsed from.
    Number(u64),
    Opaque(Arc<str>),
}

impl ResourceVersion {
    /// The empty version; displays as the empty string.
    pub const UNSET: Self = Self(Repr::Unset);

    /// Returns whether this is the empty version.
    pub fn is_unset(&self) -> bool {
        self.0 == Repr::Unset
    }

    /// Returns the version as a number, if it is one.
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            _ => None,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if text.is_empty() {
            return Self::UNSET;
        }
        match text.parse() {
            Ok(number) if plain && (text.len() == 1 || !text.starts_with('0')) => Self(Repr::Number(number)),
            _ => Self(Repr::Opaque(text.into())),
        }
    }
}

impl From<u64> for ResourceVersion {
    fn from(number: u64) -> Self {
        Self(Repr::Number(number))
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            (a, b) if a == b => Some(Ordering::Equal),
            _ => None,
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Unset => Ok(()),
            Repr::Number(number) => fmt::Display::fmt(number, f),
            Repr::Opaque(text) => f.pad(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_prints_as_it_was_read() {
        for text in ["", "0", "1", "18446744073709551615", "18446744073709551616", "007", "+7", "abc", "-1"] {
            assert_eq!(ResourceVersion::from(text).to_string(), text);
        }
    }

    #[test]
    fn only_numbers_have_an_order() {
        let version = ResourceVersion::from;
        assert!(version("9") < version("10"));
        assert_eq!(version("").partial_cmp(&version("1")), None);
        assert_eq!(version("x").partial_cmp(&version("x")), Some(Ordering::Equal));
        assert_eq!(version("7").as_number(), Some(7));
        assert_eq!(version("07").as_number(), None);
        assert!(ResourceVersion::UNSET.is_unset() && !version("0").is_unset());
    }
}
