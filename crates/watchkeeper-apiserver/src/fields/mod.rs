//! Managed fields: ownership of fields by field managers, tracked on every write, and conflicts of server-side apply.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::failure::{Cause, Details, Failure};
use crate::kinds::fill::{copy, set_text};
use crate::kinds::kind::Kind;
use crate::kinds::merge_type::MergeType;
use crate::kinds::meta::metadata_mut;

pub(crate) mod json_patch;
mod last_applied;
pub(crate) mod set;
#[cfg(test)]
mod tests;
pub(crate) mod walk;

use set::Set;
use walk::Comparison;

/// Fields that no manager owns: those that the server sets, and those that identify the object.
const UNOWNED: &[&[&str]] = &[
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

/// The maximum number of entries with operation `Update`; older ones are merged into one entry of this name.
const UPDATERS_LIMIT: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// The field manager of a write, and how it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
    /// Fields that this endpoint ignores in a request.
    pub(crate) ignored: &'static [&'static str],
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
struct Manager {
    name: String,
    applies: bool,
    api_version: String,
    subresource: String,
    time: String,
    set: Set,
}

impl Manager {
    fn of(writer: &Writer<'_>, applies: bool, set: Set) -> Self {
        Self {
            name: writer.manager.to_owned(),
            applies,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time: writer.now.to_owned(),
            set,
        }
    }

    /// Returns whether the entry is that of `writer`. A manager that applies has one entry for all API versions.
    fn is(&self, writer: &Writer<'_>, applies: bool) -> bool {
        self.name == writer.manager
            && self.applies == applies
            && self.subresource == writer.subresource
            && (applies || self.api_version == writer.api_version)
    }

    /// Returns whether older entries have been merged into this one.
    fn is_ancient(&self) -> bool {
        !self.applies && self.name == ANCIENT && self.subresource.is_empty()
    }

    /// Returns the key of the entry, which is unique within an object.
    fn id(&self) -> (bool, &str, &str, &str) {
        let version = if self.applies { "" } else { &self.api_version };
        (self.applies, &self.name, &self.subresource, version)
    }

    /// Returns the key by which entries are sorted: those of apply first, then by time and name.
    fn order(&self) -> (bool, &str, &str, &str, &str) {
        (!self.applies, &self.time, &self.name, &self.api_version, &self.subresource)
    }

    fn shown(&self) -> String {
        let mut text = Value::from(self.name.as_str()).to_string();
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {}", Value::from(self.subresource.as_str()));
        }
        if !self.applies {
            text += &format!(" using {}", self.api_version);
        }
        text
    }
}

/// The operations of entries.
const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// Iterates over the entries of an object's `managedFields`.
fn entries(value: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    value["metadata"]["managedFields"].as_array().into_iter().flatten()
}

fn is_readable(entry: &Value) -> bool {
    [APPLY, UPDATE].contains(&text(entry, "operation"))
}

/// Returns the key of an entry, as [`Manager::id`] does.
fn identity(entry: &Value) -> (bool, &str, &str, &str) {
    let applies = text(entry, "operation") == APPLY;
    let version = if applies { "" } else { text(entry, "apiVersion") };
    (applies, text(entry, "manager"), text(entry, "subresource"), version)
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

/// The field managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managers(Vec<Manager>);

impl Managers {
    /// Removes the field at `path` from all managers. With `keep`, appliers keep it, and updaters own it in a separate
    /// entry without a time.
    pub(crate) fn without(mut self, path: &[String], keep: bool) -> Self {
        let steps: Vec<_> = path.iter().map(|name| format!("f:{name}")).collect();
        let mut alone = Set::default();
        alone.insert(&steps);
        let mut apart = Vec::new();
        for manager in self.0.iter_mut().filter(|manager| !(keep && manager.applies)) {
            let owned = manager.set.and(&alone);
            if keep && !owned.is_empty() {
                apart.push(Manager { set: owned, time: String::new(), ..manager.clone() });
            }
            manager.set.subtract(&alone);
        }
        self.0.extend(apart);
        self
    }

    /// Returns whether an object has field managers, as [`Managers::read`] finds them.
    pub(crate) fn are_in(value: &Value) -> bool {
        entries(value).any(is_readable)
    }

    /// Reads `managedFields`, skipping malformed entries.
    pub(crate) fn read(value: &Value) -> Self {
        let managers = entries(value).filter(|entry| is_readable(entry)).map(|entry| Manager {
            name: text(entry, "manager").to_owned(),
            applies: text(entry, "operation") == APPLY,
            api_version: text(entry, "apiVersion").to_owned(),
            subresource: text(entry, "subresource").to_owned(),
            time: text(entry, "time").to_owned(),
            set: Set::read(&entry["fieldsV1"]),
        });
        let mut managers: Vec<_> = managers.collect();
        // Of two entries of one manager the later wins.
        let mut known = BTreeSet::new();
        let are_last: Vec<_> = managers.iter().rev().map(|manager| known.insert(manager.id())).collect();
        let mut are_last = are_last.into_iter().rev();
        managers.retain(|_| are_last.next().unwrap_or(true));
        Self(managers)
    }

    /// Writes the entries into the object, in their order.
    pub(crate) fn write(mut self, value: &mut Value) {
        self.0.retain(|manager| !manager.set.is_empty());
        self.0.sort_by(|a, b| a.order().cmp(&b.order()));
        let entries = self.0.into_iter().map(|manager| {
            let mut entry = Map::new();
            let operation = if manager.applies { APPLY } else { UPDATE };
            for (field, text) in [
                ("manager", manager.name.as_str()),
                ("operation", operation),
                ("apiVersion", &manager.api_version),
                ("time", &manager.time),
                ("fieldsType", "FieldsV1"),
                ("subresource", &manager.subresource),
            ] {
                if !text.is_empty() {
                    entry.insert(field.to_owned(), text.into());
                }
            }
            entry.insert("fieldsV1".to_owned(), manager.set.write());
            Value::Object(entry)
        });
        let entries: Vec<_> = entries.collect();
        let metadata = metadata_mut(value);
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), entries.into());
        }
    }

    /// Returns the managers that a client sends back, or `None` if it sends none that are well-formed. A list with one
    /// empty entry resets the managed fields.
    pub(crate) fn sent(value: &Value) -> Option<Self> {
        let entries = value["metadata"]["managedFields"].as_array()?;
        if let [only] = &entries[..]
            && only.as_object().is_some_and(Map::is_empty)
        {
            return Some(Self::default());
        }
        Some(Self::read(value)).filter(|managers| !managers.is_empty())
    }

    /// Returns whether any manager owns the field at `path`.
    pub(crate) fn own(&self, path: &[String]) -> bool {
        self.0.iter().any(|manager| {
            let mut set = Some(&manager.set);
            let (last, way) = path.split_last().map_or(("", path), |(last, way)| (last.as_str(), way));
            for step in way {
                set = set.and_then(|set| set.below(&format!("f:{step}")));
            }
            set.is_some_and(|set| set.has(&format!("f:{last}")))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a write other than an apply: the writer takes sole ownership of the fields that it added or changed.
    pub(crate) fn update(
        &mut self,
        merge_type: MergeType<'_>,
        before: &Value,
        after: &Value,
        writer: &Writer<'_>,
    ) {
        self.record(Changes::of(merge_type, before, after, writer), writer);
    }

    fn record(&mut self, Changes { written, removed }: Changes, writer: &Writer<'_>) {
        if written.is_empty() && removed.is_empty() {
            return;
        }
        for manager in &mut self.0 {
            manager.set.subtract(&written);
            manager.set.subtract(&removed);
        }
        if !written.is_empty() {
            match self.0.iter_mut().find(|manager| manager.is(writer, false)) {
                Some(own) => {
                    own.set.union(&written);
                    own.time = writer.now.to_owned();
                }
                None => self.0.push(Manager::of(writer, false, written)),
            }
        }
        self.0.retain(|manager| !manager.set.is_empty());
    }

    /// Merges the oldest `Update` entries into one per API version, down to the limit.
    fn merge_oldest(&mut self) {
        let by_age = |manager: &Manager| {
            let Manager { time, name, api_version, subresource, .. } = manager;
            [time, name, api_version, subresource].map(String::clone)
        };
        let updaters = self.0.iter().filter(|manager| !manager.applies).count();
        let mut left = updaters;
        if left <= UPDATERS_LIMIT {
            return;
        }
        self.0.sort_by_cached_key(|manager| (manager.applies, by_age(manager)));
        let mut merged: BTreeMap<String, usize> = BTreeMap::new();
        for (at, manager) in self.0.iter().enumerate().filter(|(_, manager)| manager.is_ancient()) {
            merged.insert(manager.api_version.clone(), at);
        }
        let mut firsts: BTreeMap<String, usize> = BTreeMap::new();
        for at in 0..updaters {
            let version = self.0[at].api_version.clone();
            let Some(first) = firsts.get(&version) else {
                firsts.insert(version, at);
                continue;
            };
            let into = *merged.entry(version).or_insert(*first);
            if left > UPDATERS_LIMIT && into != at {
                let (set, time) = (std::mem::take(&mut self.0[at].set), self.0[at].time.clone());
                let ancient = &mut self.0[into];
                ancient.set.union(&set);
                (ancient.name, ancient.subresource, ancient.time) = (ANCIENT.to_owned(), String::new(), time);
                left -= 1;
            }
        }
        self.0.retain(|manager| !manager.set.is_empty());
    }

    /// Applies `config` to `live`. Fields that this manager applied before and no longer has in `config` are removed
    /// unless another manager owns them.
    pub(crate) fn apply(
        &mut self,
        merge_type: MergeType<'_>,
        live: &Value,
        config: &Value,
        writer: &Writer<'_>,
        force: bool,
    ) -> Result<Value, Box<Failure>> {
        // Identifying fields take part in the merge, so that their siblings stay, but have no owner.
        let whole = walk::set_of(merge_type, config);
        let mut set = whole.clone();
        strip(&mut set, writer);
        let merged = walk::merge(merge_type, Some(live), config);
        let own = self.0.iter().position(|manager| manager.is(writer, true));
        let last = own.map(|at| self.0.remove(at));
        let time = last.as_ref().map(|last| last.time.clone()).unwrap_or_default();
        self.0.push(Manager::of(writer, true, whole));
        let mut object = match &last {
            Some(last) if !last.set.is_empty() => self.prune(merge_type, &merged, &last.set),
            _ => merged,
        };
        let others = self.0.len() - 1;
        self.0[others].set = set;
        keep_identity(live, &mut object);
        let mut changes = Comparison::of(merge_type, live, &object);
        let effect = !(changes.added.is_empty() && changes.modified.is_empty() && changes.removed.is_empty());
        changes.filter(|set| strip(set, writer));
        let mut written = changes.added.clone();
        written.union(&changes.modified);
        let taken = written.minus(&last_applied::yielded(merge_type, live, writer.manager));
        let conflicts = self.0[..others].iter().map(|other| (other.shown(), other.set.and(&taken)));
        let conflicts: Vec<_> = conflicts.filter(|(_, set)| !set.is_empty()).collect();
        if !force && !conflicts.is_empty() {
            return Err(conflict(&conflicts));
        }
        for manager in &mut self.0[..others] {
            manager.set.subtract(&written);
            manager.set.subtract(&changes.removed);
        }
        // An apply without effect keeps the entry's time; a new entry has none.
        if !effect {
            self.0[others].time = time;
        }
        self.0.retain(|manager| !manager.set.is_empty());
        last_applied::note(&mut object, config, writer.manager);
        Ok(object)
    }

    fn prune(&self, merge_type: MergeType<'_>, merged: &Value, last: &Set) -> Value {
        let last = last.with_fields(merge_type);
        let members = |value: &Value| walk::set_of(merge_type, value).with_fields(merge_type);
        let without = |set: &Set| {
            let mut value = merged.clone();
            walk::remove(merge_type, &mut value, set);
            value
        };
        let all = members(merged);
        let mut kept = members(&without(&last));
        for manager in &self.0 {
            kept.union(&manager.set.with_fields(merge_type));
        }
        let owned = without(&all.minus(&kept));
        without(&all.minus(&members(&owned)).and(&last))
    }
}

/// The fields that a write added, changed or removed, as far as they have owners.
struct Changes {
    written: Set,
    removed: Set,
}

impl Changes {
    fn of(merge_type: MergeType<'_>, before: &Value, after: &Value, writer: &Writer<'_>) -> Self {
        let mut changes = Comparison::of(merge_type, before, after);
        changes.filter(|set| strip(set, writer));
        let Comparison { added: mut written, modified, removed } = changes;
        written.union(&modified);
        Self { written, removed }
    }

    /// Records these changes if every field keeps its owner. Then only the time of the writer's entry changes, which must
    /// be the last one and stay so; the sets need not be decoded. Returns whether they are recorded.
    fn renew(&self, before: &Value, after: &mut Value, writer: &Writer<'_>) -> bool {
        let Self { written, removed } = self;
        // Of two entries of one manager, which a scale may write, a reading keeps one.
        let mut known = BTreeSet::new();
        if !entries(before).all(|entry| known.insert(identity(entry))) {
            return false;
        }
        if written.is_empty() && removed.is_empty() {
            copy(metadata_mut(after), "managedFields", before["metadata"].get("managedFields"));
            return true;
        }
        let mut others = entries(before);
        let Some(own) = others.next_back() else { return false };
        let is_own = own["operation"] == UPDATE
            && own["manager"] == writer.manager
            && own["apiVersion"] == writer.api_version
            && text(own, "subresource") == writer.subresource
            && text(own, "time") <= writer.now;
        let keeps_owners = removed.is_empty()
            && !written.is_empty()
            && written.is_within(&own["fieldsV1"])
            && !others.any(|other| written.meets(&other["fieldsV1"]));
        if !(is_own && keeps_owners) {
            return false;
        }
        let metadata = metadata_mut(after);
        copy(metadata, "managedFields", before["metadata"].get("managedFields"));
        if let Some(own) = metadata["managedFields"].as_array_mut().and_then(|entries| entries.last_mut()) {
            set_text(own, "time", writer.now);
        }
        true
    }
}

/// Records in the object which fields a write changed. Its managers are those that it had before, unless `sent` has
/// others.
pub(crate) fn track(
    kind: &Kind,
    before: &Value,
    after: &mut Value,
    sent: Option<Managers>,
    writer: &Writer<'_>,
) {
    let changes = Changes::of(kind.merge_type(), before, after, writer);
    if sent.is_none() && changes.renew(before, after, writer) {
        return;
    }
    let mut managers = sent.unwrap_or_else(|| Managers::read(before));
    managers.record(changes, writer);
    managers.merge_oldest();
    managers.write(after);
}

/// Restores the identifying fields of the live object.
fn keep_identity(live: &Value, object: &mut Value) {
    if let Some(metadata) = live["metadata"].as_object() {
        let own = metadata_mut(object);
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation"] {
            if let Some(value) = metadata.get(field) {
                own.entry(field).or_insert_with(|| value.clone());
            }
        }
    }
}

fn strip(set: &mut Set, writer: &Writer<'_>) {
    for path in UNOWNED {
        set.remove(path);
    }
    for field in writer.ignored {
        set.cut(&[*field]);
    }
}

fn conflict(conflicts: &[(String, Set)]) -> Box<Failure> {
    let mut causes = Vec::new();
    let mut groups = Vec::new();
    for (manager, set) in conflicts {
        let paths = set.paths();
        groups.push(format!("conflicts with {manager}:\n- {}", paths.join("\n- ")));
        causes.extend(paths.into_iter().map(|field| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {manager}"),
            field,
        }));
    }
    let message = match &causes[..] {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        more => format!("Apply failed with {} conflicts: {}", more.len(), groups.join("\n")),
    };
    let mut failure = Failure::new(409, "Conflict", message);
    failure.details = Some(Details { causes, ..Details::default() });
    failure
}

/// Returns whether two states of an object differ in nothing but the times of managed fields: such a write is a no-op.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    same_fields(a, b, "metadata", |a, b| {
        same_fields(a, b, "managedFields", |a, b| match (a.as_array(), b.as_array()) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                a.iter().zip(b).all(|(a, b)| same_fields(a, b, "time", |_, _| true))
            }
            _ => false,
        })
    })
}

/// Returns whether two objects have equal fields; the field `special` is compared with `compare`.
fn same_fields(a: &Value, b: &Value, special: &str, compare: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    a.len() == b.len()
        && a.iter().all(|(name, value)| {
            b.get(name)
                .is_some_and(|other| if name == special { compare(value, other) } else { value == other })
        })
}
