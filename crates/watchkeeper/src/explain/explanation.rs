//! The explanation of one object by all controllers that watch its kind.

use super::explained::Known;
use super::key_view::{Explanation, KeyView};
use super::nearest::nearest;
use super::query::{ExplainError, cut};
use super::record::{self, Around};
use super::view::KindView;
use crate::object::ObjectName;

/// The number of bytes of a name that an error repeats.
const SHOWN: usize = 80;

/// Returns the views of all controllers that watch the kind, and the most serious verdict.
pub(super) fn explain(around: &Around<'_>, kind: &str, key: &str) -> Result<Explanation, ExplainError> {
    let name = parse(key)?;
    let kind = meant(around, kind)?;
    let is_namespaced = around.controllers.iter().any(|known| known.is_namespaced(&kind));
    let name = in_default(&name, &kind, is_namespaced)?;
    let mut views: Vec<KeyView> = Vec::new();
    for known in around.controllers {
        if known.kind.is_same(&kind) {
            views.push(record::view(known, &name, around));
        }
        let mut relations: Vec<_> =
            known.related.iter().filter(|(_, watched)| watched.kind().is_same(&kind)).collect();
        relations.sort_by_key(|(relation, _)| *relation);
        relations.dedup_by_key(|(relation, _)| *relation);
        for (relation, watched) in relations {
            views.push(record::related_view(known, *relation, &watched.kind(), &name, around.times));
        }
    }
    views.sort_by_key(|view| view.relation);
    let worst = views.iter().rev().max_by_key(|view| view.verdict.level);
    Ok(Explanation {
        at: around.times.wall(around.times.now),
        kind,
        key: name.to_string(),
        verdict: worst.map(|view| view.verdict.clone()).unwrap_or_default(),
        views,
    })
}

/// Reads a key.
pub(super) fn parse(key: &str) -> Result<ObjectName, ExplainError> {
    key.parse().map_err(|_| ExplainError::BadKey(cut(key, SHOWN)))
}

/// Puts a name without a namespace into the default one, if its kind has namespaces.
fn in_default(name: &ObjectName, kind: &KindView, is_namespaced: bool) -> Result<ObjectName, ExplainError> {
    match name.namespace() {
        None if is_namespaced => Ok(ObjectName::namespaced("default", name.name())),
        Some(_) if !is_namespaced => Err(ExplainError::ClusterScoped {
            kind: kind.kind.clone(),
            suggestions: vec![cut(name.name(), SHOWN)],
        }),
        _ => Ok(name.clone()),
    }
}

/// Returns the one kind that is meant.
fn meant(around: &Around<'_>, asked: &str) -> Result<KindView, ExplainError> {
    let mut kinds: Vec<KindView> = Vec::new();
    for kind in around.controllers.iter().flat_map(|known| known.kinds()) {
        if !kinds.iter().any(|known| known.is_same(&kind)) {
            kinds.push(kind);
        }
    }
    choose(kinds, asked)
}

/// Returns the kind of `kinds` that is meant. Without a group, that of the core group has precedence, as in kubectl.
fn choose(kinds: Vec<KindView>, asked: &str) -> Result<KindView, ExplainError> {
    let mut found: Vec<_> = kinds.iter().filter(|kind| is_meant(kind, asked)).collect();
    if found.iter().any(|kind| kind.group.is_empty()) {
        found.retain(|kind| kind.group.is_empty());
    }
    match &found[..] {
        [] => Err(ExplainError::NoKind {
            kind: cut(asked, SHOWN),
            suggestions: nearest(asked, kinds.into_iter().map(|kind| kind.kind)),
        }),
        [one] => Ok((*one).clone()),
        many => Err(ExplainError::AmbiguousKind {
            kind: cut(asked, SHOWN),
            suggestions: many.iter().map(|kind| kind.resource()).collect(),
        }),
    }
}

/// Returns whether `asked` means this kind: `Deployment`, `deployments`, `deployment.apps` or `deployments.apps`.
fn is_meant(kind: &KindView, asked: &str) -> bool {
    let asked = asked.to_ascii_lowercase();
    let (name, group) = match asked.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (asked.as_str(), None),
    };
    let is_named = name == kind.kind.to_ascii_lowercase() || name == kind.plural.to_ascii_lowercase();
    is_named && group.is_none_or(|group| group == kind.group.to_ascii_lowercase())
}

impl KindView {
    /// Returns the plural name with the group, such as `deployments.apps`.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

impl Known {
    /// Returns the kinds that it watches, its own first.
    fn kinds(&self) -> Vec<KindView> {
        let related = self.related.iter().map(|(_, watched)| watched.kind());
        std::iter::once(self.kind.clone()).chain(related).collect()
    }

    /// Returns whether it knows that objects of the kind have namespaces.
    fn is_namespaced(&self, kind: &KindView) -> bool {
        let mains = self.mains.iter().filter(|_| self.kind.is_same(kind));
        let related =
            self.related.iter().map(|(_, watched)| watched).filter(|watched| watched.kind().is_same(kind));
        mains.chain(related).any(|watched| watched.is_namespaced())
    }

    /// Returns the key of its own kind that a name means.
    pub(super) fn named(&self, name: &ObjectName) -> Result<ObjectName, ExplainError> {
        in_default(name, &self.kind, self.is_namespaced(&self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str) -> KindView {
        let (group, plural) = (group.to_owned(), "events".to_owned());
        KindView { group, kind: "Event".to_owned(), plural, ..KindView::default() }
    }

    fn chosen(groups: &[&str], asked: &str) -> Result<String, String> {
        let kinds = groups.iter().map(|group| kind(group)).collect();
        choose(kinds, asked).map(|kind| kind.resource()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_kind_in_several_groups_is_asked_for_with_its_group() {
        let ambiguous = "the kind \"event\" is in several groups: use one of events.a.dev, events.b.dev";
        assert_eq!(chosen(&["a.dev", "b.dev"], "event"), Err(ambiguous.to_owned()));
        assert_eq!(chosen(&["a.dev", "b.dev"], "Event.B.dev").as_deref(), Ok("events.b.dev"));
        assert_eq!(chosen(&["a.dev", ""], "Events").as_deref(), Ok("events"), "the core group wins");
        assert_eq!(chosen(&["a.dev", ""], "events.a.dev").as_deref(), Ok("events.a.dev"));
        assert!(chosen(&["a.dev"], "events.c.dev").is_err());
    }
}
