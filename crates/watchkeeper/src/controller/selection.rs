//! Matching objects against the selectors of an informer, as the server does.

use kube_core::{Expression, Selector, SelectorExt};

use crate::object::{Object, PathError};
use crate::source::Selection;
use crate::store::Field;

/// The parsed selectors of an informer.
#[derive(Debug)]
pub(super) struct Matcher {
    labels: Selector,
    fields: Vec<FieldTest>,
}

#[derive(Debug)]
struct FieldTest {
    field: Field,
    value: String,
    equal: bool,
}

/// A selector that the server would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// A label selector with a requirement that is none.
    #[error(
        "cannot read {requirement:?} in the label selector {selector:?}: expected key, !key, key=value, key!=value, key in (a,b) or key notin (a,b)"
    )]
    Labels {
        /// The whole selector.
        selector: String,
        /// The requirement that cannot be read.
        requirement: String,
    },
    /// A field selector with a requirement that is none.
    #[error(
        "cannot read {requirement:?} in the field selector {selector:?}: expected path=value or path!=value"
    )]
    Fields {
        /// The whole selector.
        selector: String,
        /// The requirement that cannot be read.
        requirement: String,
    },
    /// A field selector with a path that is none.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Matcher {
    pub(super) fn new(selection: &Selection) -> Result<Self, SelectorError> {
        let Selection { labels, fields } = selection;
        let expressions = requirements(labels).map(|text| {
            label_test(text).ok_or_else(|| SelectorError::Labels {
                selector: labels.clone(),
                requirement: text.to_owned(),
            })
        });
        let tests = requirements(fields).map(|text| {
            let (path, equal, value) = comparison(text).ok_or_else(|| SelectorError::Fields {
                selector: fields.clone(),
                requirement: text.to_owned(),
            })?;
            Ok(FieldTest { field: Field::new(path)?, value: value.to_owned(), equal })
        });
        Ok(Self {
            labels: expressions.collect::<Result<Selector, SelectorError>>()?,
            fields: tests.collect::<Result<_, SelectorError>>()?,
        })
    }

    pub(super) fn matches<K>(&self, object: &Object<K>) -> bool {
        let labels = self.labels.selects_all() || self.labels.matches(&object.labels().to_map());
        labels && self.fields.iter().all(|test| test.matches(object.json()))
    }
}

impl FieldTest {
    fn matches(&self, json: &[u8]) -> bool {
        // A field that is not there has the empty value, as on the server.
        let (mut found, mut any) = (false, false);
        self.field.each(json, &mut |value| {
            any = true;
            found |= value == self.value;
        });
        (found || (!any && self.value.is_empty())) == self.equal
    }
}

/// The requirements of a selector, which commas outside parentheses separate.
fn requirements(selector: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let pieces = selector.split(move |sign| {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    });
    pieces.map(str::trim).filter(move |_| !selector.trim().is_empty())
}

fn comparison(text: &str) -> Option<(&str, bool, &str)> {
    let (key, equal, value) = if let Some((key, value)) = text.split_once("!=") {
        (key, false, value)
    } else if let Some((key, value)) = text.split_once("==") {
        (key, true, value)
    } else {
        let (key, value) = text.split_once('=')?;
        (key, true, value)
    };
    let (key, value) = (key.trim(), value.trim());
    (is_word(key) && (value.is_empty() || is_word(value))).then_some((key, equal, value))
}

fn label_test(text: &str) -> Option<Expression> {
    if let Some((key, equal, value)) = comparison(text) {
        let (key, value) = (key.to_owned(), value.to_owned());
        return Some(if equal { Expression::Equal(key, value) } else { Expression::NotEqual(key, value) });
    }
    if let Some(list) = text.strip_suffix(')') {
        let (head, values) = list.split_once('(')?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let (key, operator) = (words.next()?, words.next()?);
        return match (operator, words.next()) {
            ("in", None) => Some(Expression::In(key.to_owned(), values)),
            ("notin", None) => Some(Expression::NotIn(key.to_owned(), values)),
            _ => None,
        };
    }
    match text.strip_prefix('!') {
        Some(key) => is_word(key.trim()).then(|| Expression::DoesNotExist(key.trim().to_owned())),
        None => is_word(text).then(|| Expression::Exists(text.to_owned())),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|sign: char| sign.is_whitespace() || "()!=,".contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(labels: &str, fields: &str) -> bool {
        let json = br#"{"metadata":{"name":"a","labels":{"app":"web","tier":"x"}},"spec":{"nodeName":"n1"}}"#;
        let object = Object::<()>::from_json(json).unwrap();
        let selection = Selection { labels: labels.to_owned(), fields: fields.to_owned() };
        Matcher::new(&selection).unwrap().matches(&object)
    }

    #[test]
    fn label_selectors_match_as_on_the_server() {
        for labels in [
            "",
            "app=web",
            "app==web",
            "app = web",
            "app,tier",
            "!none",
            "app!=api",
            "none!=x",
            "app in (api, web)",
            "tier notin (y),app=web",
            "none notin (y)",
        ] {
            assert!(matches(labels, ""), "{labels}");
        }
        for labels in [
            "app=api",
            "app!=web",
            "!app",
            "none",
            "none=x",
            "app in (a,b)",
            "tier notin (x)",
            "app=web,none",
        ] {
            assert!(!matches(labels, ""), "{labels}");
        }
    }

    #[test]
    fn field_selectors_match_by_path_and_a_missing_field_is_empty() {
        for fields in
            ["spec.nodeName=n1", "metadata.name!=b", "spec.none=", "metadata.name=a,spec.nodeName==n1"]
        {
            assert!(matches("", fields), "{fields}");
        }
        for fields in ["spec.nodeName=n2", "spec.nodeName!=n1", "spec.nodeName=", "spec.none!="] {
            assert!(!matches("", fields), "{fields}");
        }
        assert!(!matches("app=web", "spec.nodeName=n2"), "both must match");
    }

    #[test]
    fn what_the_server_would_refuse_is_an_error_that_names_it() {
        for (labels, requirement) in [
            ("app=web,,tier", ""),
            ("a b", "a b"),
            ("x,app in web", "app in web"),
            ("app is (a)", "app is (a)"),
        ] {
            let selection = Selection { labels: labels.to_owned(), ..Selection::default() };
            let error = Matcher::new(&selection).unwrap_err();
            let expected =
                SelectorError::Labels { selector: labels.to_owned(), requirement: requirement.to_owned() };
            assert_eq!(error, expected);
        }
        let fields = |fields: &str| {
            Matcher::new(&Selection { fields: fields.to_owned(), ..Selection::default() }).unwrap_err()
        };
        assert!(fields("spec.nodeName").to_string().contains("expected path=value"));
        assert!(matches!(fields("spec..x=1"), SelectorError::Path(_)));
    }
}
