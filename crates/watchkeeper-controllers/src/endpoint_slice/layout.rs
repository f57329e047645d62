//! How endpoints are spread over slices: with as few changes of the slices that exist as possible. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

/// The most endpoints in a slice.
pub(crate) const FULL: usize = 100;

/// Endpoints of one type of address that have the same ports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) address_type: String,
    /// In the order of their names.
    pub(crate) ports: Vec<EndpointPort>,
    /// A group without endpoints has one slice without any.
    pub(crate) endpoints: Vec<Endpoint>,
}

/// The metadata of all slices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    pub(crate) labels: BTreeMap<String, String>,
    /// None leaves those that there are.
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// What becomes of the slices.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Layout {
    /// New slices, without names.
    pub(crate) create: Vec<EndpointSlice>,
    pub(crate) replace: Vec<EndpointSlice>,
    /// The names of those that are not needed any more.
    pub(crate) delete: Vec<String>,
}

/// Spreads the endpoints of `groups` over slices. An endpoint stays in its slice; new ones go first into slices that change
/// anyway, then into the fullest one that has room for all of them, then into new ones.
pub(crate) fn layout(existing: &[Arc<EndpointSlice>], groups: Vec<Group>, marks: &Marks) -> Layout {
    let mut unused: Vec<&EndpointSlice> = existing.iter().map(Arc::as_ref).collect();
    let mut layout = Layout::default();
    for group in groups {
        let is_its =
            |slice: &&EndpointSlice| slice.address_type == group.address_type && sorted(slice) == group.ports;
        let (its, others): (Vec<_>, Vec<_>) = unused.into_iter().partition(is_its);
        unused = others;
        let (kept, emptied, new) = fill(its, &group);
        unused.extend(emptied);
        layout.replace.extend(kept.into_iter().filter_map(|slice| slice.changed(marks)));
        layout.create.extend(new.into_iter().map(|endpoints| blank(&group, endpoints, marks)));
    }
    reuse(&mut layout, &mut unused);
    layout.delete.extend(unused.iter().filter_map(|slice| slice.metadata.name.clone()));
    layout
}

/// A slice that exists, with its endpoints from now on.
struct Kept<'a> {
    slice: &'a EndpointSlice,
    endpoints: Vec<Endpoint>,
}

impl Kept<'_> {
    fn is_changed(&self) -> bool {
        self.slice.endpoints.as_deref().unwrap_or_default() != self.endpoints
    }

    /// The slice as it should be; none if it is so.
    fn changed(self, marks: &Marks) -> Option<EndpointSlice> {
        let labels = self.slice.metadata.labels.as_ref();
        let annotations = self.slice.metadata.annotations.clone().unwrap_or_default();
        let is_marked = labels == Some(&marks.labels)
            && marks.annotations.as_ref().is_none_or(|wanted| *wanted == annotations);
        if is_marked && !self.is_changed() {
            return None;
        }
        let mut slice = self.slice.clone();
        slice.endpoints = Some(self.endpoints);
        mark(&mut slice, marks);
        Some(slice)
    }
}

fn mark(slice: &mut EndpointSlice, marks: &Marks) {
    slice.metadata.labels = Some(marks.labels.clone());
    if let Some(annotations) = &marks.annotations {
        slice.metadata.annotations = Some(annotations.clone());
    }
}

fn blank(group: &Group, endpoints: Vec<Endpoint>, marks: &Marks) -> EndpointSlice {
    let mut slice = EndpointSlice {
        address_type: group.address_type.clone(),
        endpoints: Some(endpoints),
        ports: Some(group.ports.clone()),
        ..EndpointSlice::default()
    };
    mark(&mut slice, marks);
    slice
}

/// The ports of a slice, in the order of their names.
fn sorted(slice: &EndpointSlice) -> Vec<EndpointPort> {
    let mut ports = slice.ports.clone().unwrap_or_default();
    sort(&mut ports);
    ports
}

/// Brings ports into the order of their names.
pub(crate) fn sort(ports: &mut [EndpointPort]) {
    ports.sort_by(|one, other| {
        let key = |port: &EndpointPort| (port.name.clone(), port.protocol.clone(), port.port);
        key(one).cmp(&key(other))
    });
}

/// What makes an endpoint the same one, whatever its conditions are.
fn identity(endpoint: &Endpoint) -> (Vec<String>, Option<String>) {
    (endpoint.addresses.clone(), endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()))
}

/// The slices of a group that are kept, those that have no endpoint any more, and the endpoints of new ones.
fn fill<'a>(
    its: Vec<&'a EndpointSlice>,
    group: &Group,
) -> (Vec<Kept<'a>>, Vec<&'a EndpointSlice>, Vec<Vec<Endpoint>>) {
    let mut wanted: BTreeMap<_, _> =
        group.endpoints.iter().map(|endpoint| (identity(endpoint), endpoint.clone())).collect();
    let (mut kept, mut emptied) = (Vec::new(), Vec::new());
    for slice in its {
        let known = slice.endpoints.iter().flatten();
        let endpoints: Vec<_> = known.filter_map(|known| wanted.remove(&identity(known))).collect();
        if endpoints.is_empty() && !(group.endpoints.is_empty() && kept.is_empty()) {
            emptied.push(slice);
        } else {
            kept.push(Kept { slice, endpoints });
        }
    }
    let mut rest: Vec<_> = wanted.into_values().collect();
    let mut changing: Vec<_> = kept.iter_mut().filter(|slice| slice.is_changed()).collect();
    changing.sort_by_key(|slice| Reverse(slice.endpoints.len()));
    for slice in changing {
        let room = FULL.saturating_sub(slice.endpoints.len()).min(rest.len());
        slice.endpoints.extend(rest.drain(..room));
    }
    let fits = |slice: &&mut Kept<'_>| slice.endpoints.len() + rest.len() <= FULL && !rest.is_empty();
    if let Some(slice) = kept.iter_mut().filter(fits).max_by_key(|slice| slice.endpoints.len()) {
        slice.endpoints.append(&mut rest);
    }
    let mut new: Vec<_> = rest.chunks(FULL).map(<[_]>::to_vec).collect();
    if kept.is_empty() && new.is_empty() {
        new.push(Vec::new());
    }
    (kept, emptied, new)
}

/// Writes new slices over those that would be deleted, where the type of their addresses allows it.
fn reuse(layout: &mut Layout, unused: &mut Vec<&EndpointSlice>) {
    for mut slice in std::mem::take(&mut layout.create) {
        match unused.iter().position(|other| other.address_type == slice.address_type) {
            Some(at) => {
                let old = unused.remove(at);
                let annotations = slice.metadata.annotations.take();
                let labels = slice.metadata.labels.take();
                slice.metadata = old.metadata.clone();
                slice.metadata.labels = labels;
                slice.metadata.annotations = annotations.or(slice.metadata.annotations);
                layout.replace.push(slice);
            }
            None => layout.create.push(slice),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(at: usize) -> Endpoint {
        Endpoint { addresses: vec![format!("10.0.{}.{}", at / 250, at % 250)], ..Endpoint::default() }
    }

    fn group(port: i32, endpoints: impl IntoIterator<Item = usize>) -> Group {
        let port = json!([{"name": "", "port": port, "protocol": "TCP"}]);
        Group {
            address_type: "IPv4".to_owned(),
            ports: serde_json::from_value(port).unwrap(),
            endpoints: endpoints.into_iter().map(endpoint).collect(),
        }
    }

    fn slice(name: &str, group: &Group) -> Arc<EndpointSlice> {
        let mut slice = blank(group, group.endpoints.clone(), &marks());
        slice.metadata.name = Some(name.to_owned());
        Arc::new(slice)
    }

    fn marks() -> Marks {
        Marks { labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]), annotations: None }
    }

    fn sizes(layout: &Layout) -> (Vec<usize>, Vec<(&str, usize)>, Vec<&str>) {
        let size = |slice: &EndpointSlice| slice.endpoints.as_ref().unwrap().len();
        let named = |slice| (EndpointSlice::name(slice), size(slice));
        (
            layout.create.iter().map(size).collect(),
            layout.replace.iter().map(named).collect(),
            layout.delete.iter().map(String::as_str).collect(),
        )
    }

    trait Named {
        fn name(&self) -> &str;
    }

    impl Named for EndpointSlice {
        fn name(&self) -> &str {
            self.metadata.name.as_deref().unwrap()
        }
    }

    #[test]
    fn a_slice_has_at_most_a_hundred_endpoints() {
        let made = layout(&[], vec![group(80, 0..250)], &marks());
        assert_eq!(sizes(&made), (vec![100, 100, 50], vec![], vec![]));
    }

    #[test]
    fn nothing_changes_where_nothing_has_changed() {
        let slices = [slice("a", &group(80, 0..100)), slice("b", &group(80, 100..120))];
        assert_eq!(layout(&slices, vec![group(80, 0..120)], &marks()), Layout::default());
        let other = Marks { labels: BTreeMap::new(), annotations: None };
        assert_eq!(layout(&slices, vec![group(80, 0..120)], &other).replace.len(), 2);
    }

    #[test]
    fn new_endpoints_go_where_a_change_is_needed_anyway() {
        let slices = [slice("a", &group(80, 0..100)), slice("b", &group(80, 100..120))];
        // One of the first slice is gone: its place is taken.
        let made = layout(&slices, vec![group(80, 1..121)], &marks());
        assert_eq!(sizes(&made), (vec![], vec![("a", 100)], vec![]));
        let made = layout(&slices, vec![group(80, 0..125)], &marks());
        assert_eq!(sizes(&made), (vec![], vec![("b", 25)], vec![]));
        let made = layout(&slices, vec![group(80, 0..210)], &marks());
        assert_eq!(sizes(&made), (vec![90], vec![], vec![]));
    }

    #[test]
    fn a_slice_without_endpoints_is_reused_or_deleted() {
        let slices = [slice("a", &group(80, 0..2)), slice("b", &group(81, 2..3))];
        let made = layout(&slices, vec![group(80, 0..2)], &marks());
        assert_eq!(sizes(&made), (vec![], vec![], vec!["b"]));
        let made = layout(&slices, vec![group(80, 0..2), group(82, 5..6)], &marks());
        assert_eq!(sizes(&made), (vec![], vec![("b", 1)], vec![]));
        assert_eq!(made.replace[0].ports.as_ref().unwrap()[0].port, Some(82));
    }

    #[test]
    fn a_group_without_endpoints_keeps_one_slice() {
        let empty = group(80, []);
        assert_eq!(sizes(&layout(&[], vec![empty.clone()], &marks())), (vec![0], vec![], vec![]));
        let slices = [slice("a", &group(80, 0..1)), slice("b", &group(80, 1..2))];
        let made = layout(&slices, vec![empty.clone()], &marks());
        assert_eq!(sizes(&made), (vec![], vec![("a", 0)], vec!["b"]));
        assert_eq!(layout(&[slice("a", &empty)], vec![empty], &marks()), Layout::default());
    }
}
