//! Names of objects whose bytes are unusable or incomplete.

use super::name::ObjectName;
use super::scan::{Cursor, Malformed};

/// Returns the name of the object at the start of `bytes`, if they contain one.
pub(crate) fn name_hint(bytes: &[u8]) -> Option<ObjectName> {
    let (mut namespace, mut name) = (String::new(), String::new());
    // The names that were read before broken or missing bytes still count.
    let _broken = read(bytes, &mut namespace, &mut name);
    (!name.is_empty()).then(|| ObjectName::namespaced(&namespace, &name))
}

fn read(bytes: &[u8], namespace: &mut String, name: &mut String) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(bytes);
    cursor.enter()?;
    while let Some(key) = cursor.key()? {
        if *cursor.name(&key)? != *b"metadata" {
            cursor.value()?;
            continue;
        }
        cursor.enter()?;
        while let Some(key) = cursor.key()? {
            let into = match &*cursor.name(&key)? {
                b"name" => &mut *name,
                b"namespace" => &mut *namespace,
                _ => {
                    cursor.value()?;
                    continue;
                }
            };
            let raw = cursor.string()?;
            *into = cursor.text(&raw)?.into_owned();
        }
        return Ok(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_what_there_is_of_an_object() {
        for (text, name) in [
            (r#"{"kind":"Pod","metadata":{"namespace":"ns","name":"a","labels":{"x"#, Some("ns/a")),
            (r#"{"metadata":{"name":"a","uid":7},"spec":"#, Some("a")),
            (r#"{"metadata":{"labels":{},"uid":"u"#, None),
            (r#"{"spec":{"metadata":{"name":"inner"}}"#, None),
            ("garbage", None),
        ] {
            assert_eq!(name_hint(text.as_bytes()).map(|name| name.to_string()).as_deref(), name, "{text}");
        }
    }
}
