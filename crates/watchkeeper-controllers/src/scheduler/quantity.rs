//! Quantities of resources, in thousandths.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value of a quantity in thousandths, rounded up; zero if it is not understood.
pub(super) fn milli(quantity: &Quantity) -> i128 {
    parse(&quantity.0).unwrap_or_default()
}

fn parse(text: &str) -> Option<i128> {
    let split = text.find(|sign: char| sign.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = match text.split_at(split) {
        // An exponent: 1e3 is 1000.
        (number, exponent)
            if exponent.len() > 1 && exponent.starts_with(['e', 'E']) && !exponent.ends_with('i') =>
        {
            return scaled(number, exponent[1..].parse().ok()?, 1);
        }
        parts => parts,
    };
    let (power, binary) = match suffix {
        "n" => (-9, 1),
        "u" => (-6, 1),
        "m" => (-3, 1),
        "" => (0, 1),
        "k" => (3, 1),
        "M" => (6, 1),
        "G" => (9, 1),
        "T" => (12, 1),
        "P" => (15, 1),
        "E" => (18, 1),
        "Ki" => (0, 1_i128 << 10),
        "Mi" => (0, 1 << 20),
        "Gi" => (0, 1 << 30),
        "Ti" => (0, 1 << 40),
        "Pi" => (0, 1 << 50),
        "Ei" => (0, 1 << 60),
        _ => return None,
    };
    scaled(number, power, binary)
}

/// A decimal number times a power of ten and a factor, in thousandths.
fn scaled(number: &str, power: i32, factor: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let power = power + 3 - i32::try_from(fraction.len()).ok()?;
    let value = digits.checked_mul(factor)?;
    let ten = 10_i128.checked_pow(power.unsigned_abs())?;
    if power >= 0 {
        value.checked_mul(ten)
    } else {
        Some(value.div_euclid(ten) + i128::from(value.rem_euclid(ten) > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_all_forms_are_read() {
        for (text, expected) in [
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("1k", 1_000_000),
            ("2e3", 2_000_000),
            ("1n", 1),
            ("1E", 1_000_000_000_000_000_000_000),
            ("-1", -1000),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        assert_eq!(parse("x"), None);
    }
}
