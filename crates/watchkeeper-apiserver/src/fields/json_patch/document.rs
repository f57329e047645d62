//! A JSON document being patched: addressed by paths, changed in place, and dropped without recursion.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::{Misfit, Result};
use crate::codec::json;

/// The maximum depth of a document that is returned or copied. It exceeds the limit of stored objects, so that storing
/// reports the proper error.
const DEPTH_LIMIT: usize = json::DEPTH_LIMIT * 2;

/// A value of the document. A container is opened when a path first leads into it.
///
/// Moves can nest open containers without bound, so they must not be walked or dropped recursively before their depth
/// is known.
#[derive(Debug)]
pub(super) enum Node {
    Closed(Value),
    Object(BTreeMap<String, Node>),
    Array(List),
}

/// A position in an open container.
pub(super) struct Place<'a> {
    holder: &'a mut Node,
    key: String,
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self::Closed(value)
    }
}

impl Node {
    /// Returns the position that a path names; its container must exist.
    pub(super) fn holder(&mut self, path: &str) -> Result<Place<'_>> {
        // The text before the first slash is ignored.
        let (_, path) = path.split_once('/').ok_or(Misfit::Missing)?;
        let mut steps = path.split('/');
        let last = steps.next_back().unwrap_or_default();
        let mut at = self;
        for step in steps {
            let place = Place { holder: at.open()?, key: unescaped(step) };
            at = place.get().ok().flatten().ok_or(Misfit::Missing)?;
        }
        Ok(Place { holder: at.open()?, key: unescaped(last) })
    }

    /// Opens a container to access its children.
    fn open(&mut self) -> Result<&mut Self> {
        if let Self::Closed(value) = self {
            *self = match std::mem::take(value) {
                Value::Object(fields) => {
                    Self::Object(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
                }
                Value::Array(elements) => Self::Array(List::new(elements)),
                _ => return Err(Misfit::Missing),
            };
        }
        Ok(self)
    }

    pub(super) fn replace(&mut self, new: Self) {
        std::mem::replace(self, new).discard();
    }

    pub(super) fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Closed(own), value) => own == value,
            (Self::Object(own), Value::Object(fields)) => {
                own.len() == fields.len()
                    && own.iter().zip(fields).all(|((a, own), (b, value))| a == b && own.equals(value))
            }
            (Self::Array(own), Value::Array(elements)) => {
                own.len == elements.len()
                    && own.pieces.iter().flatten().zip(elements).all(|(own, value)| own.equals(value))
            }
            _ => false,
        }
    }

    /// Returns a copy of the value; its length is taken from `left`.
    pub(super) fn copy(&mut self, left: &mut usize) -> Result<Value> {
        let value = self.settle()?;
        serde_json::to_writer(Counter(left), value).map_err(|_| Misfit::Copied)?;
        Ok(value.clone())
    }

    /// Closes the node and everything in it.
    pub(super) fn settle(&mut self) -> Result<&mut Value> {
        if self.is_deeper(DEPTH_LIMIT) {
            return Err(Misfit::Depth);
        }
        *self = Self::Closed(std::mem::replace(self, Self::Closed(Value::Null)).close());
        match self {
            Self::Closed(value) => Ok(value),
            _ => unreachable!("it was closed above"),
        }
    }

    fn is_deeper(&self, limit: usize) -> bool {
        let deeper = |node: &Self| limit == 0 || node.is_deeper(limit - 1);
        match self {
            Self::Closed(value) => json::is_deeper(value, limit),
            Self::Object(fields) => limit == 0 || fields.values().any(deeper),
            Self::Array(elements) => limit == 0 || elements.pieces.iter().flatten().any(deeper),
        }
    }

    fn close(self) -> Value {
        match self {
            Self::Closed(value) => value,
            Self::Object(fields) => fields.into_iter().map(|(name, node)| (name, node.close())).collect(),
            Self::Array(list) => list.pieces.into_iter().flatten().map(Self::close).collect(),
        }
    }

    /// Drops the node without recursion.
    pub(super) fn discard(self) {
        let mut waiting = vec![self];
        while let Some(node) = waiting.pop() {
            match node {
                Self::Closed(_) => {}
                Self::Object(fields) => waiting.extend(fields.into_values()),
                Self::Array(list) => waiting.extend(list.pieces.into_iter().flatten()),
            }
        }
    }
}

impl<'a> Place<'a> {
    /// Returns the value at the position; `None` for a missing field or a null.
    pub(super) fn get(self) -> Result<Option<&'a mut Node>> {
        let found = match self.holder {
            Node::Object(fields) => fields.get_mut(&self.key),
            Node::Array(list) => Some(list.get_mut(index(&self.key, list.len, 0)?)),
            Node::Closed(_) => return Err(Misfit::Missing),
        };
        Ok(found.filter(|node| !matches!(node, Node::Closed(Value::Null))))
    }

    pub(super) fn add(self, new: Node) -> Result<()> {
        match self.holder {
            Node::Object(fields) => {
                if let Some(old) = fields.insert(self.key, new) {
                    old.discard();
                }
                Ok(())
            }
            Node::Array(list) => {
                let at = if self.key == "-" { Ok(list.len) } else { index(&self.key, list.len, 1) };
                match at {
                    Ok(at) => list.insert(at, new),
                    Err(_) => new.discard(),
                }
                at.map(|_| ())
            }
            Node::Closed(_) => Err(Misfit::Missing),
        }
    }

    pub(super) fn replace(self, new: Node) -> Result<()> {
        match self.holder {
            Node::Array(list) => {
                list.get_mut(index(&self.key, list.len, 0)?).replace(new);
                Ok(())
            }
            _ => self.add(new),
        }
    }

    pub(super) fn remove(self) -> Result<Node> {
        match self.holder {
            Node::Object(fields) => fields.remove(&self.key).ok_or(Misfit::Missing),
            Node::Array(list) => Ok(list.remove(index(&self.key, list.len, 0)?)),
            Node::Closed(_) => Err(Misfit::Missing),
        }
    }
}

/// Parses an index into a list of `len` elements; `past` positions behind the end are allowed, negative indices count
/// from the end.
fn index(key: &str, len: usize, past: usize) -> Result<usize> {
    let places = len + past;
    let at: i64 = key.parse().map_err(|_| Misfit::Index)?;
    let from_end = usize::try_from(at.unsigned_abs()).map_err(|_| Misfit::Index)?;
    let at = if at < 0 { places.checked_sub(from_end) } else { Some(from_end) };
    at.filter(|at| *at < places).ok_or(Misfit::Index)
}

fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// A list in chunks, so that inserting and removing does not move all later elements.
#[derive(Debug)]
pub(super) struct List {
    /// No chunk is empty.
    pieces: Vec<Vec<Node>>,
    len: usize,
}

/// The initial length of a chunk. It is split at twice that.
const PIECE: usize = 512;

impl List {
    fn new(elements: Vec<Value>) -> Self {
        let len = elements.len();
        let mut elements = elements.into_iter().map(Node::Closed);
        let pieces = (0..len.div_ceil(PIECE)).map(|_| elements.by_ref().take(PIECE).collect()).collect();
        Self { pieces, len }
    }

    /// Returns the chunk of an element, and the position in it.
    fn find(&self, mut at: usize) -> (usize, usize) {
        for (number, piece) in self.pieces.iter().enumerate() {
            if at < piece.len() {
                return (number, at);
            }
            at -= piece.len();
        }
        unreachable!("indices are checked against the length")
    }

    fn get_mut(&mut self, at: usize) -> &mut Node {
        let (piece, at) = self.find(at);
        &mut self.pieces[piece][at]
    }

    fn insert(&mut self, at: usize, new: Node) {
        let (number, at) = match at.checked_sub(1) {
            Some(before) if before < self.len => {
                let (number, before) = self.find(before);
                (number, before + 1)
            }
            _ => (0, 0),
        };
        if self.pieces.is_empty() {
            self.pieces.push(Vec::new());
        }
        let piece = &mut self.pieces[number];
        piece.insert(at, new);
        if piece.len() >= 2 * PIECE {
            let rest = piece.split_off(PIECE);
            self.pieces.insert(number + 1, rest);
        }
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> Node {
        let (number, at) = self.find(at);
        let removed = self.pieces[number].remove(at);
        if self.pieces[number].is_empty() {
            self.pieces.remove(number);
        }
        self.len -= 1;
        removed
    }
}

/// A writer that counts the encoded length, with the real server's escapes, down to zero.
struct Counter<'a>(&'a mut usize);

impl io::Write for Counter<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let escaped = text.iter().filter(|byte| b"<>&".contains(byte)).count();
        *self.0 = self.0.checked_sub(text.len() + 5 * escaped).ok_or(io::ErrorKind::StorageFull)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
