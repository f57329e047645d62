//! JSON patch (RFC 6902) with the semantics of the real server's library.
//!
//! The library is more lenient than the RFC, and clients rely on it: a test for null passes on a missing field,
//! replacing a missing field adds it, copying a missing field adds null, and negative indices count from the end of a
//! list. Operations work in place: each costs the length of its path and of its value, not the size of the document.

mod document;

use serde_json::Value;

use crate::types::normalize::found_type;
use document::Node;

/// The maximum number of bytes of JSON that the copies of one patch may add.
const COPY_LIMIT: usize = 3 * 1024 * 1024;

/// Why a patch cannot be applied. The real server reports no details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misfit {
    #[error("an operation has another name than add, remove, replace, move, copy and test")]
    UnknownOperation,
    #[error("there is no value at the path of an operation")]
    Missing,
    #[error("an index is no number, or lies outside its list")]
    Index,
    #[error("a test does not hold")]
    Test,
    #[error("only an object or a list can replace the whole document")]
    Whole,
    #[error("the copies add more than {COPY_LIMIT} bytes")]
    Copied,
    #[error("the document is nested too deeply")]
    Depth,
}

type Result<T> = std::result::Result<T, Misfit>;

/// One operation of a patch. Missing fields and nulls are empty.
#[derive(Debug, Default)]
pub(crate) struct Operation {
    name: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl Operation {
    /// Decodes an operation and lists unknown fields; the error names a field of a wrong type.
    pub(crate) fn read(operation: Value) -> std::result::Result<(Self, Vec<String>), String> {
        let wrong = |value: &Value, place: &str, wanted: &str| {
            format!("json: cannot unmarshal {} into Go {place} of type {wanted}", found_type(value))
        };
        let fields = match operation {
            Value::Null => return Ok(Default::default()),
            Value::Object(fields) => fields,
            other => return Err(wrong(&other, "value", "handlers.jsonPatchOp")),
        };
        let (mut read, mut unknown) = (Self::default(), Vec::new());
        for (name, value) in fields {
            let text = match (name.as_str(), value) {
                ("value", value) => {
                    read.value = value;
                    continue;
                }
                ("op" | "path" | "from", Value::Null) => continue,
                ("op" | "path" | "from", Value::String(text)) => text,
                ("op" | "path" | "from", other) => {
                    return Err(wrong(&other, &format!("struct field jsonPatchOp.{name}"), "string"));
                }
                _ => {
                    unknown.push(name);
                    continue;
                }
            };
            match name.as_str() {
                "op" => read.name = text,
                "path" => read.path = Some(text),
                _ => read.from = Some(text),
            }
        }
        Ok((read, unknown))
    }

    fn path(&self) -> Result<&str> {
        self.path.as_deref().ok_or(Misfit::Missing)
    }

    fn from(&self) -> Result<&str> {
        self.from.as_deref().ok_or(Misfit::Missing)
    }

    /// Runs the operation; `left` is the number of bytes that copies may still add.
    fn run(&self, document: &mut Node, left: &mut usize) -> Result<()> {
        match self.name.as_str() {
            "add" => document.holder(self.path()?)?.add(self.value.clone().into()),
            "remove" => document.holder(self.path()?)?.remove().map(Node::discard),
            "replace" if self.path()?.is_empty() => match &self.value {
                Value::Object(_) | Value::Array(_) => {
                    document.replace(self.value.clone().into());
                    Ok(())
                }
                _ => Err(Misfit::Whole),
            },
            "replace" => document.holder(self.path()?)?.replace(self.value.clone().into()),
            "test" => {
                let holds = match self.path()? {
                    "" => document.equals(&self.value),
                    path => match document.holder(path)?.get()? {
                        Some(found) => found.equals(&self.value),
                        None => self.value.is_null(),
                    },
                };
                if holds { Ok(()) } else { Err(Misfit::Test) }
            }
            "move" => {
                let moved = document.holder(self.from()?)?.remove()?;
                match self.path().and_then(|path| document.holder(path)) {
                    Ok(place) => place.add(moved),
                    Err(misfit) => {
                        moved.discard();
                        Err(misfit)
                    }
                }
            }
            "copy" => {
                let copied = match document.holder(self.from()?)?.get()? {
                    Some(found) => found.copy(left)?,
                    None => Value::Null,
                };
                document.holder(self.path()?)?.add(copied.into())
            }
            _ => Err(Misfit::UnknownOperation),
        }
    }
}

/// Applies all operations to a document.
pub(crate) fn apply(operations: &[Operation], document: Value) -> Result<Value> {
    let mut document = Node::from(document);
    let mut left = COPY_LIMIT;
    let done = operations.iter().try_for_each(|operation| operation.run(&mut document, &mut left));
    match done.and_then(|()| document.settle()) {
        Ok(value) => Ok(std::mem::take(value)),
        Err(misfit) => {
            document.discard();
            Err(misfit)
        }
    }
}

#[cfg(test)]
mod tests;
