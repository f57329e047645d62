//! The identity of an object, read from the JSON bytes without decoding them.

use std::ops::Range;

use super::json_error::JsonError;
use super::name::ObjectName;
use super::scan::{Cursor, Malformed, RawStr};
use super::version::ResourceVersion;

/// A range of an object's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn new(range: &Range<usize>) -> Self {
        Self { start: range.start as u32, length: range.len() as u32 }
    }

    pub(crate) fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.start as usize..(self.start + self.length) as usize).unwrap_or_default()
    }
}

/// The identity of an object. Spans point into the bytes that are kept.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) namespace: Span,
    pub(crate) name: Span,
    pub(crate) uid: Span,
    pub(crate) labels: Span,
    pub(crate) annotations: Span,
    pub(crate) owners: Span,
    pub(crate) version: ResourceVersion,
    pub(crate) generation: i64,
    pub(crate) deleting: bool,
    /// Length of the JSON that is kept; identity strings that had escapes follow it.
    pub(crate) body: u32,
}

impl Identity {
    /// Returns the key, from the bytes that are kept.
    pub(crate) fn key(&self, kept: &[u8]) -> ObjectName {
        // Checked when the identity was read.
        let text = |span: &Span| std::str::from_utf8(span.of(kept)).unwrap_or_default();
        ObjectName::namespaced(text(&self.namespace), text(&self.name))
    }
}

/// `apiVersion` and `kind`, if the object has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeMeta {
    pub(crate) api_version: Option<String>,
    pub(crate) kind: Option<String>,
}

/// The reason why an object is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The bytes are not a JSON object with readable metadata.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// There is no `metadata`, or no name in it.
    #[error("object has no metadata.name")]
    NoName,
    /// The object is of another kind than the requested one.
    #[error("expected kind {expected}, found {found}")]
    OtherKind {
        /// The kind that was listed or watched.
        expected: String,
        /// The kind of the object.
        found: String,
    },
    /// The object could not be transformed, and stays out of the cache.
    #[error("cannot transform {name}: {message}")]
    Transform {
        /// The object's name on the server.
        name: ObjectName,
        /// The reason, in the words of the user's error.
        message: String,
    },
    /// A typed value that cannot be written as JSON.
    #[error("cannot encode the object")]
    Unencodable(#[source] JsonError),
    /// Larger than the 4 GiB that spans can address.
    #[error("object of {0} bytes is too large")]
    TooLarge(usize),
}

/// Reads the identity of the object in `bytes`, and writes the bytes to keep into `kept`: all of them, or all but
/// `metadata.managedFields`.
///
/// Reading stops after `metadata`; the rest is checked when it is decoded.
pub(crate) fn read(
    bytes: &[u8],
    keep_managed_fields: bool,
    kept: &mut Vec<u8>,
) -> Result<(Identity, TypeMeta), IdentityError> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(IdentityError::TooLarge(bytes.len()));
    }
    let mut cursor = Cursor::new(bytes);
    let mut types = TypeMeta::default();
    if !up_to_metadata(&mut cursor, &mut types)? {
        return Err(IdentityError::NoName);
    }
    metadata(bytes, cursor, keep_managed_fields, kept).map(|identity| (identity, types))
}

/// Returns `apiVersion` and `kind` if they precede `metadata`.
pub(crate) fn types(bytes: &[u8]) -> Result<TypeMeta, Malformed> {
    let mut types = TypeMeta::default();
    up_to_metadata(&mut Cursor::new(bytes), &mut types)?;
    Ok(types)
}

/// Steps up to the value of `metadata`, and returns whether there is one.
fn up_to_metadata(cursor: &mut Cursor<'_>, types: &mut TypeMeta) -> Result<bool, Malformed> {
    cursor.enter()?;
    while let Some(key) = cursor.key()? {
        match &*cursor.name(&key)? {
            b"apiVersion" => types.api_version = text_or_skip(cursor)?,
            b"kind" => types.kind = text_or_skip(cursor)?,
            b"metadata" => return Ok(true),
            _ => {
                cursor.value()?;
            }
        }
    }
    Ok(false)
}

/// Returns the JSON of `metadata.finalizers`, if there is any. Its position is not kept, as few callers need it.
pub(crate) fn finalizers(bytes: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor::new(bytes);
    if !up_to_metadata(&mut cursor, &mut TypeMeta::default()).ok()? {
        return None;
    }
    cursor.enter().ok()?;
    while let Some(key) = cursor.key().ok()? {
        let is_it = *cursor.name(&key).ok()? == *b"finalizers";
        let value = cursor.value().ok()?;
        if is_it {
            return bytes.get(value);
        }
    }
    None
}

fn text_or_skip(cursor: &mut Cursor<'_>) -> Result<Option<String>, Malformed> {
    if cursor.peek() != Some(b'"') {
        cursor.value()?;
        return Ok(None);
    }
    let raw = cursor.string()?;
    Ok(Some(cursor.text(&raw)?.into_owned()))
}

/// The strings of an identity, in the order in which they end.
#[derive(Default)]
struct Found {
    namespace: Option<RawStr>,
    name: Option<RawStr>,
    uid: Option<RawStr>,
    version: Option<RawStr>,
    labels: Range<usize>,
    annotations: Range<usize>,
    owners: Range<usize>,
    managed_fields: Range<usize>,
}

fn metadata(
    bytes: &[u8],
    mut cursor: Cursor<'_>,
    keep_managed_fields: bool,
    kept: &mut Vec<u8>,
) -> Result<Identity, IdentityError> {
    let mut found = Found::default();
    let mut identity = Identity::default();
    cursor.enter()?;
    let mut after_previous = cursor.at();
    while let Some(key) = cursor.key()? {
        let is_string = cursor.peek() == Some(b'"');
        match (&*cursor.name(&key)?, is_string) {
            (b"namespace", true) => found.namespace = Some(cursor.string()?),
            (b"name", true) => found.name = Some(cursor.string()?),
            (b"uid", true) => found.uid = Some(cursor.string()?),
            (b"resourceVersion", true) => found.version = Some(cursor.string()?),
            (b"deletionTimestamp", true) => {
                identity.deleting = true;
                cursor.string()?;
            }
            (b"generation", _) => {
                let range = cursor.value()?;
                let number = std::str::from_utf8(&bytes[range]).ok().and_then(|text| text.parse().ok());
                identity.generation = number.unwrap_or_default();
            }
            (b"labels", _) => found.labels = cursor.value()?,
            (b"annotations", _) => found.annotations = cursor.value()?,
            (b"ownerReferences", _) => found.owners = cursor.value()?,
            (b"managedFields", _) if !keep_managed_fields => {
                cursor.value()?;
                found.managed_fields = cut_of(bytes, after_previous, &mut cursor);
            }
            _ => {
                cursor.value()?;
            }
        }
        after_previous = cursor.at();
    }
    let Some(name) = found.name.filter(|name| !name.range.is_empty()) else {
        return Err(IdentityError::NoName);
    };
    let cut = found.managed_fields;
    kept.clear();
    kept.extend_from_slice(&bytes[..cut.start]);
    kept.extend_from_slice(&bytes[cut.end..]);
    identity.body = kept.len() as u32;
    if let Some(raw) = &found.version {
        identity.version = ResourceVersion::from(cursor.text(raw)?.as_ref());
    }
    let mut keep = |raw: &RawStr| -> Result<Span, Malformed> {
        let text = cursor.text(raw)?;
        if !raw.has_escapes {
            return Ok(Span::new(&shifted(&raw.range, &cut)));
        }
        // Real names have no escapes. A name that has some is kept in plain form behind the body.
        let start = kept.len();
        kept.extend_from_slice(text.as_bytes());
        Ok(Span::new(&(start..kept.len())))
    };
    identity.name = keep(&name)?;
    identity.namespace = found.namespace.map_or(Ok(Span::default()), |raw| keep(&raw))?;
    identity.uid = found.uid.map_or(Ok(Span::default()), |raw| keep(&raw))?;
    identity.labels = Span::new(&shifted(&found.labels, &cut));
    identity.annotations = Span::new(&shifted(&found.annotations, &cut));
    identity.owners = Span::new(&shifted(&found.owners, &cut));
    Ok(identity)
}

/// Returns the range to cut to remove the member that ends at the cursor, with one of the commas around it.
fn cut_of(bytes: &[u8], after_previous: usize, cursor: &mut Cursor<'_>) -> Range<usize> {
    let end = cursor.at();
    if bytes[..after_previous].ends_with(b"{") {
        // The first member: the comma behind it is removed, too.
        return match cursor.peek() {
            Some(b',') => after_previous..cursor.at() + 1,
            _ => after_previous..end,
        };
    }
    after_previous..end
}

fn shifted(range: &Range<usize>, cut: &Range<usize>) -> Range<usize> {
    let by = if range.start >= cut.end { cut.len() } else { 0 };
    range.start - by..range.end - by
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read_str(text: &str) -> Result<(Identity, TypeMeta, Vec<u8>), IdentityError> {
        let mut kept = Vec::new();
        read(text.as_bytes(), false, &mut kept).map(|(identity, types)| (identity, types, kept))
    }

    #[test]
    fn the_identity_is_read_and_managed_fields_are_cut() {
        let text = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":[{"a":"}"}],"name":"n","namespace":"ns",
            "uid":"u","resourceVersion":"7","generation":3,"labels":{"a":"b"},"deletionTimestamp":"t",
            "annotations":{"c":"d"},"ownerReferences":[{"uid":"o"}]},"spec":{}}"#;
        let (identity, types, kept) = read_str(text).unwrap();
        assert_eq!(identity.name.of(&kept), b"n");
        assert_eq!(identity.namespace.of(&kept), b"ns");
        assert_eq!(identity.uid.of(&kept), b"u");
        assert_eq!(identity.labels.of(&kept), br#"{"a":"b"}"#);
        assert_eq!(identity.annotations.of(&kept), br#"{"c":"d"}"#);
        assert_eq!(identity.owners.of(&kept), br#"[{"uid":"o"}]"#);
        assert_eq!((identity.version, identity.generation, identity.deleting), ("7".into(), 3, true));
        assert_eq!((types.kind.as_deref(), types.api_version.as_deref()), (Some("Pod"), Some("v1")));
        let value: Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!(value["metadata"].get("managedFields"), None);
        assert_eq!(value["spec"], json!({}));
    }

    #[test]
    fn managed_fields_are_cut_wherever_they_stand() {
        for text in [
            r#"{"metadata":{"managedFields":[],"name":"n"}}"#,
            r#"{"metadata":{"name":"n","managedFields":[]}}"#,
            r#"{"metadata":{"name":"n","managedFields":[1,{"a":"]"}],"uid":"u"}}"#,
            "{ \"metadata\" : { \"managedFields\" : [ ] , \"name\" : \"n\" , \"uid\" : \"u\" } }",
            "{\n  \"metadata\": {\n    \"name\": \"n\",\n    \"managedFields\": [\n    ]\n  }\n}",
        ] {
            let (identity, _, kept) = read_str(text).unwrap();
            let mut expected: Value = serde_json::from_str(text).unwrap();
            expected["metadata"].as_object_mut().unwrap().remove("managedFields");
            assert_eq!(serde_json::from_slice::<Value>(&kept).unwrap(), expected, "{text}");
            assert_eq!(identity.name.of(&kept), b"n");
        }
    }

    #[test]
    fn managed_fields_are_kept_where_that_is_asked_for() {
        let text = br#"{"metadata":{"managedFields":[{}],"name":"n"}}"#;
        let mut kept = Vec::new();
        let (identity, _) = read(text, true, &mut kept).unwrap();
        assert_eq!((&kept[..], identity.name.of(&kept)), (&text[..], &b"n"[..]));
    }

    #[test]
    fn escapes_in_keys_are_resolved() {
        let text = r#"{"met\u0061data":{"n\u0061me":"n","managed\u0046ields":[1],"uid":"u"}}"#;
        let (identity, _, kept) = read_str(text).unwrap();
        assert_eq!((identity.name.of(&kept), identity.uid.of(&kept)), (&b"n"[..], &b"u"[..]));
        assert!(!String::from_utf8_lossy(&kept).contains("ields"));
    }

    #[test]
    fn escapes_in_identity_strings_are_resolved() {
        let (identity, _, kept) = read_str(r#"{"metadata":{"name":"a\u0062c","uid":"\"q\""}}"#).unwrap();
        assert_eq!(identity.name.of(&kept), b"abc");
        assert_eq!(identity.uid.of(&kept), b"\"q\"");
    }

    #[test]
    fn an_object_without_a_name_is_refused() {
        for text in [
            "{}",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"name":""}}"#,
            r#"{"metadata":{"name":null}}"#,
            r#"{"spec":{"metadata":{"name":"n"}}}"#,
        ] {
            assert_eq!(read_str(text).unwrap_err(), IdentityError::NoName, "{text}");
        }
        assert!(matches!(read_str("[]").unwrap_err(), IdentityError::Malformed(_)));
        assert!(matches!(read_str(r#"{"metadata":[]}"#).unwrap_err(), IdentityError::Malformed(_)));
        assert!(matches!(read_str(r#"{"metadata":{"name":"n""#).unwrap_err(), IdentityError::Malformed(_)));
    }

    proptest! {
        #[test]
        fn any_order_of_members_gives_the_same_identity(order in Just([0, 1, 2, 3, 4, 5]).prop_shuffle(), pretty: bool) {
            let members = [
                r#""name":"web-1""#, r#""namespace":"default""#, r#""managedFields":[{"x":{"f:a":{}}}]"#,
                r#""labels":{"app":"web"}"#, r#""resourceVersion":"12""#, r#""annotations":{"a":"{\"b\":1}"}"#,
            ];
            let joined: Vec<_> = order.iter().map(|i| members[*i]).collect();
            let text = format!(r#"{{"metadata":{{{}}},"spec":{{"x":[1]}}}}"#, joined.join(","));
            let text = if pretty {
                // Adds white space without changing the order of members.
                text.replace(',', " ,\n  ").replace(':', " : ")
            } else {
                text
            };
            let (identity, _, kept) = read_str(&text).unwrap();
            prop_assert_eq!(identity.name.of(&kept), b"web-1");
            prop_assert_eq!(identity.namespace.of(&kept), b"default");
            prop_assert_eq!(identity.version, ResourceVersion::from(12));
            let labels: Value = serde_json::from_slice(identity.labels.of(&kept)).unwrap();
            prop_assert_eq!(labels, json!({"app": "web"}));
            let mut expected: Value = serde_json::from_str(&text).unwrap();
            expected["metadata"].as_object_mut().unwrap().remove("managedFields");
            prop_assert_eq!(serde_json::from_slice::<Value>(&kept).unwrap(), expected);
        }
    }
}
