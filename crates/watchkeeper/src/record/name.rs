//! Names of Event objects: the name of the involved object, and the time.

use crate::clock::Generator;

/// Returns `object` and the time in hexadecimal, or a UUID if that is not a valid name.
pub(super) fn event_name(object: &str, stamp: u64, generator: &Generator) -> String {
    let name = format!("{object}.{stamp:x}");
    if is_subdomain(&name) { name } else { generator.uuid() }
}

/// Returns whether `name` is a DNS-1123 subdomain.
fn is_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    // client-go: TestGenerateEventName
    #[test]
    fn an_event_is_named_after_its_object_and_the_time_or_else_by_a_uuid() {
        let name = |object: &str| event_name(object, 105_999_103_295_324_396, &Generator::seeded(1));
        assert_eq!(name("test-pod"), "test-pod.178959f726d80ec");
        assert_eq!(name("a.b-c.9"), "a.b-c.9.178959f726d80ec");
        let longest = "x".repeat(253 - ".178959f726d80ec".len());
        assert_eq!(name(&longest), format!("{longest}.178959f726d80ec"));
        let too_long = format!("{longest}x");
        for odd in ["", "Upper", "a/b", "-a", "a-", "a..b", "a-.b", "ä", "a_b", &too_long] {
            let name = name(odd);
            assert!(name.len() == 36 && is_subdomain(&name), "{odd}: {name}");
        }
    }
}
