//! Rules whose `oldSelf` is optional. The evaluator has it as a plain value, or as null if there is none, so that each
//! use of it is written as an optional value first.

use serde_json::{Map, Value};

/// What stands for `oldSelf` in such a rule.
const OLD: &str = "(oldSelf == null ? optional.none() : optional.of(oldSelf))";

/// Returns a schema in which rules with `optionalOldSelf` can be evaluated.
pub(super) fn rewritten(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let mut map: Map<_, _> =
                map.iter().map(|(field, value)| (field.clone(), rewritten(value))).collect();
            let rules = map.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut);
            rules.into_iter().flatten().filter(|rule| rule["optionalOldSelf"] == true).for_each(rewrite);
            map.into()
        }
        Value::Array(list) => list.iter().map(rewritten).collect(),
        other => other.clone(),
    }
}

fn rewrite(rule: &mut Value) {
    let texts = ["rule", "messageExpression"].map(|field| rule[field].as_str().map(str::to_owned));
    // The message of a rule without one names the rule as it was written.
    if let [Some(text), None] = &texts
        && rule["message"].as_str().unwrap_or_default().is_empty()
    {
        rule["message"] = format!("failed rule: {text}").into();
    }
    for (field, text) in ["rule", "messageExpression"].into_iter().zip(texts) {
        if let Some(text) = text {
            rule[field] = replaced(&text).into();
        }
    }
}

/// Replaces the variable outside of literals.
fn replaced(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let length = match letter {
            '"' | '\'' => literal(rest, before == 'r' || before == 'R'),
            _ if is_name(letter) => rest.find(|letter| !is_name(letter)).unwrap_or(rest.len()),
            _ => letter.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        result.push_str(if token == "oldSelf" && before != '.' { OLD } else { token });
        before = token.chars().next_back().filter(|letter| !letter.is_whitespace()).unwrap_or(before);
        rest = after;
    }
    result
}

/// Returns the length of the string literal at the beginning of a text.
fn literal(text: &str, raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let end = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = end.len();
    while let Some(letter) = text[at..].chars().next() {
        if text[at..].starts_with(end) {
            return at + end.len();
        }
        at += letter.len_utf8();
        if letter == '\\' && !raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_replaced_outside_of_literals() {
        let cases = [
            ("!oldSelf.hasValue()", "!#.hasValue()"),
            (
                "self.oldSelf == 'oldSelf' || oldSelfs == oldSelf",
                "self.oldSelf == 'oldSelf' || oldSelfs == #",
            ),
            (r#"r'\' + oldSelf + "a\"oldSelf""#, r#"r'\' + # + "a\"oldSelf""#),
            ("'''a'oldSelf''' + oldSelf", "'''a'oldSelf''' + #"),
            ("'open oldSelf", "'open oldSelf"),
        ];
        for (rule, expected) in cases {
            assert_eq!(replaced(rule), expected.replace('#', OLD), "{rule}");
        }
    }
}
