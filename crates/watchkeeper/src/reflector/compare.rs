//! Compares a cache with a list of metadata, by name, uid and version.

use std::fmt;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::metadata::list_metadata;
use crate::clock::Clock;
use crate::object::{Kind, Object, ObjectName, ResourceVersion};
use crate::source::{ListOptions, ListerWatcher, VersionMatch};
use crate::wire::ApiError;

/// The states of a cache at one moment, from which those that a list confirms are removed.
#[derive(Debug)]
pub(super) struct Comparison<K> {
    cached: HashMap<ObjectName, Object<K>, FixedState>,
    differences: Vec<Difference>,
}

/// An object whose cached state is not the server's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Difference {
    pub(super) key: ObjectName,
    /// The uid and version on the server; none if the server does not have the object.
    listed: Option<(String, ResourceVersion)>,
}

/// The result of a comparison.
#[derive(Debug)]
pub(super) struct Compared {
    /// The version of the list.
    pub(super) version: ResourceVersion,
    pub(super) differences: Vec<Difference>,
}

impl<K> Comparison<K> {
    pub(super) fn new(objects: Vec<Object<K>>, hasher: FixedState) -> Self {
        let mut cached = HashMap::with_capacity_and_hasher(objects.len(), hasher);
        cached.extend(objects.into_iter().map(|object| (object.key(), object)));
        Self { cached, differences: Vec::new() }
    }

    /// Compares one object of the list.
    fn item(&mut self, listed: &Object<()>) {
        let key = listed.key();
        let cached = self.cached.remove(&key);
        let difference =
            Difference { key, listed: Some((listed.uid().to_owned(), listed.version().clone())) };
        if !difference.is_mended_by(cached.as_ref()) {
            self.differences.push(difference);
        }
    }

    /// What was not listed does not exist.
    fn finish(self, version: ResourceVersion) -> Compared {
        let mut differences = self.differences;
        differences.extend(self.cached.into_keys().map(|key| Difference { key, listed: None }));
        differences.sort_by(|a, b| a.key.cmp(&b.key));
        Compared { version, differences }
    }
}

impl Difference {
    /// Returns whether the cached state is the server's.
    pub(super) fn is_mended_by<K>(&self, cached: Option<&Object<K>>) -> bool {
        match (&self.listed, cached) {
            (Some((uid, version)), Some(cached)) => cached.uid() == uid && cached.version() == version,
            (None, None) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.listed {
            Some((_, version)) => write!(f, "{} is at version {version}", self.key),
            None => write!(f, "{} does not exist", self.key),
        }
    }
}

/// Lists the metadata of all objects at exactly the version `at`, or at the newest if it is unset, and compares them.
pub(super) async fn compare<K: Kind, S: ListerWatcher>(
    source: Arc<S>,
    clock: Clock,
    limit: u32,
    cap: usize,
    at: ResourceVersion,
    mut comparison: Comparison<K>,
) -> Result<Compared, ApiError> {
    let options = ListOptions {
        limit,
        version: at,
        version_match: VersionMatch::Exact,
        metadata_only: true,
        ..ListOptions::default()
    };
    let version = list_metadata(&*source, &clock, cap, options, |object| comparison.item(&object)).await?;
    Ok(comparison.finish(version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Generator;

    fn json(name: &str, uid: &str, version: u64) -> String {
        format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#)
    }

    fn differences(cached: &[(&str, &str, u64)], listed: &[(&str, &str, u64)]) -> Vec<String> {
        let objects = cached.iter().map(|(name, uid, version)| {
            Object::<()>::from_json(json(name, uid, *version).as_bytes()).unwrap()
        });
        let mut comparison = Comparison::new(objects.collect(), Generator::seeded(1).hasher());
        listed.iter().for_each(|(name, uid, version)| {
            comparison.item(&Object::from_json(json(name, uid, *version).as_bytes()).unwrap());
        });
        comparison.finish(9.into()).differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_states_do_not_differ() {
        let state = [("a", "u", 1), ("b", "v", 2)];
        assert!(differences(&state, &state).is_empty());
        assert!(differences(&[], &[]).is_empty());
    }

    #[test]
    fn each_way_to_differ_is_found_and_named() {
        assert_eq!(differences(&[], &[("a", "u", 1)]), ["a is at version 1"], "a lost add");
        assert_eq!(differences(&[("a", "u", 1)], &[("a", "u", 2)]), ["a is at version 2"], "a lost update");
        assert_eq!(differences(&[("a", "u", 1)], &[("a", "w", 1)]), ["a is at version 1"], "another object");
        assert_eq!(
            differences(&[("b", "u", 1), ("a", "u", 1)], &[]),
            ["a does not exist", "b does not exist"]
        );
    }
}
