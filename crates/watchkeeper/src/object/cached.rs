//! Cached objects: one immutable allocation with the identity, which is readable at once, and the JSON.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{ClusterResourceScope, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use triomphe::ThinArc;

use super::decoded::{Decoded, Keep, Slot};
use super::identity::{self, Identity, IdentityError, Span, TypeMeta};
use super::json_error::{JsonError, decode};
use super::key_error::KeyError;
use super::name::ObjectName;
use super::scan::Cursor;
use super::transform::Transform;
use super::version::ResourceVersion;

/// A type that can be cached: any kind of `k8s-openapi`, of `kube-derive`, or one known only at run time
/// (`DynamicObject`).
pub trait Kind:
    Resource<DynamicType: Clone + fmt::Debug + Eq + std::hash::Hash + Send + Sync + 'static, Scope: 'static>
    + DeserializeOwned
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<
            DynamicType: Clone + fmt::Debug + Eq + std::hash::Hash + Send + Sync + 'static,
            Scope: 'static,
        > + DeserializeOwned
        + fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// A cached object of kind `K`: shared, immutable, in one allocation. A clone copies a pointer.
///
/// The identity is read without decoding. The body stays the JSON that the server sent, minus `metadata.managedFields`,
/// until a caller decodes the typed value ([`Object::get`]) or a part of it ([`Object::view`]).
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::Object;
///
/// let object = Object::<ConfigMap>::from_json(br#"{"metadata":{"name":"a","namespace":"ns"},"data":{"k":"v"}}"#)?;
/// assert_eq!(object.key().to_string(), "ns/a");
/// assert_eq!(object.get()?.data.as_ref().unwrap()["k"], "v");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Object<K>(ThinArc<Header<K>, u8>);

struct Header<K> {
    identity: Identity,
    slot: Slot<K>,
    cache: Arc<Decoded<K>>,
}

/// The error of an object whose JSON does not fit the requested type.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode {key} as {kind}")]
pub struct DecodeError {
    /// The key of the object.
    pub key: ObjectName,
    /// The requested type.
    pub kind: &'static str,
    /// The place in the JSON, and the reason.
    #[source]
    pub source: JsonError,
}

/// Makes objects of one kind out of bytes, with one allocation each.
#[derive(Debug)]
pub(crate) struct Maker<K> {
    cache: Arc<Decoded<K>>,
    expected: Option<(String, String)>,
    keep_managed_fields: bool,
    transform: Option<Transform>,
    scratch: Vec<u8>,
    transformed: Vec<u8>,
}

impl<K> Maker<K> {
    /// Returns a factory of objects that share `cache` for their decoded values. It refuses objects of another kind
    /// than `expected` (apiVersion, kind).
    pub(crate) fn new(cache: Arc<Decoded<K>>, expected: Option<(String, String)>) -> Self {
        Self {
            cache,
            expected,
            keep_managed_fields: false,
            transform: None,
            scratch: Vec::new(),
            transformed: Vec::new(),
        }
    }

    pub(crate) fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.keep_managed_fields = keep;
        self
    }

    /// Applies `transform` to the bytes of every object first.
    pub(crate) fn transform(mut self, transform: Option<Transform>) -> Self {
        self.transform = transform;
        self
    }

    pub(crate) fn make(&mut self, bytes: &[u8]) -> Result<Object<K>, IdentityError> {
        let identity = match self.transform.clone() {
            None => {
                let (identity, types) = identity::read(bytes, self.keep_managed_fields, &mut self.scratch)?;
                self.is_expected(&types)?;
                identity
            }
            Some(transform) => {
                // A transform function expects its own kind, and may remove the field `kind`.
                self.is_expected(&identity::types(bytes)?)?;
                self.identity_of_transformed(&transform, bytes).map_err(|message| {
                    transform.count_failure();
                    self.untransformed(bytes, message)
                })?
            }
        };
        let header = Header { identity, slot: Slot::empty(), cache: self.cache.clone() };
        Ok(Object(ThinArc::from_header_and_slice(header, &self.scratch)))
    }

    fn is_expected(&self, types: &TypeMeta) -> Result<(), IdentityError> {
        let Some((api_version, kind)) = &self.expected else { return Ok(()) };
        // Items of built-in lists have neither field.
        let other_kind = types.kind.as_ref().is_some_and(|found| found != kind);
        if !other_kind && types.api_version.as_ref().is_none_or(|found| found == api_version) {
            return Ok(());
        }
        let name = |v: Option<&str>, k: Option<&str>| format!("{} {}", v.unwrap_or("?"), k.unwrap_or("?"));
        Err(IdentityError::OtherKind {
            expected: format!("{api_version} {kind}"),
            found: name(types.api_version.as_deref(), types.kind.as_deref()),
        })
    }

    fn identity_of_transformed(&mut self, transform: &Transform, bytes: &[u8]) -> Result<Identity, String> {
        transform.apply(bytes, &mut self.transformed, &mut self.scratch)?;
        match identity::read(&self.transformed, self.keep_managed_fields, &mut self.scratch) {
            Ok((identity, _)) => Ok(identity),
            Err(error) => Err(format!("the result is unusable: {error}")),
        }
    }

    /// Returns the error of a failed transform, with the object's name. Without a name, the bytes were unusable before
    /// it.
    fn untransformed(&mut self, bytes: &[u8], message: String) -> IdentityError {
        match identity::read(bytes, true, &mut self.scratch) {
            Ok((identity, _)) => IdentityError::Transform { name: identity.key(&self.scratch), message },
            Err(error) => error,
        }
    }
}

impl<K> Object<K> {
    /// Returns the object of its JSON. Its decoded value is kept only as long as it is in use.
    pub fn from_json(bytes: &[u8]) -> Result<Self, IdentityError> {
        Maker::new(Decoded::new(Keep::None), None).make(bytes)
    }

    /// Returns the object's key within its kind.
    pub fn key(&self) -> ObjectName {
        ObjectName::namespaced(self.namespace().unwrap_or(""), self.name())
    }

    /// Returns the namespace; none for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        let namespace = self.text(&self.identity().namespace);
        (!namespace.is_empty()).then_some(namespace)
    }

    /// Returns the name within the namespace.
    pub fn name(&self) -> &str {
        self.text(&self.identity().name)
    }

    /// Returns the uid, which distinguishes objects that have the same name one after the other; empty if the server
    /// set none.
    pub fn uid(&self) -> &str {
        self.text(&self.identity().uid)
    }

    /// Returns the resource version of this state of the object.
    pub fn version(&self) -> &ResourceVersion {
        &self.identity().version
    }

    /// Returns `metadata.generation`, or 0 if there is none.
    pub fn generation(&self) -> i64 {
        self.identity().generation
    }

    /// Returns whether the object has a `deletionTimestamp` and waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.identity().deleting
    }

    /// Returns the labels, read from the bytes during iteration.
    pub fn labels(&self) -> Labels<'_> {
        Labels(self.identity().labels.of(self.all()))
    }

    /// Returns the annotations, read from the bytes during iteration.
    pub fn annotations(&self) -> Labels<'_> {
        Labels(self.identity().annotations.of(self.all()))
    }

    /// Returns the finalizers of the object; empty if there are none or they cannot be read.
    pub fn finalizers(&self) -> Vec<String> {
        identity::finalizers(self.json())
            .and_then(|json| serde_json::from_slice(json).ok())
            .unwrap_or_default()
    }

    /// Returns the owner references; empty if there are none or they cannot be read.
    pub fn owner_references(&self) -> Vec<OwnerReference> {
        serde_json::from_slice(self.identity().owners.of(self.all())).unwrap_or_default()
    }

    /// Returns the owner that controls this object.
    pub fn controller(&self) -> Option<OwnerReference> {
        self.owner_references().into_iter().find(|owner| owner.controller == Some(true))
    }

    /// Returns the key of the owner that controls this object if that owner is of kind `F`, in any version.
    pub fn controller_of<F: Resource<DynamicType: Default, Scope: 'static>>(&self) -> Option<ObjectName> {
        self.controller_of_kind::<F>(&F::DynamicType::default())
    }

    /// As [`controller_of`](Self::controller_of), for a kind known at run time.
    pub(crate) fn controller_of_kind<F: Resource<Scope: 'static>>(
        &self,
        kind: &F::DynamicType,
    ) -> Option<ObjectName> {
        let owner = self.controller()?;
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        if owner.kind != F::kind(kind) || group != F::group(kind) {
            return None;
        }
        // An owner is in the namespace of its dependents, or cluster-scoped.
        let is_cluster_scoped = TypeId::of::<F::Scope>() == TypeId::of::<ClusterResourceScope>();
        let namespace = if is_cluster_scoped { None } else { self.namespace() };
        Some(ObjectName::namespaced(namespace.unwrap_or(""), &owner.name))
    }

    /// Returns the JSON of the object as it is kept.
    pub fn json(&self) -> &[u8] {
        &self.all()[..self.identity().body as usize]
    }

    /// Returns whether both are the same state of the same object: equal key, uid, version and content. Without a
    /// version, they are not.
    ///
    /// The content counts because a server that was restored from a backup uses versions again.
    pub fn same_state(&self, other: &Self) -> bool {
        std::ptr::eq(self.identity(), other.identity())
            || (!self.version().is_unset()
                && self.version() == other.version()
                && self.key_bytes() == other.key_bytes()
                && self.uid() == other.uid()
                && self.same_content(other))
    }

    /// Returns whether an update from this state is a resync: the version is equal, and so is the content.
    pub(crate) fn is_resynced_as(&self, other: &Self) -> bool {
        std::ptr::eq(self.identity(), other.identity())
            || (self.version() == other.version() && self.same_content(other))
    }

    fn same_content(&self, other: &Self) -> bool {
        without_type(self.json()) == without_type(other.json())
    }

    /// Decodes only the fields of `V`.
    pub fn view<V: DeserializeOwned>(&self) -> Result<V, DecodeError> {
        decode(self.json()).map_err(|source| self.undecodable::<V>(source))
    }

    /// Returns the bytes that this object takes in memory, without its decoded value.
    pub fn size(&self) -> usize {
        size_of::<Header<K>>() + self.all().len() + 2 * size_of::<usize>()
    }

    /// Returns namespace and name as bytes: hashing and comparing does not need a second UTF-8 check.
    pub(crate) fn key_bytes(&self) -> (&[u8], &[u8]) {
        let identity = self.identity();
        (identity.namespace.of(self.all()), identity.name.of(self.all()))
    }

    fn identity(&self) -> &Identity {
        &self.0.header.header.identity
    }

    fn all(&self) -> &[u8] {
        &self.0.slice
    }

    fn text(&self, span: &Span) -> &str {
        // Checked when the object was created.
        std::str::from_utf8(span.of(self.all())).unwrap_or_default()
    }

    fn undecodable<V>(&self, source: JsonError) -> DecodeError {
        DecodeError { key: self.key(), kind: std::any::type_name::<V>(), source }
    }
}

impl<K: DeserializeOwned> Object<K> {
    /// Returns the typed value, which is decoded on first use and shared by all holders.
    pub fn get(&self) -> Result<Arc<K>, DecodeError> {
        let header = &self.0.header.header;
        header.slot.get(&header.cache, || decode(self.json()).map_err(|source| self.undecodable::<K>(source)))
    }
}

impl<K: Serialize> Object<K> {
    /// Returns the object of a typed value, for example to put it into an indexer.
    ///
    /// # Errors
    ///
    /// The value has no name, or its JSON is not an object.
    pub fn from_typed(value: &K) -> Result<Self, KeyError> {
        let unencodable =
            |error| KeyError::of_json::<K>(b"", IdentityError::Unencodable(JsonError::from(error)));
        let json = serde_json::to_vec(value).map_err(unencodable)?;
        Self::from_json(&json).map_err(|cause| KeyError::of_json::<K>(&json, cause))
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Object<K> {
    /// Identity only: the body may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Object");
        f.field("key", &self.key()).field("uid", &self.uid()).field("version", self.version()).finish()
    }
}

/// Labels or annotations of an object, read from its bytes during iteration.
#[derive(Clone, Copy)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Labels<'a> {
    /// Iterates over all pairs in the server's order; unreadable pairs are skipped.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        let mut cursor = Cursor::new(self.0);
        let mut open = cursor.enter().is_ok();
        std::iter::from_fn(move || {
            while open {
                let Ok(Some(key)) = cursor.key() else {
                    open = false;
                    break;
                };
                let Ok(value) = cursor.string() else {
                    open = cursor.value().is_ok();
                    continue;
                };
                if let (Ok(key), Ok(value)) = (cursor.text(&key), cursor.text(&value)) {
                    return Some((key, value));
                }
            }
            None
        })
    }

    /// Returns the value of one label.
    pub fn get(&self, key: &str) -> Option<Cow<'a, str>> {
        self.iter().find(|(found, _)| found == key).map(|(_, value)| value)
    }

    /// Returns all pairs as an owned map, which `kube_core`'s selectors match on.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
    }
}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the JSON behind the `kind` and the `apiVersion` at its front, which the items of a list lack.
fn without_type(json: &[u8]) -> &[u8] {
    let mut rest = json.strip_prefix(b"{").unwrap_or(json);
    for _ in 0..2 {
        let value = rest.strip_prefix(b"\"kind\":\"").or_else(|| rest.strip_prefix(b"\"apiVersion\":\""));
        let Some(value) = value else { break };
        let Some(end) = value.iter().position(|byte| *byte == b'"') else { break };
        let behind = &value[end + 1..];
        rest = behind.strip_prefix(b",").unwrap_or(behind);
    }
    rest
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Node, Pod, Secret};
    use serde::Deserialize;

    use super::*;

    const POD: &[u8] = br#"{"metadata":{"name":"web-1","namespace":"default","uid":"u1","resourceVersion":"7","generation":2,
        "labels":{"app":"web","weird":"a\"b"},"managedFields":[{"manager":"kubelet"}],
        "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"r1","controller":true}]},
        "spec":{"containers":[],"nodeName":"n1"}}"#;

    #[test]
    fn identity_is_readable_without_decoding() {
        let pod = Object::<Pod>::from_json(POD).unwrap();
        assert_eq!(pod.key(), ObjectName::namespaced("default", "web-1"));
        assert_eq!((pod.uid(), pod.version(), pod.generation()), ("u1", &"7".into(), 2));
        assert_eq!(pod.labels().get("app").as_deref(), Some("web"));
        assert_eq!(pod.labels().get("weird").as_deref(), Some("a\"b"));
        assert_eq!(pod.labels().iter().count(), 2);
        assert!(pod.annotations().iter().next().is_none() && !pod.is_deleting());
        assert_eq!(pod.controller_of::<ReplicaSet>(), Some(ObjectName::namespaced("default", "web")));
        assert_eq!(pod.controller_of::<Pod>(), None);
        let owner = r#"{"apiVersion":"v1","kind":"Node","name":"n1","uid":"x","controller":true}"#;
        let text =
            format!(r#"{{"metadata":{{"name":"p","namespace":"kube-system","ownerReferences":[{owner}]}}}}"#);
        let mirror = Object::<Pod>::from_json(text.as_bytes()).unwrap();
        assert_eq!(mirror.controller_of::<Node>(), Some(ObjectName::cluster("n1")));
        assert!(!String::from_utf8_lossy(pod.json()).contains("managedFields"));
    }

    #[test]
    fn finalizers_are_readable_without_decoding() {
        for (metadata, finalizers) in [
            (
                r#"{"name":"a","finalizers":["example.com/a","b\u0041"],"uid":"u"}"#,
                &["example.com/a", "bA"][..],
            ),
            (r#"{"name":"a","finalizers":[]}"#, &[]),
            (r#"{"name":"a","finalizers":null}"#, &[]),
            (r#"{"name":"a","finalizers":[7]}"#, &[]),
            (r#"{"name":"a","labels":{"finalizers":"x"}}"#, &[]),
        ] {
            let json =
                format!(r#"{{"kind":"Pod","metadata":{metadata},"spec":{{"finalizers":["kubernetes"]}}}}"#);
            assert_eq!(Object::<Pod>::from_json(json.as_bytes()).unwrap().finalizers(), finalizers, "{json}");
        }
    }

    #[test]
    fn the_same_state_has_the_same_content_listed_or_watched() {
        let object = |front: &str, version: u64, data: &str| {
            let metadata = format!(r#"{{"name":"a","uid":"u","resourceVersion":"{version}"}}"#);
            let json = format!(r#"{{{front}"metadata":{metadata},"data":"{data}"}}"#);
            Object::<()>::from_json(json.as_bytes()).unwrap()
        };
        let listed = object("", 7, "x");
        for front in ["", r#""kind":"A","apiVersion":"v1","#, r#""apiVersion":"v1","kind":"A","#] {
            let watched = object(front, 7, "x");
            assert!(listed.same_state(&watched) && watched.is_resynced_as(&listed), "{front}");
            // A version that is used again, after a restore.
            let other = object(front, 7, "y");
            assert!(!listed.same_state(&other) && !other.is_resynced_as(&listed), "{front}");
            assert!(!listed.same_state(&object(front, 8, "x")), "{front}");
        }
    }

    #[test]
    fn the_typed_value_is_decoded_once_and_shared() {
        let pod = Object::<Pod>::from_json(POD).unwrap();
        let (a, b) = (pod.get().unwrap(), pod.clone().get().unwrap());
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(a.spec.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    }

    #[test]
    fn a_view_decodes_only_the_fields_asked_for() {
        #[derive(Deserialize)]
        struct Node {
            spec: Spec,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            node_name: String,
        }
        let pod = Object::<Pod>::from_json(POD).unwrap();
        assert_eq!(pod.view::<Node>().unwrap().spec.node_name, "n1");
    }

    #[test]
    fn an_undecodable_object_keeps_its_identity_and_names_itself() {
        let pod =
            Object::<Pod>::from_json(br#"{"metadata":{"name":"bad"},"spec":{"containers":7}}"#).unwrap();
        let error = pod.get().unwrap_err();
        assert!(error.to_string().contains("bad") && error.to_string().contains("Pod"), "{error}");
        assert_eq!(error.source.to_string(), "spec.containers: invalid type, expected a sequence");
    }

    #[test]
    fn a_typed_value_becomes_an_object_and_back() {
        let pod = Object::<Pod>::from_json(POD).unwrap().get().unwrap();
        let again = Object::from_typed(&*pod).unwrap();
        assert_eq!(*again.get().unwrap(), *pod);
        assert_eq!(Object::from_typed(&Pod::default()).unwrap_err().cause, IdentityError::NoName);
    }

    #[test]
    fn debug_shows_identity_and_never_the_body() {
        let secret = br#"{"metadata":{"name":"s"},"data":{"password":"aHVudGVyMg=="}}"#;
        let text = format!("{:?}", Object::<Secret>::from_json(secret).unwrap());
        assert!(text.contains("\"s\"") && !text.contains("aHVudGVyMg"), "{text}");
    }

    #[test]
    fn an_object_of_another_kind_is_refused() {
        let mut maker = Maker::<Pod>::new(Decoded::new(Keep::None), Some(("v1".into(), "Pod".into())));
        assert!(maker.make(br#"{"metadata":{"name":"a"}}"#).is_ok());
        assert!(maker.make(br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#).is_ok());
        let error = maker.make(br#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#).unwrap_err();
        assert_eq!(error.to_string(), "expected kind v1 Pod, found v1 Node");
    }

    fn made_with(transform: Transform, bytes: &[u8]) -> Result<Object<Pod>, IdentityError> {
        let expected = Some(("v1".into(), "Pod".into()));
        Maker::new(Decoded::new(Keep::None), expected).transform(Some(transform)).make(bytes)
    }

    #[test]
    fn a_transform_comes_before_the_identity_and_the_cut() {
        let pod =
            made_with(Transform::drop_paths(["spec.containers", "metadata.uid"]).unwrap(), POD).unwrap();
        assert_eq!((pod.name(), pod.uid(), pod.labels().iter().count()), ("web-1", "u1", 2));
        let json: serde_json::Value = serde_json::from_slice(pod.json()).unwrap();
        assert_eq!(json["spec"], serde_json::json!({"nodeName": "n1"}));
        assert_eq!(json["metadata"].get("managedFields"), None);
        let (drop, keep) =
            (Transform::drop_paths(["metadata.labels"]), Transform::keep_paths(["spec.nodeName"]));
        let rename = Transform::value(|mut json| -> Result<_, &str> {
            json["metadata"]["name"] = json["spec"]["nodeName"].take();
            json["metadata"]["resourceVersion"] = "0".into();
            Ok(json)
        });
        let pod = made_with(drop.unwrap().then(&rename).then(&keep.unwrap()), POD).unwrap();
        assert_eq!((pod.key().to_string().as_str(), pod.version()), ("default/n1", &"7".into()));
        assert!(pod.json().ends_with(br#""spec":{"nodeName":null}}"#));
    }

    #[test]
    fn a_transform_that_fails_names_the_object_and_its_reason() {
        fn bad() -> [Transform; 6] {
            [
                Transform::value(|_| Err("no luck")),
                Transform::value(|json| {
                    serde_json::from_value::<Vec<String>>(json["spec"]["nodeName"].clone()).map(Into::into)
                }),
                Transform::value(|_| -> Result<_, String> { panic!("at the {}", "disco") }),
                Transform::value(|_| Ok::<_, String>(serde_json::json!({"metadata": {}}))),
                Transform::value(|_| Ok::<_, String>(7.into())),
                Transform::drop_paths(["spec.x.y"])
                    .unwrap()
                    .then(&Transform::value(|_| Err("later".to_owned()))),
            ]
        }
        let reasons = [
            "no luck",
            "invalid type, expected a sequence at line 0 column 0",
            "the function panicked: at the disco",
            "the result is unusable: object has no metadata.name",
            "the result is unusable: malformed JSON: expected an object at byte 0",
            "later",
        ];
        for (transform, reason) in bad().into_iter().zip(reasons) {
            let error = made_with(transform.clone(), POD).unwrap_err();
            assert_eq!(error.to_string(), format!("cannot transform default/web-1: {reason}"));
            assert_eq!(transform.failures(), 1);
        }
        // Bytes that were unusable before the transform are reported as such.
        for transform in bad() {
            assert_eq!(made_with(transform, br#"{"metadata":{}}"#).unwrap_err(), IdentityError::NoName);
        }
    }

    #[test]
    fn a_function_sees_no_object_of_another_kind() {
        let transform = Transform::value(|_| -> Result<_, &str> { panic!("called") });
        let error = made_with(transform.clone(), br#"{"kind":"Node","metadata":{"name":"a"}}"#).unwrap_err();
        assert_eq!(error.to_string(), "expected kind v1 Pod, found ? Node");
        assert_eq!(transform.failures(), 0);
        let no_kind = Transform::value(|mut json| {
            json["kind"] = "Other".into();
            Ok::<_, String>(json)
        });
        assert!(made_with(no_kind, br#"{"kind":"Pod","metadata":{"name":"a"}}"#).is_ok());
    }
}
