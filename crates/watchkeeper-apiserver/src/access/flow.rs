//! Priority and fairness: the flow schema and the priority level of a request. Nothing waits in a queue.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde_json::Value;

use crate::access::attributes::{Attributes, Object};
use crate::access::user::{User, as_service_account};
use crate::kinds::cells::{list, text};
use crate::kinds::kind::ResourceId;
use crate::state::store::{Store, Stored};

pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub(crate) const SCHEMAS: &str = "flowschemas";
pub(crate) const LEVELS: &str = "prioritylevelconfigurations";

/// The schema of a request that no other one matches.
const CATCH_ALL: &str = "catch-all";
/// The requests that a real server serves at a time by default; priority levels share them.
const SEATS: i64 = 600;

/// The uids of the schema and of the level of a request, for the headers of its response.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) schema: HeaderValue,
    pub(crate) level: HeaderValue,
}

/// The flow schemas in the order in which they are tried, and the priority levels. Follows the store.
#[derive(Debug)]
pub(crate) struct Flows {
    resources: [ResourceId; 2],
    /// What has been read: the newest changes of both resources, and the epoch of the store.
    seen: Option<(u64, u64, u64)>,
    schemas: Vec<Schema>,
    levels: BTreeMap<String, Level>,
}

#[derive(Debug)]
struct Schema {
    precedence: i64,
    name: String,
    uid: HeaderValue,
    level: String,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Level {
    uid: HeaderValue,
    shares: i64,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    /// Namespace and name.
    Account(String, String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    of_cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

impl Default for Flows {
    fn default() -> Self {
        let resources = [SCHEMAS, LEVELS].map(|plural| ResourceId::new(GROUP, plural));
        Self { resources, seen: None, schemas: Vec::new(), levels: BTreeMap::new() }
    }
}

impl Flows {
    /// Returns whether everything in the store has been read.
    pub(crate) fn are_current(&self, store: &Store) -> bool {
        self.seen == Some(self.newest(store))
    }

    fn newest(&self, store: &Store) -> (u64, u64, u64) {
        let [schemas, levels] = &self.resources;
        (store.changed(schemas), store.changed(levels), store.watch_epoch())
    }

    /// Reads all schemas and levels; there are few.
    pub(crate) fn read(&mut self, store: &Store) {
        let [schemas, levels] = &self.resources;
        self.levels = store.range(levels, None, None).filter_map(|stored| Level::of(stored)).collect();
        self.schemas = store.range(schemas, None, None).filter_map(|stored| Schema::of(stored)).collect();
        self.schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        self.seen = Some(self.newest(store));
    }

    /// Returns the flow of a request: that of the first schema that matches it and has a level.
    pub(crate) fn of(&self, user: &User, asked: &Attributes<'_>) -> Option<Flow> {
        let usable =
            || self.schemas.iter().filter_map(|schema| Some((schema, self.levels.get(&schema.level)?)));
        let found = usable().find(|(schema, _)| schema.rules.iter().any(|rule| rule.matches(user, asked)));
        let (schema, level) = found.or_else(|| usable().find(|(schema, _)| schema.name == CATCH_ALL))?;
        Some(Flow { schema: schema.uid.clone(), level: level.uid.clone() })
    }

    /// Returns each level with the number of requests that a real server would serve at a time.
    pub(crate) fn seats(&self) -> impl Iterator<Item = (&str, i64)> {
        let all: i64 = self.levels.values().map(|level| level.shares).sum::<i64>().max(1);
        self.levels.iter().map(move |(name, level)| {
            let seats = level.shares.saturating_mul(SEATS).saturating_add(all - 1) / all;
            (name.as_str(), seats)
        })
    }
}

fn uid(value: &Value) -> Option<HeaderValue> {
    HeaderValue::from_str(text(&value["metadata"]["uid"])).ok()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(|entry| text(entry).to_owned()).collect()
}

/// Returns whether a list has an entry or a wildcard.
fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == wanted)
}

impl Level {
    fn of(stored: &Stored) -> Option<(String, Self)> {
        let value = stored.value();
        let spec = &value["spec"];
        let shares =
            ["limited", "exempt"].iter().find_map(|field| spec[*field]["nominalConcurrencyShares"].as_i64());
        Some((stored.key.name.clone(), Self { uid: uid(&value)?, shares: shares.unwrap_or(0).max(0) }))
    }
}

impl Schema {
    fn of(stored: &Stored) -> Option<Self> {
        let value = stored.value();
        let spec = &value["spec"];
        Some(Self {
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(0),
            name: stored.key.name.clone(),
            uid: uid(&value)?,
            level: text(&spec["priorityLevelConfiguration"]["name"]).to_owned(),
            rules: list(&spec["rules"]).iter().map(Rule::of).collect(),
        })
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        let resources = list(&rule["resourceRules"]).iter().map(|rule| ResourceRule {
            verbs: texts(&rule["verbs"]),
            groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            namespaces: texts(&rule["namespaces"]),
            of_cluster: rule["clusterScope"] == true,
        });
        let paths = list(&rule["nonResourceRules"]).iter();
        let paths = paths
            .map(|rule| PathRule { verbs: texts(&rule["verbs"]), paths: texts(&rule["nonResourceURLs"]) });
        let subjects = list(&rule["subjects"]).iter();
        Self {
            subjects: subjects.filter_map(Subject::of).collect(),
            resources: resources.collect(),
            paths: paths.collect(),
        }
    }

    fn matches(&self, user: &User, asked: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(user))
            && match asked.object {
                Object::Resource(_) => self.resources.iter().any(|rule| rule.matches(asked)),
                Object::Path(path) => self.paths.iter().any(|rule| rule.matches(asked.verb, path)),
            }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Self> {
        let part = |kind: &str, field: &str| text(&subject[kind][field]).to_owned();
        match text(&subject["kind"]) {
            "User" => Some(Self::User(part("user", "name"))),
            "Group" => Some(Self::Group(part("group", "name"))),
            "ServiceAccount" => {
                Some(Self::Account(part("serviceAccount", "namespace"), part("serviceAccount", "name")))
            }
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(group) => group == "*" || user.groups.contains(group),
            Self::Account(namespace, name) => as_service_account(&user.name)
                .is_some_and(|(of, account)| of == namespace && (name == "*" || name == account)),
        }
    }
}

impl ResourceRule {
    fn matches(&self, asked: &Attributes<'_>) -> bool {
        let Object::Resource(object) = asked.object else { return false };
        let is_named = |entry: &String| match entry.split_once('/') {
            Some((resource, part)) => resource == object.resource && part == object.subresource,
            None => entry == "*" || object.subresource.is_empty() && entry == object.resource,
        };
        has(&self.verbs, asked.verb)
            && has(&self.groups, object.group)
            && self.resources.iter().any(is_named)
            && match object.namespace {
                "" => self.of_cluster,
                namespace => has(&self.namespaces, namespace),
            }
    }
}

impl PathRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        let is_path = |entry: &String| {
            let begin = entry.strip_suffix('*').unwrap_or(entry);
            let within = path.strip_prefix(begin);
            entry == "*"
                || within.is_some_and(|rest| rest.is_empty() || begin.ends_with('/') || rest.starts_with('/'))
        };
        has(&self.verbs, verb) && self.paths.iter().any(is_path)
    }
}
