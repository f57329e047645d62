//! Pods made from a template.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use watchkeeper::clock::Generator;

/// Letters and digits of generated names: none that could form a word or be mistaken for another.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The number of random characters at the end of a name.
const SUFFIX: usize = 5;
/// The longest name of an object that is also a host name.
const LONGEST: usize = 63;

/// A new Pod of `template`, called `prefix` and five random characters.
///
/// The name is chosen here and not by the server: after a lost answer, the Pod is found under it.
pub(crate) fn new_pod(template: &PodTemplateSpec, prefix: &str, generator: &Generator) -> Pod {
    let metadata = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            name: Some(generated_name(prefix, generator)),
            generate_name: Some(prefix.to_owned()),
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// A name that begins with `prefix`, as the server generates them.
pub(crate) fn generated_name(prefix: &str, generator: &Generator) -> String {
    let mut name: String = prefix.chars().take(LONGEST - SUFFIX).collect();
    name.extend((0..SUFFIX).map(|_| letter(generator.below(ALPHABET.len() as u64))));
    name
}

/// A number in the letters of generated names.
pub(crate) fn encode(number: u32) -> String {
    number.to_string().bytes().map(|digit| letter(u64::from(digit))).collect()
}

/// Fowler, Noll and Vo's hash 1a.
pub(crate) fn fnv(bytes: &[u8]) -> u32 {
    fnv_from(0x811c_9dc5, bytes)
}

/// Fowler, Noll and Vo's hash 1a, continued.
pub(crate) fn fnv_from(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn letter(number: u64) -> char {
    char::from(ALPHABET[(number % ALPHABET.len() as u64) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_has_a_suffix_and_fits() {
        let generator = Generator::seeded(1);
        let name = generated_name("web-", &generator);
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_ne!(name, generated_name("web-", &generator));
        assert_eq!(generated_name(&"x".repeat(80), &generator).len(), LONGEST);
        assert_eq!(encode(70).len(), 2);
    }
}
