//! How do new kinds come to be? CustomResourceDefinitions: checked, accepted at once, served, and taken away with their objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::failure::{Cause, Failure, Result};
use crate::fields::{Managers, track};
use crate::kinds::behaviour::CustomResource;
use crate::kinds::builtin::{InitialStatus, NameRule};
use crate::kinds::conditions;
use crate::kinds::jsonpath::Path;
use crate::kinds::kind::{Custom, Kind, NameSet, Printer, ResourceId, ScalePaths, Waiting, api_version};
use crate::kinds::meta;
use crate::kinds::registry::Registry;
use crate::kinds::rules::Rules;
use crate::kinds::schema::{Patterns, Schema};
use crate::state::core::Core;
use crate::state::duty::Duty;
use crate::state::renew::reads_alike;
use crate::state::store::{Key, Stored};
use crate::verbs::write::Write;

/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The names of a definition, and the reason for which each may be refused.
const NAMES: [(&str, NameSet, &str); 5] = [
    ("plural", NameSet::Resources, "PluralConflict"),
    ("singular", NameSet::Resources, "SingularConflict"),
    ("shortNames", NameSet::Resources, "ShortNamesConflict"),
    ("kind", NameSet::Kinds, "KindConflict"),
    ("listKind", NameSet::Kinds, "ListKindConflict"),
];

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Fills in what a definition may leave out.
pub(crate) fn default(value: &mut Value) {
    let spec = &mut value["spec"];
    let kind = text(&spec["names"], "kind").to_owned();
    if spec["names"].is_object() && !kind.is_empty() {
        if text(&spec["names"], "singular").is_empty() {
            spec["names"]["singular"] = kind.to_lowercase().into();
        }
        if text(&spec["names"], "listKind").is_empty() {
            spec["names"]["listKind"] = format!("{kind}List").into();
        }
    }
    if spec.is_object() && spec["conversion"].get("strategy").is_none() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

/// The schema and the rules of a version, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    document: Arc<Value>,
    schema: Arc<Schema>,
    rules: Option<Arc<Rules>>,
}

impl Compiled {
    fn of(kind: &Kind) -> Option<Self> {
        let custom = kind.custom.as_ref()?;
        let (document, schema) = (custom.document.clone(), custom.schema.clone());
        Some(Self { document, schema, rules: custom.rules.clone() })
    }
}

/// Compiles the schemas of a definition: each document once, and each pattern.
#[derive(Debug, Default)]
struct Compiler {
    /// What is sound, by the text of its document.
    known: BTreeMap<String, Compiled>,
    patterns: Patterns,
}

impl Compiler {
    /// Nothing is compiled again that the definition has now.
    fn knowing(kinds: &[Arc<Kind>]) -> Self {
        let known = kinds.iter().filter_map(|kind| Compiled::of(kind));
        let known = known.map(|compiled| (compiled.document.to_string(), compiled));
        Self { known: known.collect(), patterns: Patterns::default() }
    }

    /// Compiles a schema, and tells what is wrong with it; `at` is its path in the definition.
    fn compile(&mut self, document: &Value, at: &str) -> (Compiled, Vec<Cause>) {
        let text = document.to_string();
        if let Some(known) = self.known.get(&text) {
            return (known.clone(), Vec::new());
        }
        let (schema, problems) = Schema::compile_with(document, at, &mut self.patterns);
        let mut causes = if problems.is_empty() { schema.check_defaults(at) } else { problems };
        let rules = Rules::compile(document);
        causes.extend(rules.iter().flat_map(|rules| rules.check(document, at)));
        let (document, schema) = (Arc::new(document.clone()), Arc::new(schema));
        let compiled = Compiled { document, schema, rules: rules.map(Arc::new) };
        if causes.is_empty() {
            self.known.insert(text, compiled.clone());
        }
        (compiled, causes)
    }

    /// Compiles the versions of a definition that was found in order.
    fn compile_all(&mut self, definition: &Value) -> Vec<Compiled> {
        let versions = list(&definition["spec"]["versions"]).iter();
        versions.map(|version| self.compile(&version["schema"]["openAPIV3Schema"], "").0).collect()
    }
}

/// What is wrong with a definition; `old` is its state before a change, and `kinds` are those that it has. What was taken once, perhaps by an
/// earlier version, is not looked at again. If nothing is wrong, its versions come back compiled.
pub(crate) fn validate(
    value: &Value,
    old: Option<&Value>,
    kinds: &[Arc<Kind>],
) -> (Vec<Cause>, Vec<Compiled>) {
    let mut compiler = Compiler::knowing(kinds);
    let mut causes = Vec::new();
    let spec = &value["spec"];
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    let name = meta::text(value, "name");
    if name != format!("{plural}.{group}") {
        let problem = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), problem));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        let problem = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", &group.into(), problem));
    } else {
        let problems = meta::subdomain_problems(group);
        causes.extend(problems.iter().map(|p| Cause::invalid("spec.group", &group.into(), p)));
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = text(&spec["names"], field);
        let at = format!("spec.names.{field}");
        if name.is_empty() {
            causes.push(Cause::required(&at, ""));
        } else {
            let problems = meta::label_problems(&name.to_lowercase());
            causes.extend(problems.iter().map(|p| Cause::invalid(&at, &name.into(), p)));
        }
    }
    match text(spec, "scope") {
        "Namespaced" | "Cluster" => {}
        "" => causes.push(Cause::required("spec.scope", "")),
        _ => causes.push(Cause::not_supported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"])),
    }
    if old.is_none_or(|old| old["spec"]["versions"] != spec["versions"]) {
        validate_versions(&spec["versions"], &mut compiler, &mut causes);
    }
    let protected = [".k8s.io", ".kubernetes.io"].iter().any(|suffix| group.ends_with(suffix));
    let approval = value["metadata"]["annotations"]["api-approved.kubernetes.io"].as_str();
    if protected && approval.unwrap_or_default().is_empty() {
        causes.push(Cause::required(
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ));
    }
    if spec["conversion"]["strategy"] != "None" {
        let supported = ["None"];
        causes.push(Cause::not_supported(
            "spec.conversion.strategy",
            &spec["conversion"]["strategy"],
            &supported,
        ));
    }
    let compiled = if causes.is_empty() { compiler.compile_all(value) } else { Vec::new() };
    (causes, compiled)
}

/// What is wrong with the change of a definition: what its objects depend on stays.
pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let fixed: &[&str] = if is_established(old) {
        &["/spec/scope", "/spec/names/kind", "/spec/group", "/spec/names/plural"]
    } else {
        &["/spec/group", "/spec/names/plural"]
    };
    for pointer in fixed {
        let after = new.pointer(pointer).unwrap_or(&Value::Null);
        if old.pointer(pointer) != Some(after) {
            let field = pointer[1..].replace('/', ".");
            causes.push(Cause::invalid(&field, after, "field is immutable"));
        }
    }
    // A write of the status alone may tell of any versions.
    if old["spec"] != new["spec"] {
        let known: BTreeSet<_> =
            list(&new["spec"]["versions"]).iter().map(|version| text(version, "name")).collect();
        for (at, stored) in list(&new["status"]["storedVersions"]).iter().enumerate() {
            if !known.contains(stored.as_str().unwrap_or_default()) {
                let name = stored.as_str().unwrap_or_default();
                let problem = format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
                );
                causes.push(Cause::invalid(&format!("status.storedVersions[{at}]"), stored, &problem));
            }
        }
    }
    causes
}

fn validate_versions(versions: &Value, compiler: &mut Compiler, causes: &mut Vec<Cause>) {
    let versions = list(versions);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let problem = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &versions.into(), problem));
    }
    // The real server takes a schema that all versions have for one of the whole definition, which leaves none for a version's own fields.
    let same = |field: &str| versions.iter().all(|version| version.get(field) == versions[0].get(field));
    let shared = same("schema");
    let hoisted = versions.len() > 1 && shared && !same("selectableFields");
    let mut names = BTreeSet::new();
    for (at, version) in versions.iter().enumerate() {
        if Cause::are_enough(causes) {
            return;
        }
        let field = format!("spec.versions[{at}]");
        if hoisted && !list(&version["selectableFields"]).is_empty() {
            let problem = "may only be set when `version.schema.openAPIV3Schema` is not included";
            causes.push(Cause::invalid(&format!("{field}.selectableFields"), &"".into(), problem));
        }
        let name = text(version, "name");
        let problems = meta::label_problems(name);
        causes.extend(problems.iter().map(|p| Cause::invalid(&format!("{field}.name"), &name.into(), p)));
        if !names.insert(name) {
            causes.push(Cause::duplicate(&format!("{field}.name"), &name.into()));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let field = format!("{field}.schema.openAPIV3Schema");
        if !schema.is_object() {
            causes.push(Cause::required(&field, ""));
        } else if !shared || at == 0 {
            let field = if shared { "spec.validation.openAPIV3Schema".to_owned() } else { field };
            causes.extend(compiler.compile(schema, &field).1);
        }
    }
}

fn path(json_path: &str) -> Vec<String> {
    json_path.trim_start_matches('.').split('.').map(str::to_owned).collect()
}

/// The columns of a version; its age alone, if it says nothing.
fn printers(columns: &Value) -> Vec<Printer> {
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let columns = if list(columns).is_empty() { &age } else { columns };
    let printer = |column: &Value| Printer {
        name: text(column, "name").to_owned(),
        sort: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        priority: column["priority"].as_i64().unwrap_or(0),
        path: Path::read(text(column, "jsonPath")),
    };
    list(columns).iter().map(printer).collect()
}

fn is_established(value: &Value) -> bool {
    conditions::holds(&value["status"], "Established")
}

/// Where the objects of a definition are.
fn storage(value: &Value) -> ResourceId {
    let spec = &value["spec"];
    ResourceId::of_definition(text(spec, "group"), text(&spec["names"], "plural"))
}

/// The names in one field of a definition's names, which may be one or a list.
fn names_in(names: &Value, field: &str) -> BTreeSet<String> {
    match &names[field] {
        Value::String(name) => BTreeSet::from([name.clone()]),
        other => texts(other).into_iter().collect(),
    }
}

/// What a definition waits for; none if it has all its names.
fn waiting(value: &Value) -> Option<Waiting> {
    let (wanted, had) = (&value["spec"]["names"], &value["status"]["acceptedNames"]);
    if wanted == had {
        return None;
    }
    let missing = NAMES.iter().flat_map(|(field, set, _)| {
        let had = names_in(had, field);
        names_in(wanted, field).into_iter().filter(move |name| !had.contains(name)).map(|name| (*set, name))
    });
    let verdict = list(&value["status"]["conditions"]).iter().find(|it| it["type"] == "NamesAccepted");
    let told = |field: &str| verdict.map_or("", |verdict| text(verdict, field)).to_owned();
    Some(Waiting {
        wanted: wanted.clone(),
        had: had.clone(),
        verdict: (told("reason"), told("message")),
        missing: missing.collect(),
    })
}

/// The kinds of a definition under the names that were accepted, one for each version.
fn kinds(value: &Value, compiled: Vec<Compiled>) -> Vec<Kind> {
    let spec = &value["spec"];
    let names = &value["status"]["acceptedNames"];
    let group = text(spec, "group");
    let (established, waiting) = (is_established(value), waiting(value).map(Arc::new));
    let versions = list(&spec["versions"]);
    let stored = versions.iter().position(|version| version["storage"] == true);
    let storage_schema = stored.and_then(|at| compiled.get(at)).map(|compiled| compiled.schema.clone());
    versions
        .iter()
        .zip(compiled)
        .map(|(version, Compiled { document, schema, rules })| {
            let subresources = &version["subresources"];
            let scale = subresources["scale"].is_object().then(|| ScalePaths {
                spec_replicas: path(text(&subresources["scale"], "specReplicasPath")),
                status_replicas: path(text(&subresources["scale"], "statusReplicasPath")),
                selector: Some(path(text(&subresources["scale"], "labelSelectorPath"))),
            });
            let fields = list(&version["selectableFields"]).iter();
            Kind {
                group: group.to_owned(),
                version: text(version, "name").to_owned(),
                api_version: api_version(group, text(version, "name")),
                kind: text(names, "kind").to_owned(),
                list_kind: text(names, "listKind").to_owned(),
                plural: text(names, "plural").to_owned(),
                singular: text(names, "singular").to_owned(),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: text(spec, "scope") == "Namespaced",
                status: if subresources["status"].is_object() {
                    InitialStatus::Fixed("")
                } else {
                    InitialStatus::None
                },
                scale,
                generation: true,
                create_on_update: false,
                unconditional_update: false,
                delete_collection: true,
                returns_deleted: false,
                names: NameRule::Subdomain,
                fields: fields.map(|field| path(text(field, "jsonPath")).join(".")).collect(),
                storage: storage(value),
                schema: None,
                blank: OnceLock::new(),
                custom: Some(Custom {
                    storage_version: api_version(group, stored.map_or("", |at| text(&versions[at], "name"))),
                    storage_schema: storage_schema.clone(),
                    warning: (version["deprecated"] == true).then(|| {
                        match text(version, "deprecationWarning") {
                            "" => format!(
                                "{} {} is deprecated",
                                api_version(group, text(version, "name")),
                                text(names, "kind")
                            ),
                            warning => warning.to_owned(),
                        }
                    }),
                    document,
                    printers: printers(&version["additionalPrinterColumns"]),
                    rules,
                    schema,
                    definition: meta::text(value, "name").to_owned(),
                    served: established && version["served"] == true,
                    waiting: waiting.clone(),
                }),
                behaviour: &CustomResource,
            }
        })
        .collect()
}

/// What becomes of a definition's objects when its kinds change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindsChange {
    /// The kinds are new: there are no objects yet.
    New,
    /// The objects read otherwise than before.
    Reads,
    /// The objects read as before.
    Alike,
}

/// What a definition that is to be stored makes of the kinds that are served.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The kinds that were served when it was decided, and those that are from then on.
    seen: Arc<Registry>,
    registry: Arc<Registry>,
    /// The definitions whose names have to be decided again.
    touched: BTreeSet<String>,
    change: KindsChange,
    /// The definition as it was sent, to be decided again.
    undecided: Value,
    accept: bool,
    compiled: Vec<Compiled>,
}

impl Definition {
    /// `value` is the definition as it is to be stored, `undecided` the same without the verdict on its names.
    pub(crate) fn of(
        seen: &Arc<Registry>,
        undecided: Value,
        value: &Value,
        compiled: Vec<Compiled>,
        accept: bool,
    ) -> Self {
        let mut registry = seen.draft();
        let (touched, change) = define(&mut registry, value, compiled.clone());
        registry.reindex();
        let (seen, registry) = (seen.clone(), Arc::new(registry));
        Self { seen, registry, touched, change, undecided, accept, compiled }
    }

    /// Whether these are still the kinds that are served.
    pub(crate) fn is_of(&self, registry: &Arc<Registry>) -> bool {
        Arc::ptr_eq(&self.seen, registry)
    }

    /// Decides once more, among the kinds that are served now. Returns the definition as it is to be stored.
    pub(crate) fn decide_again(&mut self, registry: &Arc<Registry>, now: &str) -> Value {
        let mut value = self.undecided.clone();
        if self.accept {
            accept(registry, &mut value, now);
        }
        *self = Self::of(
            registry,
            self.undecided.take(),
            &value,
            std::mem::take(&mut self.compiled),
            self.accept,
        );
        value
    }
}

/// Replaces the kinds of a definition. Returns the definitions whose names have to be decided again.
fn define(
    registry: &mut Registry,
    value: &Value,
    compiled: Vec<Compiled>,
) -> (BTreeSet<String>, KindsChange) {
    let name = meta::text(value, "name");
    let (before, touched) = registry.define(name, kinds(value, compiled));
    let same = |kind: &Arc<Kind>| before.iter().any(|before| reads_alike(before, kind));
    let change = match () {
        () if before.is_empty() => KindsChange::New,
        () if registry.defined(name).iter().all(same) => KindsChange::Alike,
        () => KindsChange::Reads,
    };
    (touched, change)
}

/// Decides again on the names of a definition. Returns it as it is to be stored, if that is another, with what that makes of the kinds.
pub(crate) fn reconsider(
    registry: &mut Registry,
    stored: &Stored,
    now: &str,
) -> Option<(Value, BTreeSet<String>, KindsChange)> {
    let before = stored.value();
    let mut after = before.clone();
    accept(registry, &mut after, now);
    if after["status"] == before["status"] {
        return None;
    }
    let compiled = Compiler::knowing(&registry.defined(&stored.key.name)).compile_all(&after);
    let (touched, change) = define(registry, &after, compiled);
    Some((after, touched, change))
}

/// Whether the verdict on a definition's names would be what it is. The definition itself may be large, and is not parsed for this.
pub(crate) fn is_decided(registry: &Registry, definition: &str) -> bool {
    let Some((group, waiting)) = registry.waiting(definition) else { return true };
    let (names, conflict) = accept_names(registry, definition, (group, &waiting.wanted, &waiting.had));
    let (reason, message) = &waiting.verdict;
    names == waiting.had && conflict.is_some_and(|told| told.0 == reason && told.1 == *message)
}

/// Writes the verdict on a definition's names into its status. What was established stays so, under the names that it has.
pub(crate) fn accept(registry: &Registry, value: &mut Value, now: &str) {
    let spec = value["spec"].clone();
    let established = is_established(value);
    let had = &value["status"]["acceptedNames"];
    let (names, conflict) =
        accept_names(registry, meta::text(value, "name"), (text(&spec, "group"), &spec["names"], had));
    let accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or_else(|| ("NoConflicts", "no conflicts found".to_owned()));
    let before = value.clone();
    let status = &mut value["status"];
    if !status.is_object() {
        *status = json!({});
    }
    let verdict = if accepted { "True" } else { "False" };
    let mut note = |name: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": name, "status": verdict, "lastTransitionTime": now, "reason": reason, "message": message,
        });
        conditions::set(status, condition);
    };
    note("NamesAccepted", reason, &message);
    if !established {
        let (reason, message) = if accepted {
            ("InitialNamesAccepted", "the initial names have been accepted")
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        note("Established", reason, message);
    }
    status["acceptedNames"] = names;
    if let Some(kind) = registry.custom_resource_definitions() {
        let (managers, own) = (Managers::read(value), Write::own());
        track(&kind, &before, value, managers, &own.writer(&kind, "status", now));
    }
    let storage = list(&spec["versions"]).iter().find(|version| version["storage"] == true);
    let storage = storage.map_or("", |version| text(version, "name"));
    let status = &mut value["status"];
    let mut stored = texts(&status["storedVersions"]);
    if !stored.iter().any(|version| version == storage) {
        stored.push(storage.to_owned());
    }
    status["storedVersions"] = json!(stored);
}

/// The names that a definition has from now on: those that it asks for, and where one is taken, what it had. Of several conflicts
/// the last is told, as the real server does.
fn accept_names(
    registry: &Registry,
    definition: &str,
    (group, wanted, had): (&str, &Value, &Value),
) -> (Value, Option<(&'static str, String)>) {
    let mut names = if had.is_object() { had.clone() } else { json!({"plural": "", "kind": ""}) };
    let mut conflict = None;
    for (field, set, reason) in NAMES {
        let had = names_in(&names, field);
        let mut taken = match &wanted[field] {
            Value::String(name) => vec![name.clone()],
            other => texts(other),
        };
        taken.retain(|name| !had.contains(name) && registry.is_taken(group, set, name, definition));
        let told: Vec<_> =
            taken.iter().map(|name| format!("{} is already in use", crate::failure::quoted(name))).collect();
        match told.as_slice() {
            [] => copy(wanted, &mut names, field),
            [told] => conflict = Some((reason, told.clone())),
            _ => conflict = Some((reason, format!("[{}]", told.join(", ")))),
        }
    }
    copy(wanted, &mut names, "categories");
    (names, conflict)
}

impl Core {
    pub(crate) fn definition(&self, name: &str) -> Option<(Arc<Kind>, Arc<Stored>)> {
        let kind = self.registry.custom_resource_definitions()?;
        let stored = self.get(&kind, &Key::new("", name)).ok()?;
        Some((kind, stored))
    }

    /// Refuses new objects of a kind that is absent or on its way out.
    pub(crate) fn check_definition_accepts(&self, kind: &Kind, name: &str) -> Result<()> {
        let Some(custom) = &kind.custom else { return Ok(()) };
        match self.definition(&custom.definition) {
            Some((_, stored)) if stored.terminating => Err(Failure::forbidden(
                kind,
                name,
                "create not allowed while custom resource definition is terminating",
            )),
            Some(_) => Ok(()),
            None => Err(Failure::no_such_path()),
        }
    }

    /// Serves the kinds of a definition that has been stored; names that it has given up are free.
    pub(crate) fn publish_definition(&mut self, name: &str, definition: &Definition) {
        self.registry = definition.registry.clone();
        self.take_up(name, definition.change);
        self.reconsider_definitions(definition.touched.clone());
    }

    /// Does what a change of its kinds means to the objects of a definition.
    pub(crate) fn take_up(&mut self, name: &str, change: KindsChange) {
        match change {
            KindsChange::New => {
                if let Some(id) = self.registry.storage_of(name).cloned() {
                    self.store.begin(&id);
                }
            }
            KindsChange::Reads => self.duties.push_back(Duty::renew(name)),
            KindsChange::Alike => {}
        }
    }

    /// Decides again on the names of these definitions, in slices.
    fn reconsider_definitions(&mut self, touched: BTreeSet<String>) {
        if !touched.is_empty() {
            self.duties.push_back(Duty::Decide(touched));
        }
    }

    /// The kinds of a definition that was kept are these from now on. The registry is to be indexed afterwards.
    pub(crate) fn restore_definition(&mut self, value: &Value) {
        let kinds = kinds(value, Compiler::default().compile_all(value));
        Arc::make_mut(&mut self.registry).define(meta::text(value, "name"), kinds);
    }

    /// Removes a terminating definition once no object of it is left and nobody else holds it.
    pub(crate) fn finish_definition(&mut self, name: &str) {
        let Some((kind, stored)) = self.definition(name).filter(|(_, stored)| stored.terminating) else {
            return;
        };
        // Asked for each object that goes, while the definition may be large.
        let storage = self.registry.storage_of(name);
        if storage.is_some_and(|id| self.store.range(id, None, None).next().is_some()) {
            return;
        }
        let finalizers = meta::finalizers(&json!({"metadata": stored.metadata()}));
        if finalizers.iter().all(|finalizer| finalizer == CLEANUP_FINALIZER) {
            self.erase(&kind, &stored);
        }
    }

    /// Stops serving the kinds of a definition that is gone; its watches end, and names it held are free.
    pub(crate) fn withdraw_definition(&mut self, name: &str) {
        let storage = self.registry.storage_of(name).cloned();
        let registry = Arc::make_mut(&mut self.registry);
        let (_, touched) = registry.define(name, Vec::new());
        registry.reindex();
        if let Some(storage) = storage {
            self.store.close(&storage);
        }
        self.reconsider_definitions(touched);
    }
}

/// Makes a field what it is in `from`, or absent.
fn copy(from: &Value, to: &mut Value, field: &str) {
    match (from.get(field), to.as_object_mut()) {
        (Some(value), _) => to[field] = value.clone(),
        (None, Some(to)) => drop(to.remove(field)),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::delete::DeleteOptions;

    #[test]
    fn versions_that_were_taken_are_not_looked_at_again() {
        let mut value = json!({"metadata": {"name": "bars.example.com"}, "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"a": {"type": "string", "pattern": "^.{100000}$"}}}}}]}});
        default(&mut value);
        let problems = |value: &Value, old: Option<&Value>| validate(value, old, &[]).0;
        assert_eq!(problems(&value, None).len(), 1);
        assert_eq!(problems(&value, Some(&value)), []);
        let mut changed = value.clone();
        changed["spec"]["versions"][0]["deprecated"] = true.into();
        assert_eq!(problems(&changed, Some(&value)).len(), 1);
    }

    #[test]
    fn a_schema_is_compiled_once_and_versions_share_their_patterns() {
        let schema = |n: usize| {
            let texts = (0..16)
                .map(|at| (format!("p{at}"), json!({"type": "string", "pattern": format!("^a{{{at}}}$")})));
            json!({"type": "object", "description": n.to_string(), "properties": texts.collect::<serde_json::Map<_, _>>()})
        };
        let version = |n: usize| json!({"name": format!("v{n}"), "served": true, "storage": n == 1, "schema": {"openAPIV3Schema": schema(n / 2)}});
        let mut definition = json!({"metadata": {"name": "bars.example.com"}, "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
            "versions": (1..=30).map(version).collect::<Vec<_>>()}});
        let mut compiler = Compiler::default();
        assert_eq!(compiler.compile_all(&definition).len(), 30);
        assert_eq!(compiler.patterns.len(), 16);
        let server = crate::ApiServer::new(&watchkeeper::Env::simulated(1));
        let compiled = || crate::kinds::schema::COMPILED.with(std::cell::Cell::get);
        server.shared.run(|core| {
            let kind = core.registry.custom_resource_definitions().unwrap();
            let before = compiled();
            core.create(&kind, "", definition.clone(), &Write::own()).unwrap();
            assert_eq!(
                compiled() - before,
                16,
                "two versions have one schema each, but for the first and the last"
            );
            let before = compiled();
            definition["metadata"]["labels"] = json!({"a": "b"});
            definition["spec"]["versions"][0]["deprecated"] = true.into();
            let key = Key::new("", "bars.example.com");
            let seen = core.see(&kind, &key);
            let version = seen.old.as_ref().unwrap().revision.to_string();
            definition["metadata"]["resourceVersion"] = version.into();
            let part = crate::verbs::update::Part::Main;
            let draft = seen.replace(&kind, definition, part, &Write::own()).unwrap();
            core.store(&draft).unwrap();
            core.delete(&kind, &key, &DeleteOptions::default()).unwrap();
            assert_eq!(compiled() - before, 0, "what the definition has is not compiled again");
        });
    }

    #[test]
    fn a_definition_is_not_parsed_for_each_of_its_objects_that_goes() {
        let server = crate::ApiServer::new(&watchkeeper::Env::simulated(1));
        let schema = json!({"type": "object", "description": "x".repeat(50_000)});
        let bars = json!({"metadata": {"name": "bars.example.com"}, "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        server.shared.run(|core| {
            let definitions = core.registry.custom_resource_definitions().unwrap();
            core.create(&definitions, "", bars, &Write::own()).unwrap();
            let kind = core.registry.find("example.com", "v1", "bars").unwrap().clone();
            for name in 0..100 {
                let object = json!({"metadata": {"name": format!("b{name}")}});
                core.create(&kind, "", object, &Write::own()).unwrap();
            }
            let parsed = || crate::state::store::PARSED.with(std::cell::Cell::get);
            let before = parsed();
            core.delete(&definitions, &Key::new("", "bars.example.com"), &DeleteOptions::default()).unwrap();
            assert!(core.registry.find("example.com", "v1", "bars").is_none(), "it is gone");
            assert!(parsed() - before < 500_000, "{} bytes were parsed", parsed() - before);
        });
    }

    #[test]
    fn definitions_that_get_their_names_one_after_the_other_are_decided_in_one_loop() {
        const COUNT: usize = 1_000;
        let server = crate::ApiServer::new(&watchkeeper::Env::simulated(1));
        let define = |plural: &str, short: &[String]| {
            let kind = plural.to_uppercase();
            json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": kind, "plural": plural, "shortNames": short},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
        };
        let short = |at: usize| format!("s{at}");
        server.shared.run(|core| {
            let kind = core.registry.custom_resource_definitions().unwrap();
            let create = |core: &mut Core, plural: &str, short: &[String]| {
                core.create(&kind, "", define(plural, short), &Write::own()).unwrap();
            };
            create(core, "first", &(0..COUNT).map(short).collect::<Vec<_>>());
            let revision = core.store.revision();
            for at in 0..COUNT {
                create(core, &format!("d{at}"), &[short(at)]);
            }
            assert_eq!(core.store.revision() - revision, COUNT as u64, "one that waits is left alone");
            assert!(core.registry.find("example.com", "v1", "d7").is_none());
            let parsed = || crate::state::store::PARSED.with(std::cell::Cell::get);
            let (before, revision) = (parsed(), core.store.revision());
            core.delete(&kind, &Key::new("", "first.example.com"), &DeleteOptions::default()).unwrap();
            // Marked, gone, and each of the others decided once.
            assert_eq!(core.store.revision() - revision, 2 + COUNT as u64);
            let parsed = parsed() - before;
            assert!(parsed < COUNT * 10_000, "{parsed} bytes were parsed");
            for at in 0..COUNT {
                let kind = core.registry.find("example.com", "v1", &format!("d{at}")).unwrap();
                assert_eq!(kind.short_names, [short(at)]);
            }
        });
    }

    #[test]
    fn a_name_that_is_given_up_in_turn_goes_to_the_next() {
        let server = crate::ApiServer::new(&watchkeeper::Env::simulated(1));
        let define = |plural: &str, short: &str| {
            json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": plural.to_uppercase(), "plural": plural, "shortNames": [short]},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
        };
        server.shared.run(|core| {
            let kind = core.registry.custom_resource_definitions().unwrap();
            for (plural, short) in [("c", "one"), ("b", "two"), ("a", "three")] {
                core.create(&kind, "", define(plural, short), &Write::own()).unwrap();
            }
            // Each wants what the one before it has.
            for (plural, short) in [("b", "one"), ("a", "two")] {
                let seen = core.see(&kind, &Key::new("", &format!("{plural}.example.com")));
                let patch =
                    crate::verbs::patch::Patch::Merge(json!({"spec": {"names": {"shortNames": [short]}}}));
                let part = crate::verbs::update::Part::Main;
                let draft = seen.patch(&kind, &patch, part, &mut Write::own()).unwrap();
                core.store(&draft).unwrap();
            }
            let short = |core: &Core, plural: &str| {
                core.registry.find("example.com", "v1", plural).unwrap().short_names.clone()
            };
            assert_eq!(
                (short(core, "a"), short(core, "b")),
                (vec!["three".to_owned()], vec!["two".to_owned()])
            );
            core.delete(&kind, &Key::new("", "c.example.com"), &DeleteOptions::default()).unwrap();
            assert_eq!(
                (short(core, "a"), short(core, "b")),
                (vec!["two".to_owned()], vec!["one".to_owned()])
            );
        });
    }
}
