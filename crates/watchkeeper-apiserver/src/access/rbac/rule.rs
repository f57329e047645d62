//! Policy rules: which requests one allows, and which other rules it covers.

use serde_json::Value;

use crate::access::attributes::{Attributes, Object};
use crate::failure::quoted;

/// A rule of a role. It is about resources, or about other paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    /// The objects; empty for all.
    pub(crate) names: Vec<String>,
    pub(crate) urls: Vec<String>,
}

impl Rule {
    /// Reads the rules of a stored role.
    pub(crate) fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::of).collect()
    }

    fn of(rule: &Value) -> Self {
        let texts = |field: &str| {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// Returns whether the rule allows a request.
    pub(crate) fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, asked.verb) {
            return false;
        }
        match asked.object {
            Object::Path(path) => self.urls.iter().any(|url| url == "*" || url_covers(url, path)),
            Object::Resource(asked) => {
                has_or_all(&self.groups, asked.group)
                    && self.has_resource(asked.resource, asked.subresource)
                    && (self.names.is_empty() || has(&self.names, asked.name))
            }
        }
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|own| match own.split_once('/') {
            None => own == "*" || subresource.is_empty() && own == resource,
            Some((of, part)) => {
                !subresource.is_empty() && part == subresource && (of == "*" || of == resource)
            }
        })
    }

    /// Splits the rule into rules with one value for each field.
    fn atoms(&self) -> Vec<Self> {
        let mut atoms = Vec::new();
        let no_name = [String::new()];
        let names = if self.names.is_empty() { &no_name[..] } else { &self.names };
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    atoms.extend(names.iter().map(|name| Self {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        names: if self.names.is_empty() { Vec::new() } else { vec![name.clone()] },
                        urls: Vec::new(),
                    }));
                }
            }
        }
        for url in &self.urls {
            let with = |verb: &String| Self {
                verbs: vec![verb.clone()],
                urls: vec![url.clone()],
                ..Self::default()
            };
            atoms.extend(self.verbs.iter().map(with));
        }
        atoms
    }

    /// Returns whether the rule allows all that `atom` does.
    fn covers(&self, atom: &Self) -> bool {
        let all =
            |own: &[String], wanted: &[String]| has(own, "*") || wanted.iter().all(|wanted| has(own, wanted));
        let resource = |wanted: &String| {
            let part = wanted.split_once('/').map(|(_, part)| format!("*/{part}"));
            has(&self.resources, "*")
                || has(&self.resources, wanted)
                || part.is_some_and(|part| has(&self.resources, &part))
        };
        let names = self.names.is_empty()
            || !atom.names.is_empty() && atom.names.iter().all(|name| has(&self.names, name));
        let url = |wanted: &String| self.urls.iter().any(|own| url_covers(own, wanted));
        all(&self.verbs, &atom.verbs)
            && all(&self.groups, &atom.groups)
            && atom.resources.iter().all(resource)
            && names
            && atom.urls.iter().all(url)
    }

    /// The rule as messages show it.
    fn text(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown = fields.iter().filter(|(_, values)| !values.is_empty());
        let shown: Vec<_> = shown.map(|(name, values)| format!("{name}:{}", quoted_list(values))).collect();
        format!("{{{}}}", shown.join(", "))
    }
}

/// Returns the parts of `wanted` that no rule of `held` covers, in the words of the real server, sorted.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let atoms = wanted.iter().flat_map(Rule::atoms);
    let uncovered = atoms.filter(|atom| !held.iter().any(|rule| rule.covers(atom)));
    // Rules that differ only in their verb are shown as one.
    let mut merged: Vec<Rule> = Vec::new();
    for atom in uncovered {
        let same = |known: &&mut Rule| {
            atom.urls.is_empty()
                && (&known.groups, &known.resources, &known.names, &known.urls)
                    == (&atom.groups, &atom.resources, &atom.names, &atom.urls)
        };
        match merged.iter_mut().find(same) {
            Some(known) => known.verbs.extend(atom.verbs),
            None => merged.push(atom),
        }
    }
    let mut texts: Vec<_> = merged.iter().map(Rule::text).collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Returns a list of quoted texts, as Go prints one.
pub(crate) fn quoted_list(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", quoted.join(" "))
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|text| text == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|text| text == "*" || text == wanted)
}

/// Returns whether a path is the same, or begins with what stands before the `*` at the end.
fn url_covers(url: &str, path: &str) -> bool {
    url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

#[cfg(test)]
mod tests;
