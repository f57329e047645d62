//! Validation of a definition.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{Compiled, Compiler, is_established, list, selectable, text};
use crate::failure::Cause;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

/// Validates a definition; `old` is its previous state, and `kinds` are those that it defines now. Unchanged versions are
/// not validated again (ratcheting). Returns the versions compiled if nothing is wrong.
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
        let had = old.map_or(&Value::Null, |old| &old["spec"]["versions"]);
        validate_versions(&spec["versions"], had, &mut compiler, &mut causes);
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

/// Validates a change: what existing objects depend on is immutable.
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
    // A write of the status alone may name any versions.
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

fn validate_versions(versions: &Value, had: &Value, compiler: &mut Compiler, causes: &mut Vec<Cause>) {
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
        let is_common = shared && same("selectableFields");
        if !hoisted && (!is_common || at == 0) {
            let before = list(had).iter().find(|before| text(before, "name") == name);
            let before = before.map_or(&Value::Null, |before| &before["selectableFields"]);
            let place = if is_common { "spec" } else { field.as_str() };
            let place = format!("{place}.selectableFields");
            causes.extend(selectable::problems(&version["selectableFields"], before, schema, &place));
        }
        let field = format!("{field}.schema.openAPIV3Schema");
        if !schema.is_object() {
            causes.push(Cause::required(&field, ""));
        } else if !shared || at == 0 {
            let field = if shared { "spec.validation.openAPIV3Schema".to_owned() } else { field };
            causes.extend(compiler.compile(schema, &field).1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::default;
    use super::*;

    #[test]
    fn unchanged_versions_are_not_validated_again() {
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
}
