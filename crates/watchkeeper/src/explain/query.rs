//! Questions about keys, and what is wrong with them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workqueue::KeyState;

impl FromStr for KeyState {
    type Err = ExplainError;

    fn from_str(text: &str) -> Result<Self, ExplainError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| ExplainError::bad_parameter("state", text, &Self::ALL.map(Self::as_str)))
    }
}

/// The order of the keys of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum KeySort {
    /// By name.
    #[default]
    Key,
    /// By state, then by name.
    State,
    /// Those that are in their state for longest first.
    Since,
    /// Those that are due next first, then those that are not delayed.
    Until,
    /// Those with the most failures in a row first.
    Failures,
}

impl KeySort {
    /// All orders.
    pub const ALL: [Self; 5] = [Self::Key, Self::State, Self::Since, Self::Until, Self::Failures];

    /// Returns the order as it is in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::State => "state",
            Self::Since => "since",
            Self::Until => "until",
            Self::Failures => "failures",
        }
    }
}

impl FromStr for KeySort {
    type Err = ExplainError;

    fn from_str(text: &str) -> Result<Self, ExplainError> {
        let found = Self::ALL.into_iter().find(|sort| sort.as_str() == text);
        found.ok_or_else(|| ExplainError::bad_parameter("sort", text, &Self::ALL.map(Self::as_str)))
    }
}

/// A question for the keys of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeysQuery {
    /// Only keys in this state.
    pub state: Option<KeyState>,
    /// Only keys that contain this text; empty for all.
    pub q: String,
    /// The order.
    pub sort: KeySort,
    /// Whether the order is the reverse one. What has no value, such as a key that is not due, is last all the same.
    pub is_reversed: bool,
    /// The number of keys on a page, at most [`KeysQuery::MAX_LIMIT`].
    pub limit: usize,
    /// Continues after an earlier page: the value of its `continue`.
    pub from: Option<String>,
}

impl KeysQuery {
    /// The number of keys on a page by default.
    pub const DEFAULT_LIMIT: usize = 100;
    /// The maximum number of keys on a page.
    pub const MAX_LIMIT: usize = 1_000;

    /// Reads the query of a URL: `state`, `q`, `sort`, `reverse`, `limit` and `continue`.
    ///
    /// # Errors
    ///
    /// A parameter that is not known, or whose value is not.
    pub fn parse(query: &str) -> Result<Self, ExplainError> {
        let mut parsed = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "state" if value.is_empty() => parsed.state = None,
                "state" => parsed.state = Some(value.parse()?),
                "q" => parsed.q = value.into_owned(),
                "sort" => parsed.sort = value.parse()?,
                "reverse" => {
                    parsed.is_reversed = match &*value {
                        "true" => true,
                        "false" | "" => false,
                        other => {
                            return Err(ExplainError::bad_parameter("reverse", other, &["true", "false"]));
                        }
                    }
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let limit: usize =
                        limit.ok_or_else(|| ExplainError::bad_parameter("limit", &value, &["1 to 1000"]))?;
                    parsed.limit = limit.min(Self::MAX_LIMIT);
                }
                "continue" => parsed.from = Some(value.into_owned()).filter(|from| !from.is_empty()),
                other => {
                    let known = ["state", "q", "sort", "reverse", "limit", "continue"];
                    return Err(ExplainError::UnknownParameter {
                        name: cut(other, SHOWN),
                        known: known.map(str::to_owned).to_vec(),
                    });
                }
            }
        }
        Ok(parsed)
    }
}

impl Default for KeysQuery {
    fn default() -> Self {
        Self {
            state: None,
            q: String::new(),
            sort: KeySort::default(),
            is_reversed: false,
            limit: Self::DEFAULT_LIMIT,
            from: None,
        }
    }
}

/// The maximum number of bytes of a value that an error repeats.
const SHOWN: usize = 80;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// There is no controller of that name.
    #[error("there is no controller {name:?}{}", suggestion(suggestions))]
    NoController {
        /// The name.
        name: String,
        /// The nearest names, or all if none is near.
        suggestions: Vec<String>,
    },
    /// No controller watches that kind.
    #[error("no controller watches the kind {kind:?}{}", suggestion(suggestions))]
    NoKind {
        /// The kind.
        kind: String,
        /// The nearest kinds, or all if none is near.
        suggestions: Vec<String>,
    },
    /// Kinds of several groups have that name.
    #[error("the kind {kind:?} is in several groups: use one of {}", suggestions.join(", "))]
    AmbiguousKind {
        /// The kind.
        kind: String,
        /// The kinds with their groups.
        suggestions: Vec<String>,
    },
    /// The kind has no namespaces, and one was named.
    #[error("{kind} has no namespaces: ask for {}", suggestions.join(", "))]
    ClusterScoped {
        /// The kind.
        kind: String,
        /// The name of the object.
        suggestions: Vec<String>,
    },
    /// There is no such object, neither in the cache nor in the queue.
    #[error("{kind} {key} is not known here: it does not exist, or is not selected")]
    NoObject {
        /// The kind.
        kind: String,
        /// The key.
        key: String,
    },
    /// The controller starts no reconciles.
    #[error("controller {controller} starts no reconciles now{}", asked(leader.as_deref()))]
    NotRunning {
        /// The controller.
        controller: String,
        /// The replica that leads, if it is another one.
        leader: Option<String>,
    },
    /// The program takes no requests to reconcile an object.
    #[error("this program takes no requests to reconcile an object: start it with --admin-actions")]
    NoActions,
    /// A parameter has a value that is none.
    #[error("{name}={value:?} is not known: use one of {}", known.join(", "))]
    BadParameter {
        /// The name of the parameter.
        name: String,
        /// Its value.
        value: String,
        /// The values that are known.
        known: Vec<String>,
    },
    /// There is no parameter of that name.
    #[error("there is no parameter {name:?}: use {}", known.join(", "))]
    UnknownParameter {
        /// The name.
        name: String,
        /// The parameters that are known.
        known: Vec<String>,
    },
    /// A parameter is missing.
    #[error("the parameter {0} is missing, as in /debug/explain?kind=Deployment&key=default/web")]
    MissingParameter(String),
    /// A key that is none.
    #[error("{0:?} is not the key of an object: use NAMESPACE/NAME, or NAME if the kind has no namespaces")]
    BadKey(String),
}

impl ExplainError {
    pub(super) fn bad_parameter(name: &str, value: &str, known: &[&str]) -> Self {
        let known = known.iter().map(|value| (*value).to_owned()).collect();
        Self::BadParameter { name: name.to_owned(), value: cut(value, SHOWN), known }
    }

    /// Returns whether the question is about something that is not there, and not wrong in itself.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NoController { .. } | Self::NoKind { .. } | Self::NoObject { .. })
    }

    /// Returns what may have been meant.
    pub fn suggestions(&self) -> &[String] {
        match self {
            Self::NoController { suggestions, .. }
            | Self::NoKind { suggestions, .. }
            | Self::AmbiguousKind { suggestions, .. }
            | Self::ClusterScoped { suggestions, .. } => suggestions,
            Self::BadParameter { known, .. } | Self::UnknownParameter { known, .. } => known,
            Self::MissingParameter(_)
            | Self::BadKey(_)
            | Self::NoObject { .. }
            | Self::NotRunning { .. }
            | Self::NoActions => &[],
        }
    }
}

fn asked(leader: Option<&str>) -> String {
    leader.map(|leader| format!(": ask {leader}, which leads")).unwrap_or_default()
}

fn suggestion(suggestions: &[String]) -> String {
    match suggestions {
        [] => String::new(),
        [one] => format!(": did you mean {one}?"),
        many => format!(": there are {}", many.join(", ")),
    }
}

/// Returns the first `bytes` bytes of a text, with a sign that more followed.
pub(super) fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_its_limit_bounded() {
        let query =
            KeysQuery::parse("state=retrying&q=a%2Fb&sort=until&reverse=true&limit=5000&continue=x").unwrap();
        let expected = KeysQuery {
            state: Some(KeyState::Retrying),
            q: "a/b".to_owned(),
            sort: KeySort::Until,
            is_reversed: true,
            limit: KeysQuery::MAX_LIMIT,
            from: Some("x".to_owned()),
        };
        assert_eq!(query, expected);
        assert_eq!(KeysQuery::parse("").unwrap(), KeysQuery::default());
    }

    #[test]
    fn what_is_wrong_with_a_query_is_said_with_what_is_right() {
        let text = |query: &str| KeysQuery::parse(query).unwrap_err().to_string();
        assert!(text("state=busy").starts_with("state=\"busy\" is not known: use one of running, waiting"));
        assert!(text("reverse=yes").contains("use one of true, false"));
        assert!(text("limit=0").contains("1 to 1000") && text("limit=x").contains("1 to 1000"));
        assert_eq!(
            text("color=red"),
            "there is no parameter \"color\": use state, q, sort, reverse, limit, continue"
        );
        assert!(text(&format!("state={}", "ü".repeat(1_000))).len() < 300, "it is cut");
    }
}
