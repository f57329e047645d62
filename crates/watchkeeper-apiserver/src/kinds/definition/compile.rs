//! Compilation of the schemas and rules of a definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::list;
use crate::failure::Cause;
use crate::kinds::kind::Kind;
use crate::kinds::rules::Rules;
use crate::kinds::schema::{Patterns, Schema};

/// The compiled schema and rules of a version.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(super) document: Arc<Value>,
    pub(super) schema: Arc<Schema>,
    pub(super) rules: Option<Arc<Rules>>,
}

impl Compiled {
    pub(crate) fn of(kind: &Kind) -> Option<Self> {
        let custom = kind.custom.as_ref()?;
        let (document, schema) = (custom.document.clone(), custom.schema.clone());
        Some(Self { document, schema, rules: custom.rules.clone() })
    }
}

/// Compiles the schemas of a definition: each document and each pattern once.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    /// Valid schemas, by the text of their documents.
    known: BTreeMap<String, Compiled>,
    pub(crate) patterns: Patterns,
}

impl Compiler {
    /// A compiler that reuses what these kinds have compiled.
    pub(crate) fn knowing(kinds: &[Arc<Kind>]) -> Self {
        let known = kinds.iter().filter_map(|kind| Compiled::of(kind));
        let known = known.map(|compiled| (compiled.document.to_string(), compiled));
        Self { known: known.collect(), patterns: Patterns::default() }
    }

    /// Compiles a schema and returns its problems; `at` is its path in the definition.
    pub(crate) fn compile(&mut self, document: &Value, at: &str) -> (Compiled, Vec<Cause>) {
        let text = document.to_string();
        if let Some(known) = self.known.get(&text) {
            return (known.clone(), Vec::new());
        }
        let (schema, problems) = Schema::compile_with(document, at, &mut self.patterns);
        let mut causes = if problems.is_empty() { schema.check_defaults(at) } else { problems };
        let rules = Rules::compile(document);
        // Rules are not judged by a schema that is wrong itself.
        if causes.is_empty() {
            causes.extend(rules.iter().flat_map(|rules| rules.check(document, at)));
        }
        let (document, schema) = (Arc::new(document.clone()), Arc::new(schema));
        let compiled = Compiled { document, schema, rules: rules.map(Arc::new) };
        if causes.is_empty() {
            self.known.insert(text, compiled.clone());
        }
        (compiled, causes)
    }

    /// Compiles the versions of a valid definition.
    pub(crate) fn compile_all(&mut self, definition: &Value) -> Vec<Compiled> {
        let versions = list(&definition["spec"]["versions"]).iter();
        versions.map(|version| self.compile(&version["schema"]["openAPIV3Schema"], "").0).collect()
    }
}
