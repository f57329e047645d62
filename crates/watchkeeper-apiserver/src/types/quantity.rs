//! Canonical form of resource quantities: `1000m` is `1`, `1024Mi` is `1Gi`.

/// Returns the canonical form of a quantity, or `None` if the text is not a quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (mut mantissa, mut exponent) = decimal(number)?;
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix);
    if let Some(power) = binary {
        let factor = 1024_i128.checked_pow(u32::try_from(power).ok()? + 1)?;
        mantissa = mantissa.checked_mul(factor)?;
        if exponent == 0 {
            return Some(in_binary(mantissa));
        }
        let scale = 10_i128.checked_pow(exponent.unsigned_abs())?;
        if mantissa % scale == 0 {
            return Some(in_binary(mantissa / scale));
        }
    } else if let Some(digits) = suffix.strip_prefix(['e', 'E']).filter(|digits| !digits.is_empty()) {
        exponent = exponent.saturating_add(digits.parse().ok()?);
        return in_decimal(
            mantissa,
            exponent,
            |power| {
                if power == 0 { String::new() } else { format!("e{power}") }
            },
        );
    } else {
        let known = SUFFIXES.iter().find(|(known, _)| *known == suffix)?;
        exponent += known.1;
    }
    in_decimal(mantissa, exponent, |power| {
        let known = SUFFIXES.iter().find(|(_, known)| *known == power);
        known.map_or_else(|| format!("e{power}"), |(suffix, _)| (*suffix).to_owned())
    })
}

const SUFFIXES: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Parses a number into an integer and a power of ten.
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

fn in_binary(mut value: i128) -> String {
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if value == 0 || value % 1024 != 0 {
            break;
        }
        value /= 1024;
        suffix = next;
    }
    format!("{value}{suffix}")
}

/// Formats with the largest suffix that leaves a whole number; rounds up below 1e-9.
fn in_decimal(mut mantissa: i128, exponent: i32, suffix: impl Fn(i32) -> String) -> Option<String> {
    if mantissa == 0 {
        return Some("0".to_owned());
    }
    // Larger exponents round up to 1e-9 or overflow anyway; the bound limits the loops below.
    let mut exponent = exponent.clamp(-1000, 1000);
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent < -9 {
        let up = mantissa % 10 != 0 && mantissa > 0;
        mantissa = mantissa / 10 + i128::from(up);
        exponent += 1;
    }
    while exponent.rem_euclid(3) != 0 || exponent > 18 {
        mantissa = mantissa.checked_mul(10)?;
        exponent -= 1;
    }
    Some(format!("{mantissa}{}", suffix(exponent)))
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn every_amount_has_one_form() {
        for (text, expected) in [
            ("1", "1"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            ("100m", "100m"),
            ("1500", "1500"),
            ("2000k", "2M"),
            ("1e3", "1e3"),
            ("12e2", "1200"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-5", "-5"),
            ("1e-2147483648", "1e-9"),
            ("1.5e-2147483648", "1e-9"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", "x", "1x", "1.2.3", "Mi", "1 Gi", "10e2147483647", "1e99"] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }
}
