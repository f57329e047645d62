//! Splitting a list into its items and its metadata.

use serde::Deserialize;

use super::members::{Members, Visitor, Want};
use super::pieces::{SplitError, TooLarge};
use crate::object::{Malformed, ResourceVersion};

/// Splits a list, cut into chunks anywhere, into its items while it arrives.
///
/// The metadata of a list precedes the items of built-in kinds and follows those of custom resources:
/// [`ListSplitter::finish`] returns it in both cases.
///
/// ```
/// # use watchkeeper::wire::ListSplitter;
/// let mut names = Vec::new();
/// let mut splitter = ListSplitter::with_cap(1 << 20);
/// for chunk in [r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"na"#, r#"me":"a"}},{"metadata":{"name":"b"}}]}"#] {
///     splitter.feed(chunk.as_bytes(), |item| names.push(String::from_utf8_lossy(item.unwrap()).into_owned()))?;
/// }
/// assert_eq!(names, [r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"b"}}"#]);
/// assert_eq!(splitter.finish()?.version.to_string(), "7");
/// # Ok::<(), watchkeeper::wire::SplitError>(())
/// ```
#[derive(Debug)]
pub struct ListSplitter {
    members: Members,
    meta: ListMeta,
    has_items: bool,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The version at which the list was taken.
    pub version: ResourceVersion,
    /// The token of the next page; empty on the last.
    pub continue_token: String,
    /// The number of items that follow, if the server sent it.
    pub remaining: Option<i64>,
}

impl Default for ListSplitter {
    fn default() -> Self {
        Self { members: Members::new(false), meta: ListMeta::default(), has_items: false }
    }
}

impl ListSplitter {
    /// Returns a splitter that skips items of more than `cap` bytes.
    pub fn with_cap(cap: usize) -> Self {
        Self { members: Members::new(false).cap(cap), ..Self::default() }
    }

    /// Takes the next chunk, and calls the function with each item that it completes.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        item: impl FnMut(Result<&[u8], TooLarge>),
    ) -> Result<(), SplitError> {
        self.members.feed(chunk, &mut List { meta: &mut self.meta, has_items: &mut self.has_items, item })
    }

    /// Returns the metadata of the complete list. An answer without items or without a version is an error, not an
    /// empty list.
    pub fn finish(self) -> Result<ListMeta, SplitError> {
        self.members.finish()?;
        if !self.has_items {
            return Err(Malformed { what: "expected a list, found an object without items", at: 0 }.into());
        }
        if self.meta.version.is_unset() {
            return Err(Malformed { what: "a list without metadata.resourceVersion", at: 0 }.into());
        }
        Ok(self.meta)
    }
}

struct List<'a, F> {
    meta: &'a mut ListMeta,
    has_items: &'a mut bool,
    item: F,
}

impl<F: FnMut(Result<&[u8], TooLarge>)> Visitor for List<'_, F> {
    fn want(&mut self, key: &[u8]) -> Want {
        match key {
            b"items" => {
                *self.has_items = true;
                Want::Items
            }
            b"metadata" => Want::Whole,
            _ => Want::Nothing,
        }
    }

    fn value(&mut self, metadata: &[u8]) -> Result<(), Malformed> {
        *self.meta = ListMeta::read(metadata)?;
        Ok(())
    }

    fn item(&mut self, item: Result<&[u8], TooLarge>) {
        (self.item)(item);
    }
}

impl ListMeta {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            #[serde(default)]
            resource_version: Option<String>,
            #[serde(default)]
            r#continue: Option<String>,
            #[serde(default)]
            remaining_item_count: Option<i64>,
        }
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|_| Malformed { what: "unreadable list metadata", at: 0 })?;
        Ok(Self {
            version: raw.resource_version.as_deref().unwrap_or_default().into(),
            continue_token: raw.r#continue.unwrap_or_default(),
            remaining: raw.remaining_item_count,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::ObjectName;

    fn split(stream: &[u8], cuts: &[usize]) -> Result<(Vec<Value>, ListMeta), SplitError> {
        let mut splitter = ListSplitter::default();
        let mut items = Vec::new();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for window in cuts.windows(2) {
            splitter.feed(&stream[window[0]..window[1]], |item| {
                items.push(serde_json::from_slice(item.unwrap()).unwrap())
            })?;
        }
        splitter.finish().map(|meta| (items, meta))
    }

    fn meta(version: &str, token: &str) -> ListMeta {
        ListMeta { version: version.into(), continue_token: token.into(), remaining: None }
    }

    #[test]
    fn metadata_is_found_before_and_behind_the_items() {
        for text in [
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"a":1},{"b":2}]}"#,
            r#"{"apiVersion":"x/v1","items":[{"a":1},{"b":2}],"kind":"FooList","metadata":{"continue":"c","resourceVersion":"7"}}"#,
            r#"{"it\u0065ms":[{"a":1},{"b":2}],"metadata":{"resourceVersion":"7","continue":"c"}}"#,
            "{ \"n\" : 1 , \"items\" : [ {\"a\":1} , {\"b\":2} ] , \"x\": [[\"items\"]], \"metadata\" : { \"resourceVersion\" : \"7\", \"continue\":\"c\" } }\n",
        ] {
            let cuts: Vec<usize> = (0..text.len()).collect();
            for cuts in [&[][..], &cuts] {
                let (items, found) = split(text.as_bytes(), cuts).unwrap();
                assert_eq!(items, [json!({"a":1}), json!({"b":2})], "{text}");
                assert_eq!(found, meta("7", "c"));
            }
        }
    }

    #[test]
    fn an_empty_list_is_a_list() {
        for text in [
            r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#,
            r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#,
        ] {
            assert_eq!(split(text.as_bytes(), &[3, 10]).unwrap(), (vec![], meta("1", "")));
        }
    }

    #[test]
    fn a_list_that_stops_early_is_truncated() {
        let text = br#"{"items":[{"a":1}],"metadata":{"resourceVersion":"1"}}"#;
        for length in 1..text.len() {
            assert_eq!(split(&text[..length], &[]), Err(SplitError::Truncated), "{length}");
        }
    }

    #[test]
    fn what_is_not_a_list_is_an_error() {
        for text in
            ["[]", "<html>", r#"{"items":[1]}"#, r#"{"items":[]} x"#, r#"{x}"#, r#"{"a" "b"}"#, r#"{"a":}"#]
        {
            assert!(matches!(split(text.as_bytes(), &[]), Err(SplitError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn an_object_that_is_no_list_is_not_taken_for_an_empty_one() {
        for text in [
            "{}",
            r#"{"kind":"Status","status":"Failure","metadata":{}}"#,
            r#"{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[]}"#,
            r#"{"items":[]}"#,
            r#"{"items":[],"metadata":{"continue":"c"}}"#,
            r#"{"items":{},"metadata":{"resourceVersion":"1"}}"#,
            r#"{"items":"none","metadata":{"resourceVersion":"1"}}"#,
        ] {
            assert!(matches!(split(text.as_bytes(), &[]), Err(SplitError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn an_item_over_the_cap_is_stepped_over_and_named() {
        let text = br#"{"items":[{"a":1},{"metadata":{"name":"big"},"a":"0123456789abcdef"},{"b":2}],"metadata":{"resourceVersion":"7"}}"#;
        for chunk in [1, 7, text.len()] {
            let mut splitter = ListSplitter::with_cap(40);
            let mut items = Vec::new();
            for piece in text.chunks(chunk) {
                splitter.feed(piece, |item| items.push(item.map(<[u8]>::to_vec))).unwrap();
            }
            let big = TooLarge { size: 50, cap: 40, name: Some(ObjectName::cluster("big")) };
            assert_eq!(items, [Ok(br#"{"a":1}"#.to_vec()), Err(big), Ok(br#"{"b":2}"#.to_vec())]);
            assert_eq!(splitter.finish().unwrap(), meta("7", ""));
        }
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_items(
            bodies in prop::collection::vec(r#"[a-z"\\{}\[\]é]{0,90}"#, 0..8),
            cuts in prop::collection::vec(any::<usize>(), 0..30),
            pretty in any::<bool>(), meta_first in any::<bool>(),
        ) {
            let items: Vec<Value> = bodies.iter().map(|b| json!({"metadata": {"name": b}, "spec": [b, {"x": {}}]})).collect();
            let list = if meta_first {
                json!({"kind": "L", "a": {"resourceVersion": "9"}, "items": items, "n": 12, "metadata": {"resourceVersion": "9"}})
            } else {
                json!({"items": items, "metadata": {"resourceVersion": "9"}, "zeta": [1, "]"]})
            };
            let text = if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            let (found, meta) = split(text.as_bytes(), &cuts).unwrap();
            prop_assert_eq!(found, items);
            prop_assert_eq!(meta.version, ResourceVersion::from(9));
        }
    }
}
