//! A persistent hash trie: readers keep an old state while the writer builds a new one that shares the unchanged nodes.

use std::sync::Arc;

/// A persistent set: a clone is O(1), and a change copies only the nodes on its path, and only if a clone shares them.
#[derive(Debug)]
pub(crate) struct Trie<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
enum Node<T> {
    Empty,
    Leaf(Arc<Vec<(u64, T)>>),
    Branch(Arc<[Node<T>; WIDTH]>),
}

/// Narrow nodes make a change cheap, since fewer neighbours are copied; wide ones make a lookup short. With leaves of
/// 16, a width of 8 costs lookups nothing.
const WIDTH: usize = 8;
const BITS: u32 = WIDTH.trailing_zeros();
/// The number of entries above which a leaf becomes a branch.
const LEAF: usize = 16;
/// At this depth all bits of a hash are used up.
const DEEPEST: u32 = u64::BITS / BITS;

impl<T> Clone for Trie<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Leaf(entries) => Self::Leaf(entries.clone()),
            Self::Branch(children) => Self::Branch(children.clone()),
        }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self { root: Node::Empty, len: 0 }
    }
}

impl<T> Trie<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the entries with `hash`: usually one or none.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = &T> + Clone {
        let (mut node, mut depth) = (&self.root, 0);
        let leaf: &[(u64, T)] = loop {
            match node {
                Node::Empty => break &[],
                Node::Leaf(entries) => break entries,
                Node::Branch(children) => node = &children[slot(hash, depth)],
            }
            depth += 1;
        };
        leaf.iter().filter(move |(h, _)| *h == hash).map(|(_, entry)| entry)
    }

    /// Returns the entry with `hash` for which `is` holds.
    pub(crate) fn get(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&T> {
        self.with_hash(hash).find(|entry| is(entry))
    }

    /// Iterates over all entries with their hashes, in the order of the hashes' bits.
    pub(crate) fn entries(&self) -> Entries<'_, T> {
        Entries { branches: vec![std::slice::from_ref(&self.root).iter()], leaf: [].iter(), left: self.len }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries().map(|(_, entry)| entry)
    }
}

impl<T: Clone> Trie<T> {
    /// Replaces and returns the entry with `hash` for which `is` holds, or adds one.
    pub(crate) fn insert(&mut self, hash: u64, value: T, is: impl Fn(&T) -> bool) -> Option<T> {
        let old = insert(&mut self.root, 0, hash, value, &is);
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes the entry with `hash` for which `is` holds.
    pub(crate) fn remove(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<T> {
        // A missing entry must not cause a copy.
        self.get(hash, &is)?;
        let old = remove(&mut self.root, 0, hash, &is);
        self.len -= usize::from(old.is_some());
        old
    }

    /// Returns the entry with `hash` for which `is` holds, to be changed in place.
    pub(crate) fn get_mut(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&mut T> {
        self.get(hash, &is)?;
        let (mut node, mut depth) = (&mut self.root, 0);
        loop {
            match node {
                Node::Empty => return None,
                Node::Leaf(entries) => {
                    let entries = Arc::make_mut(entries);
                    return entries.iter_mut().find(|(h, e)| *h == hash && is(e)).map(|(_, e)| e);
                }
                Node::Branch(children) => node = &mut Arc::make_mut(children)[slot(hash, depth)],
            }
            depth += 1;
        }
    }
}

fn slot(hash: u64, depth: u32) -> usize {
    (hash >> (depth * BITS)) as usize % WIDTH
}

fn insert<T: Clone>(
    node: &mut Node<T>,
    depth: u32,
    hash: u64,
    value: T,
    is: &dyn Fn(&T) -> bool,
) -> Option<T> {
    match node {
        Node::Empty => {
            *node = Node::Leaf(Arc::new(vec![(hash, value)]));
            None
        }
        Node::Branch(children) => {
            insert(&mut Arc::make_mut(children)[slot(hash, depth)], depth + 1, hash, value, is)
        }
        Node::Leaf(entries) => {
            if let Some(at) = entries.iter().position(|(h, entry)| *h == hash && is(entry)) {
                return Some(std::mem::replace(&mut Arc::make_mut(entries)[at].1, value));
            }
            if entries.len() < LEAF || depth == DEEPEST {
                Arc::make_mut(entries).push((hash, value));
                return None;
            }
            let entries = std::mem::take(Arc::make_mut(entries));
            *node = Node::Branch(Arc::new(std::array::from_fn(|_| Node::Empty)));
            for (hash, entry) in entries {
                insert(node, depth, hash, entry, &|_: &T| false);
            }
            insert(node, depth, hash, value, is)
        }
    }
}

fn remove<T: Clone>(node: &mut Node<T>, depth: u32, hash: u64, is: &dyn Fn(&T) -> bool) -> Option<T> {
    match node {
        Node::Empty => None,
        Node::Leaf(entries) => {
            let at = entries.iter().position(|(h, entry)| *h == hash && is(entry))?;
            let (_, old) = Arc::make_mut(entries).swap_remove(at);
            if entries.is_empty() {
                *node = Node::Empty;
            }
            Some(old)
        }
        Node::Branch(children) => {
            let children = Arc::make_mut(children);
            let old = remove(&mut children[slot(hash, depth)], depth + 1, hash, is);
            if children.iter().all(|child| matches!(child, Node::Empty)) {
                *node = Node::Empty;
            }
            old
        }
    }
}

/// The iterator of [`Trie::entries`].
pub(crate) struct Entries<'a, T> {
    branches: Vec<std::slice::Iter<'a, Node<T>>>,
    leaf: std::slice::Iter<'a, (u64, T)>,
    left: usize,
}

impl<'a, T> Iterator for Entries<'a, T> {
    type Item = &'a (u64, T);

    fn next(&mut self) -> Option<&'a (u64, T)> {
        loop {
            if let Some(entry) = self.leaf.next() {
                self.left -= 1;
                return Some(entry);
            }
            match self.branches.last_mut()?.next() {
                None => {
                    self.branches.pop();
                }
                Some(Node::Empty) => {}
                Some(Node::Leaf(entries)) => self.leaf = entries.iter(),
                Some(Node::Branch(children)) => self.branches.push(children.iter()),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Entries<'_, T> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Few distinct hashes, so that entries collide at every depth.
    fn bad_hash(key: u16) -> u64 {
        match key % 3 {
            0 => 7,
            1 => u64::from(key) << 60,
            _ => u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    type Entry = (u16, u32);

    fn contents(trie: &Trie<Entry>) -> BTreeMap<u16, u32> {
        check(&trie.root, 0, 0);
        let mut entries = trie.entries();
        for left in (0..trie.len()).rev() {
            entries.next().unwrap();
            assert_eq!(entries.len(), left);
        }
        assert!(entries.next().is_none());
        trie.iter().copied().collect()
    }

    /// Checks that every entry is where its hash says, and that leaves are small where possible.
    fn check(node: &Node<Entry>, depth: u32, path: u64) {
        match node {
            Node::Empty => {}
            Node::Leaf(entries) => {
                let is_small = entries.len() <= LEAF;
                // All but the last bit: 21 steps of three bits each.
                assert!(is_small || entries.iter().all(|(hash, _)| hash << 1 == entries[0].0 << 1));
                assert!(!entries.is_empty());
                let way = (1_u64 << (depth * BITS)) - 1;
                assert!(entries.iter().all(|(hash, entry)| *hash == bad_hash(entry.0) && hash & way == path));
            }
            Node::Branch(children) => {
                assert!(depth < DEEPEST && children.iter().any(|child| !matches!(child, Node::Empty)));
                for (slot, child) in (0..).zip(&**children) {
                    check(child, depth + 1, path | slot << (depth * BITS));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_changes_equal_those_of_a_map_and_old_clones_stay(
            changes in prop::collection::vec((0..200_u16, any::<u32>(), 0..10_u8), 0..600),
        ) {
            let (mut trie, mut model) = (Trie::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (key, value, what) in changes {
                let is = |entry: &Entry| entry.0 == key;
                match what {
                    0..6 => prop_assert_eq!(trie.insert(bad_hash(key), (key, value), is), model.insert(key, value).map(|old| (key, old))),
                    6..8 => prop_assert_eq!(trie.remove(bad_hash(key), is), model.remove(&key).map(|old| (key, old))),
                    8 => match (trie.get_mut(bad_hash(key), is), model.get_mut(&key)) {
                        (Some(entry), Some(old)) => (entry.1, *old) = (value, value),
                        (entry, old) => prop_assert_eq!((entry, old), (None, None)),
                    },
                    _ => kept.push((trie.clone(), model.clone())),
                }
                prop_assert_eq!(trie.get(bad_hash(key), is).map(|e| e.1), model.get(&key).copied());
            }
            prop_assert_eq!(contents(&trie), model);
            for (trie, model) in kept {
                prop_assert_eq!(contents(&trie), model);
            }
        }
    }

    #[test]
    fn where_hashes_differ_leaves_are_small_and_every_entry_can_be_changed() {
        fn largest<T>(node: &Node<T>) -> usize {
            match node {
                Node::Empty => 0,
                Node::Leaf(entries) => entries.len(),
                Node::Branch(children) => children.iter().map(largest).max().unwrap_or(0),
            }
        }
        let spread = |key: u32| u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15).reverse_bits();
        let mut trie = Trie::default();
        for key in 0..20_000 {
            assert_eq!(trie.insert(spread(key), key, |entry| *entry == key), None);
        }
        assert!(largest(&trie.root) <= LEAF);
        for key in 0..20_000 {
            assert!(trie.get_mut(spread(key), |entry| *entry == key).is_some());
        }
    }

    #[test]
    fn a_leaf_is_divided_when_it_is_full_and_not_before() {
        let mut trie = Trie::default();
        for key in 0..=LEAF as u16 {
            assert!(matches!(trie.root, Node::Empty | Node::Leaf(_)), "{key}");
            trie.insert(u64::from(key), (key, 0), |_| false);
        }
        assert!(matches!(trie.root, Node::Branch(_)));
    }

    #[test]
    fn an_emptied_trie_holds_no_nodes() {
        let mut trie = Trie::default();
        (0..1000_u16).for_each(|key| assert!(trie.insert(bad_hash(key), (key, 0), |e| e.0 == key).is_none()));
        (0..1000_u16).for_each(|key| assert!(trie.remove(bad_hash(key), |e| e.0 == key).is_some()));
        assert!(trie.len() == 0 && matches!(trie.root, Node::Empty));
    }
}
