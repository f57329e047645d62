//! Amounts of resources: exact to a billionth, and shown in one form.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde_json::Value;

/// Billionths in one.
const ONE: i128 = 1_000_000_000;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// How a quantity is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Decimal,
    Binary,
    Exponent,
}

/// A quantity of a resource, such as `500m` or `1Gi`. Quantities are equal if their values are.
///
/// ```
/// # use watchkeeper_quota::Quantity;
/// let memory: Quantity = "1024Mi".parse()?;
/// assert_eq!(memory.to_string(), "1Gi");
/// assert!(memory > "1G".parse()?);
/// # Ok::<(), watchkeeper_quota::NotAQuantity>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    /// In billionths.
    value: i128,
    form: Form,
}

/// A text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAQuantity;

impl fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a quantity: expected a number with a suffix such as m, k, M, Ki or Mi")
    }
}

impl std::error::Error for NotAQuantity {}

impl Quantity {
    /// Reads a quantity in JSON: a text or a number.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.to_string().parse().ok(),
            _ => None,
        }
    }

    /// A count.
    pub fn count(of: usize) -> Self {
        Self { value: i128::try_from(of).unwrap_or(i128::MAX / ONE) * ONE, form: Form::Decimal }
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.value == 0
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.value < 0
    }

    /// The value in thousandths, rounded up.
    pub fn milli(&self) -> i128 {
        ceil(self.value, ONE / 1000)
    }

    /// The value, rounded up.
    pub fn whole(&self) -> i128 {
        ceil(self.value, ONE)
    }
}

fn ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) > 0)
}

impl FromStr for Quantity {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (mantissa, power) = decimal(number).ok_or(NotAQuantity)?;
        if let Some(at) = BINARY.iter().position(|known| *known == suffix) {
            let factor = 1_i128 << (10 * (at + 1));
            let mantissa = mantissa.checked_mul(factor).ok_or(NotAQuantity)?;
            let value = scaled(mantissa, power).ok_or(NotAQuantity)?;
            return Ok(Self { value, form: Form::Binary });
        }
        let exponent = suffix.strip_prefix(['e', 'E']).filter(|digits| !digits.is_empty());
        if let Some(digits) = exponent {
            let exponent: i32 = digits.parse().map_err(|_| NotAQuantity)?;
            let value = scaled(mantissa, power.saturating_add(exponent)).ok_or(NotAQuantity)?;
            return Ok(Self { value, form: Form::Exponent });
        }
        let (_, exponent) = DECIMAL.iter().find(|(known, _)| *known == suffix).ok_or(NotAQuantity)?;
        let value = scaled(mantissa, power + exponent).ok_or(NotAQuantity)?;
        Ok(Self { value, form: Form::Decimal })
    }
}

/// A number as an integer and a power of ten.
fn decimal(text: &str) -> Option<(i128, i32)> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let joined = format!("{whole}{fraction}");
    if joined.is_empty() || !joined.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let mantissa: i128 = joined.parse().ok()?;
    Some((sign * mantissa, -i32::try_from(fraction.len()).ok()?))
}

/// An integer times a power of ten in billionths, rounded up; none if it is too large.
fn scaled(mantissa: i128, power: i32) -> Option<i128> {
    let power = power.saturating_add(9);
    if power >= 0 {
        return mantissa.checked_mul(10_i128.checked_pow(power.unsigned_abs())?);
    }
    match 10_i128.checked_pow(power.unsigned_abs()) {
        Some(divisor) => Some(ceil(mantissa, divisor)),
        None => Some(i128::from(mantissa > 0)),
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_small = self.value.abs() < 1024 * ONE;
        if self.form == Form::Binary && !is_small {
            return show_binary(ceil(self.value, ONE), f);
        }
        if self.value == 0 {
            return f.write_str("0");
        }
        let (mut mantissa, mut power) = (self.value, -9);
        while mantissa % 1000 == 0 && power < 18 {
            mantissa /= 1000;
            power += 3;
        }
        match (self.form, power) {
            (Form::Exponent, 0) => write!(f, "{mantissa}"),
            (Form::Exponent, power) => write!(f, "{mantissa}e{power}"),
            _ => {
                let suffix =
                    DECIMAL.iter().find(|(_, known)| *known == power).map_or("", |(suffix, _)| suffix);
                write!(f, "{mantissa}{suffix}")
            }
        }
    }
}

fn show_binary(mut value: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut suffix = "";
    for next in BINARY {
        if value % 1024 != 0 {
            break;
        }
        value /= 1024;
        suffix = next;
    }
    write!(f, "{value}{suffix}")
}

impl Add for Quantity {
    type Output = Self;

    /// The form of the result is that of the first quantity that is not zero.
    fn add(self, other: Self) -> Self {
        let form = if self.value == 0 { other.form } else { self.form };
        Self { value: self.value.saturating_add(other.value), form }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let form = if self.value == 0 { other.form } else { self.form };
        Self { value: self.value.saturating_sub(other.value), form }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn a_quantity_is_shown_in_its_canonical_form() {
        for (text, expected) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            ("1500", "1500"),
            ("2000k", "2M"),
            ("1e3", "1e3"),
            ("12e2", "1200"),
            ("0Mi", "0"),
            ("-5", "-5"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1e-2147483648", "1e-9"),
        ] {
            assert_eq!(quantity(text).to_string(), expected, "{text}");
        }
        for bad in ["", "x", "1x", "1.2.3", "Mi", "1 Gi", "10e2147483647"] {
            assert_eq!(bad.parse::<Quantity>().err(), Some(NotAQuantity), "{bad}");
        }
    }

    #[test]
    fn a_sum_has_the_form_of_what_it_is_made_of() {
        assert_eq!((quantity("252Mi") + quantity("252Mi")).to_string(), "504Mi");
        assert_eq!((Quantity::default() + quantity("1Gi")).to_string(), "1Gi");
        assert_eq!((quantity("1") - quantity("250m")).to_string(), "750m");
        assert!(quantity("1") == quantity("1000m") && quantity("1Gi") > quantity("1G"));
        assert!((quantity("1") - quantity("2")).is_negative());
    }
}
