//! What may have been meant by a name that is not known.

/// The number of names that are suggested if none is near.
const ALL: usize = 20;

/// Returns the nearest of `names`, or all of them if none is near.
pub(super) fn nearest(wrong: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let wrong: Vec<char> = wrong.to_lowercase().chars().take(64).collect();
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort();
    names.dedup();
    let distances = names.iter().map(|name| (distance(&wrong, &name.to_lowercase()), name.clone()));
    let near = distances.filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(2)).min();
    match near {
        Some((_, name)) => vec![name],
        None => {
            names.truncate(ALL);
            names
        }
    }
}

/// Returns the number of signs to insert, delete, replace or swap with their neighbour.
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, sign) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let mut least =
                (last[column] + usize::from(sign != other)).min(last[column + 1] + 1).min(next[column] + 1);
            let is_swapped = row > 0 && column > 0 && *sign == to[column - 1] && from[row - 1] == *other;
            if is_swapped {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggest(wrong: &str) -> Vec<String> {
        nearest(wrong, ["Deployment", "ConfigMap", "Foo"].map(str::to_owned))
    }

    #[test]
    fn the_nearest_name_is_suggested_and_all_if_none_is_near() {
        assert_eq!(suggest("Deploymnet"), ["Deployment"]);
        assert_eq!(suggest("configmaps"), ["ConfigMap"]);
        assert_eq!(suggest("fo"), ["Foo"]);
        assert_eq!(suggest("CertificateRequest"), ["ConfigMap", "Deployment", "Foo"]);
        assert_eq!(suggest(&"x".repeat(100_000)).len(), 3, "it is bounded");
    }
}
