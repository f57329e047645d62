//! The parameters of a policy: the objects that a binding refers to.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::kinds::cells::text;
use crate::kinds::kind::Kind;
use crate::kinds::label_selector::selects;
use crate::state::store::Key;

/// Returns the parameters of a binding: null alone for a policy without parameters, and nothing where the binding does
/// not apply without them. The error says why the binding cannot be used.
pub(super) fn of(attempt: &Attempt<'_>, wanted: &Value, binding: &Value) -> Result<Vec<Value>, String> {
    let reference = &binding["paramRef"];
    if !wanted.is_object() || !reference.is_object() {
        return Ok(vec![Value::Null]);
    }
    let (version, name) = (text(&wanted["apiVersion"]), text(&wanted["kind"]));
    let Some(kind) = attempt.kind_of(version, name) else {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        return Err(format!(
            "failed to find resource referenced by paramKind: '{group}/{version}, Kind={name}'"
        ));
    };
    let found = find(attempt, &kind, reference)?;
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

fn find(attempt: &Attempt<'_>, kind: &Arc<Kind>, reference: &Value) -> Result<Vec<Value>, String> {
    let namespace = match (kind.namespaced, text(&reference["namespace"])) {
        (true, "") if attempt.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => attempt.namespace,
        (true, namespace) => namespace,
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let core = attempt.session.core().lock();
    let name = text(&reference["name"]);
    if !name.is_empty() {
        let found = core.store.get(&kind.storage, &Key::new(namespace, name));
        return Ok(found.map(|stored| stored.value_in(kind)).into_iter().collect());
    }
    let all = core.store.range(&kind.storage, kind.namespaced.then_some(namespace), None);
    let all = all.map(|stored| stored.value_in(kind));
    let selector = &reference["selector"];
    Ok(all.filter(|param| selects(selector, &param["metadata"]["labels"])).collect())
}

impl Attempt<'_> {
    /// Returns a served kind by its name.
    fn kind_of(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.session.core().lock().registry.of_kind(api_version, kind)
    }
}
