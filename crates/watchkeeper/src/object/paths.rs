//! Removal of parts of an object: named by paths, and cut out of the bytes in one pass without decoding.

use std::ops::Range;

use super::scan::{Cursor, Malformed, RawStr};

/// The error of an invalid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad path {path:?}: {why}")]
pub struct PathError {
    /// The path as it was given.
    pub path: String,
    /// The problem, and how to write the path instead.
    pub why: &'static str,
}

/// The treatment of a value.
#[derive(Clone, Debug)]
enum Fate {
    Stays,
    Goes,
    /// Paths name parts of it.
    Partly(Node),
}

/// The treatment of the members or elements of a value.
#[derive(Clone, Debug)]
struct Node {
    members: Vec<(Box<str>, Fate)>,
    elements: Option<Box<Fate>>,
    /// Whether parts that no path names stay. If so, a value whose shape does not match the paths stays as well.
    rest_stays: bool,
}

/// The parts of an object that stay or go; the identity always stays.
#[derive(Clone, Debug)]
pub(super) struct Selected(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Key(Box<str>),
    Each,
}

/// The members of `metadata` that always stay: those that an [`Object`](super::Object) shows without decoding.
const IDENTITY: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "labels",
    "ownerReferences",
    "deletionTimestamp",
];

impl Selected {
    /// Removes the parts that the paths name.
    pub(super) fn all_but<P: AsRef<str>>(paths: impl IntoIterator<Item = P>) -> Result<Self, PathError> {
        Self::new(paths, true)
    }

    /// Keeps only the parts that the paths name.
    pub(super) fn only<P: AsRef<str>>(paths: impl IntoIterator<Item = P>) -> Result<Self, PathError> {
        Self::new(paths, false)
    }

    fn new<P: AsRef<str>>(paths: impl IntoIterator<Item = P>, rest_stays: bool) -> Result<Self, PathError> {
        let mut root = Node::empty(rest_stays);
        for path in paths {
            root.name(&segments(path.as_ref())?);
        }
        root.keep_identity();
        Ok(Self(root))
    }

    /// Appends the remaining parts of the object in `bytes` to `out`.
    pub(super) fn copy(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut cutter = Cutter { bytes, cursor: Cursor::new(bytes), copied: 0, out };
        cutter.members(&self.0)?;
        cutter.out.extend_from_slice(&bytes[cutter.copied..]);
        Ok(())
    }
}

impl Node {
    fn empty(rest_stays: bool) -> Self {
        Self { members: Vec::new(), elements: None, rest_stays }
    }

    /// Adds a path; one that leads into a part named already changes nothing.
    fn name(&mut self, path: &[Segment]) {
        let Some((first, deeper)) = path.split_first() else { return };
        let rest_stays = self.rest_stays;
        let fate = match first {
            Segment::Key(key) => self.member(key),
            Segment::Each => &mut **self.elements.get_or_insert_with(|| Box::new(nothing_named(rest_stays))),
        };
        if deeper.is_empty() {
            *fate = if rest_stays { Fate::Goes } else { Fate::Stays };
        } else if let Fate::Partly(node) = fate {
            node.name(deeper);
        }
    }

    fn member(&mut self, key: &str) -> &mut Fate {
        let at = self.members.iter().position(|(found, _)| **found == *key).unwrap_or_else(|| {
            self.members.push((key.into(), nothing_named(self.rest_stays)));
            self.members.len() - 1
        });
        &mut self.members[at].1
    }

    /// Keeps the identity whatever the paths are: an object is unusable without it.
    fn keep_identity(&mut self) {
        for key in ["apiVersion", "kind"] {
            *self.member(key) = Fate::Stays;
        }
        if self.rest_stays && self.members.iter().all(|(key, _)| **key != *"metadata") {
            return;
        }
        let metadata = self.member("metadata");
        if matches!(metadata, Fate::Goes) {
            *metadata = nothing_named(false);
        }
        if let Fate::Partly(node) = metadata {
            for key in IDENTITY {
                *node.member(key) = Fate::Stays;
            }
        }
    }

    fn fate_of(&self, key: &RawStr, cursor: &Cursor<'_>, bytes: &[u8]) -> &Fate {
        let raw = &bytes[key.range.clone()];
        let found = if key.has_escapes {
            let text = cursor.text(key).unwrap_or_default();
            self.members.iter().find(|(name, _)| **name == *text)
        } else {
            self.members.iter().find(|(name, _)| name.as_bytes() == raw)
        };
        found.map_or(if self.rest_stays { &Fate::Stays } else { &Fate::Goes }, |(_, fate)| fate)
    }

    /// Returns whether a value that starts with `first` has the shape that the paths expect here.
    fn fits(&self, first: Option<u8>) -> bool {
        match first {
            Some(b'{') => !self.members.is_empty(),
            Some(b'[') => self.elements.is_some(),
            _ => false,
        }
    }
}

fn nothing_named(rest_stays: bool) -> Fate {
    Fate::Partly(Node::empty(rest_stays))
}

/// Copies an object except for the parts cut out of it; cuts are made in the order of the bytes.
struct Cutter<'a, 'b> {
    bytes: &'a [u8],
    cursor: Cursor<'a>,
    /// Everything up to here has been copied or cut.
    copied: usize,
    out: &'b mut Vec<u8>,
}

/// The progress of a walk over members or elements.
struct Gap {
    /// The end of the previous one, or of the opening bracket.
    after: usize,
    any_stays: bool,
    any_went: bool,
}

impl Cutter<'_, '_> {
    fn members(&mut self, node: &Node) -> Result<(), Malformed> {
        self.cursor.enter()?;
        let mut gap = Gap::at(&self.cursor);
        while let Some(key) = self.cursor.key()? {
            let fate = node.fate_of(&key, &self.cursor, self.bytes);
            self.one(fate, key.range.start - 1, &mut gap)?;
        }
        Ok(())
    }

    fn elements(&mut self, fate: &Fate) -> Result<(), Malformed> {
        self.cursor.enter_array()?;
        let mut gap = Gap::at(&self.cursor);
        while self.cursor.element()? {
            let start = self.cursor.at();
            self.one(fate, start, &mut gap)?;
        }
        Ok(())
    }

    /// Handles a member or element that starts at `start`, with the cursor at its value.
    fn one(&mut self, fate: &Fate, start: usize, gap: &mut Gap) -> Result<(), Malformed> {
        let first = self.cursor.peek();
        let inside = match fate {
            Fate::Partly(node) if node.fits(first) => Some(node),
            _ => None,
        };
        let stays = match fate {
            Fate::Stays => true,
            Fate::Goes => false,
            Fate::Partly(node) => inside.is_some() || node.rest_stays,
        };
        if stays && gap.any_went && !gap.any_stays {
            // The first one that stays: the comma before it belongs to one that was removed.
            self.cut(gap.after..start);
        }
        match inside {
            Some(node) if first == Some(b'{') => self.members(node)?,
            Some(Node { elements: Some(each), .. }) => self.elements(each)?,
            _ => {
                self.cursor.value()?;
            }
        }
        if !stays {
            // Includes the comma before it, if there is one.
            self.cut(gap.after..self.cursor.at());
        }
        gap.any_stays |= stays;
        gap.any_went |= !stays;
        gap.after = self.cursor.at();
        Ok(())
    }

    fn cut(&mut self, range: Range<usize>) {
        self.out.extend_from_slice(&self.bytes[self.copied..range.start]);
        self.copied = range.end;
    }
}

impl Gap {
    fn at(cursor: &Cursor<'_>) -> Self {
        Self { after: cursor.at(), any_stays: false, any_went: false }
    }
}

/// Parses a path into its segments.
pub(crate) fn segments(path: &str) -> Result<Vec<Segment>, PathError> {
    parse(path).map_err(|why| PathError { path: path.to_owned(), why })
}

fn parse(path: &str) -> Result<Vec<Segment>, &'static str> {
    let mut segments = Vec::new();
    let mut rest = path;
    loop {
        let (key, behind) = key_of(rest)?;
        segments.push(Segment::Key(key.into()));
        rest = behind;
        while let Some(behind) = rest.strip_prefix('[') {
            rest =
                behind.strip_prefix("*]").ok_or(r"only [*] may follow a key; a [ in a key is written \[")?;
            segments.push(Segment::Each);
        }
        if rest.is_empty() {
            return Ok(segments);
        }
        rest = rest.strip_prefix('.').ok_or("a dot must follow [*]")?;
    }
}

/// Returns the key at the beginning of `text`, and the rest.
fn key_of(text: &str) -> Result<(String, &str), &'static str> {
    let mut key = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, char)) = chars.next() {
        match char {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => match chars.next() {
                Some((_, char @ ('.' | '[' | '\\'))) => key.push(char),
                _ => return Err(r"a backslash stands before a dot, a [ or a backslash only"),
            },
            _ => key.push(char),
        }
    }
    if key.is_empty() {
        return Err("a key is missing: keys are separated by single dots");
    }
    Ok((key, &text[end..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn copied(selected: &Selected, text: &str) -> String {
        let mut out = Vec::new();
        selected.copy(text.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn dropped(paths: &[&str], text: &str) -> String {
        copied(&Selected::all_but(paths).unwrap(), text)
    }

    fn kept(paths: &[&str], text: &str) -> String {
        copied(&Selected::only(paths).unwrap(), text)
    }

    #[test]
    fn a_member_goes_wherever_it_stands_and_commas_stay_right() {
        let text = r#"{"a":1,"b":[2],"c":{"d":3}}"#;
        for (paths, left) in [
            (&["a"][..], r#"{"b":[2],"c":{"d":3}}"#),
            (&["b"], r#"{"a":1,"c":{"d":3}}"#),
            (&["c"], r#"{"a":1,"b":[2]}"#),
            (&["a", "b"], r#"{"c":{"d":3}}"#),
            (&["b", "c"], r#"{"a":1}"#),
            (&["a", "c"], r#"{"b":[2]}"#),
            (&["a", "b", "c"], "{}"),
            (&["c.d"], r#"{"a":1,"b":[2],"c":{}}"#),
            (&["a", "c.d"], r#"{"b":[2],"c":{}}"#),
            (&["c.d", "c"], r#"{"a":1,"b":[2]}"#),
            (&["c", "c.d"], r#"{"a":1,"b":[2]}"#),
            (&["b[*]"], r#"{"a":1,"b":[],"c":{"d":3}}"#),
        ] {
            assert_eq!(dropped(paths, text), left, "{paths:?}");
        }
    }

    #[test]
    fn only_what_is_named_is_kept_and_what_holds_it_stays_even_if_empty() {
        let text = r#"{"a":1,"b":[2,{"x":1,"y":2},{"y":3}],"c":{"d":3,"e":4}}"#;
        for (paths, left) in [
            (&[][..], "{}"),
            (&["a"], r#"{"a":1}"#),
            (&["c"], r#"{"c":{"d":3,"e":4}}"#),
            (&["c.e"], r#"{"c":{"e":4}}"#),
            (&["c.zzz"], r#"{"c":{}}"#),
            (&["b[*].x"], r#"{"b":[{"x":1},{}]}"#),
            (&["b[*]", "c.d"], r#"{"b":[2,{"x":1,"y":2},{"y":3}],"c":{"d":3}}"#),
            (&["b[*][*]"], r#"{"b":[]}"#),
            (&["a.b", "b.x", "c[*]"], "{}"),
        ] {
            assert_eq!(kept(paths, text), left, "{paths:?}");
        }
    }

    #[test]
    fn elements_of_nested_arrays_are_reached() {
        let text = r#"{"status":{"m":[[{"a":1,"b":2}],[],[3,{"a":4}]],"conditions":[{"type":"Ready","message":"x"}]}}"#;
        assert_eq!(
            dropped(&["status.m[*][*].a", "status.conditions[*].message"], text),
            r#"{"status":{"m":[[{"b":2}],[],[3,{}]],"conditions":[{"type":"Ready"}]}}"#
        );
        assert_eq!(
            dropped(&["status.m[*][*]"], text),
            text.replace(r#"[[{"a":1,"b":2}],[],[3,{"a":4}]]"#, "[[],[],[]]")
        );
    }

    #[test]
    fn paths_that_lead_nowhere_change_nothing() {
        let text = r#"{"a":{"b":[1]},"s":"x","n":null}"#;
        assert_eq!(dropped(&["z", "a.z", "a.b.c", "a[*]", "s.t", "n[*].x", "a.b[*].c"], text), text);
    }

    #[test]
    fn keys_are_compared_as_they_read() {
        let text = r#"{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","a[0]\\":"x","\u0062":1}}}"#;
        for (path, left) in [
            (
                r"metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration",
                r#"{"a[0]\\":"x","\u0062":1}"#,
            ),
            (
                r"metadata.annotations.a\[0]\\",
                r#"{"kubectl.kubernetes.io/last-applied-configuration":"{}","\u0062":1}"#,
            ),
            (
                "metadata.annotations.b",
                r#"{"kubectl.kubernetes.io/last-applied-configuration":"{}","a[0]\\":"x"}"#,
            ),
        ] {
            assert_eq!(dropped(&[path], text), format!(r#"{{"metadata":{{"annotations":{left}}}}}"#));
        }
    }

    #[test]
    fn pretty_printed_json_stays_so() {
        let text = "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ],\n  \"c\": {}\n}\n";
        assert_eq!(dropped(&["a"], text), "{\"b\": [\n    2\n  ],\n  \"c\": {}\n}\n");
        assert_eq!(dropped(&["b"], text), "{\n  \"a\": 1,\n  \"c\": {}\n}\n");
        assert_eq!(dropped(&["c"], text), "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}\n");
        assert_eq!(dropped(&["a", "b", "c"], text), "{\n}\n");
    }

    #[test]
    fn the_identity_stays_whatever_the_paths_say() {
        let text = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"1","generation":1,"labels":{"a":"b"},"ownerReferences":[{"uid":"o"}],"deletionTimestamp":"t"}}"#;
        let with_more = text.replace(r#""uid":"u","#, r#""uid":"u","annotations":{"c":"d"},"#);
        let all = ["kind", "apiVersion", "metadata", "metadata.name", "metadata.labels.a"];
        assert_eq!(dropped(&all, &with_more), text);
        assert_eq!(dropped(&["metadata.labels.a", "metadata.uid"], &with_more), with_more);
        assert_eq!(kept(&[], &with_more), text);
        assert_eq!(kept(&["metadata.labels.zzz"], &with_more), text);
        assert_eq!(kept(&["metadata.annotations.c"], &with_more), with_more);
        assert_eq!(kept(&["metadata"], &with_more), with_more);
    }

    #[test]
    fn a_bad_path_is_named() {
        for path in ["", ".", "a.", ".a", "a..b", "[*]", "[*].a", "a[0]", "a[", "a[*", "a[*]b", r"a\b", r"a\"]
        {
            let error = Selected::all_but(["fine", path]).unwrap_err();
            assert_eq!(error.path, path);
            assert!(error.to_string().starts_with("bad path"), "{error}");
        }
        assert_eq!(parse(r"a\.b[*][*].c\\").unwrap().len(), 4);
    }

    #[test]
    fn malformed_json_is_refused_with_its_place() {
        let selected = Selected::all_but(["a.b", "c[*].d"]).unwrap();
        for text in ["[]", r#"{"a":{1:2}}"#, r#"{"c":[{"d":1}"#, r#"{"c":[,,]}"#, r#"{"a":"#] {
            assert!(selected.copy(text.as_bytes(), &mut Vec::new()).is_err(), "{text}");
        }
    }

    const KEYS: [&str; 12] =
        ["a", "b", "a.b", r"\", "x[*]", "q\"q", "é", "metadata", "name", "labels", "kind", "annotations"];

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Into::into),
            r#"[a-z\\"{}\[\],: ]{0,12}"#.prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 60, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                members(inner).prop_map(Into::into)
            ]
        })
    }

    fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        let member = (prop::sample::select(&KEYS[..]), value);
        prop::collection::vec(member, 0..6)
            .prop_map(|members| members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    fn paths() -> impl Strategy<Value = Vec<Vec<Segment>>> {
        let key = prop::sample::select(&KEYS[..]).prop_map(|key| Segment::Key(key.into()));
        let deeper = prop::collection::vec(prop_oneof![3 => key.clone(), 2 => Just(Segment::Each)], 0..4);
        let path = (key, deeper).prop_map(|(key, deeper)| [vec![key], deeper].concat());
        prop::collection::vec(path, 0..5)
    }

    fn written(path: &[Segment]) -> String {
        let mut text = String::new();
        for segment in path {
            match segment {
                Segment::Each => text.push_str("[*]"),
                Segment::Key(key) => {
                    text.push_str(if text.is_empty() { "" } else { "." });
                    text.push_str(&key.replace('\\', r"\\").replace('.', r"\.").replace('[', r"\["));
                }
            }
        }
        text
    }

    /// The same on a tree of values: removes the members and elements that `path` names.
    fn remove(value: &mut Value, path: &[Segment]) {
        match (value, path) {
            (Value::Object(members), [Segment::Key(key)]) => drop(members.remove(&**key)),
            (Value::Object(members), [Segment::Key(key), deeper @ ..]) => {
                if let Some(value) = members.get_mut(&**key) {
                    remove(value, deeper);
                }
            }
            (Value::Array(elements), [Segment::Each]) => elements.clear(),
            (Value::Array(elements), [Segment::Each, deeper @ ..]) => {
                elements.iter_mut().for_each(|element| remove(element, deeper));
            }
            _ => {}
        }
    }

    /// Returns the parts of a value that `paths` name, and their containers.
    fn only(value: &Value, paths: &[&[Segment]]) -> Option<Value> {
        if paths.iter().any(|path| path.is_empty()) {
            return Some(value.clone());
        }
        let below = |first: &Segment| -> Vec<&[Segment]> {
            paths.iter().filter(|path| path[0] == *first).map(|path| &path[1..]).collect()
        };
        match value {
            Value::Object(members) if paths.iter().any(|path| path[0] != Segment::Each) => {
                let of_member = |(key, value): (&String, &Value)| {
                    let below = below(&Segment::Key(key.as_str().into()));
                    Some((key.clone(), only(value, &below)?))
                };
                Some(Value::Object(members.iter().filter_map(of_member).collect()))
            }
            Value::Array(elements) if paths.iter().any(|path| path[0] == Segment::Each) => {
                let below = below(&Segment::Each);
                Some(elements.iter().filter_map(|element| only(element, &below)).collect())
            }
            _ => None,
        }
    }

    fn text_of(object: &Value, pretty: bool) -> String {
        if pretty { serde_json::to_string_pretty(object).unwrap() } else { object.to_string() }
    }

    proptest! {
        #[test]
        fn what_is_dropped_from_the_bytes_is_what_is_removed_from_the_value(
            members in members(json()), paths in paths(), pretty: bool,
        ) {
            let object = Value::Object(members);
            let mut expected = object.clone();
            paths.iter().for_each(|path| remove(&mut expected, path));
            for key in ["apiVersion", "kind"] {
                if let Some(value) = object.get(key) {
                    expected[key] = value.clone();
                }
            }
            if let Some(Value::Object(metadata)) = object.get("metadata") {
                if expected.get("metadata").is_none() {
                    expected["metadata"] = json!({});
                }
                for (key, value) in metadata.iter().filter(|(key, _)| IDENTITY.contains(&key.as_str())) {
                    expected["metadata"][key] = value.clone();
                }
            }
            let selected = Selected::all_but(paths.iter().map(|path| written(path))).unwrap();
            let left = copied(&selected, &text_of(&object, pretty));
            prop_assert_eq!(serde_json::from_str::<Value>(&left).unwrap(), expected, "{}", left);
        }

        #[test]
        fn what_is_kept_of_the_bytes_is_what_is_picked_from_the_value(
            members in members(json()), paths in paths(), pretty: bool,
        ) {
            let object = Value::Object(members);
            let key = |key: &str| Segment::Key(key.into());
            let identity = IDENTITY.map(|name| vec![key("metadata"), key(name)]);
            let always = [vec![key("apiVersion")], vec![key("kind")]];
            let all: Vec<_> = paths.iter().chain(&identity).chain(&always).map(Vec::as_slice).collect();
            let selected = Selected::only(paths.iter().map(|path| written(path))).unwrap();
            let left = copied(&selected, &text_of(&object, pretty));
            let left: Value = serde_json::from_str(&left).unwrap();
            prop_assert_eq!(Some(left), only(&object, &all));
        }
    }
}
