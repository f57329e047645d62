//! Making a controller look again, to tell what it does not know from what it was not told to look at.

use std::time::Duration;

use serde_json::Value;

use super::Net;

/// How long a controller may take to set things right when it looks again.
const PATIENCE: Duration = Duration::from_secs(120);

impl Net {
    /// Changes an annotation of every object of the kinds that the controller uses, and keeps whether `is_right` holds then.
    pub(crate) async fn nudge(&self, is_right: impl AsyncFn() -> bool) {
        self.0.trace.note("every object is changed, so that the controller looks again");
        for path in self.paths() {
            self.touch(&path).await;
        }
        let deadline = self.0.clock.now() + PATIENCE;
        self.0.clock.sleep(Duration::from_secs(1)).await;
        self.quiet(Duration::from_secs(10), deadline).await;
        let is_right = is_right().await;
        self.0.state.lock().is_mended_by_nudge = is_right;
    }

    pub(crate) fn is_mended_by_nudge(&self) -> bool {
        self.0.state.lock().is_mended_by_nudge
    }

    /// The paths of all objects of the kinds that replicas have used.
    fn paths(&self) -> Vec<String> {
        let used = self.0.state.lock().resources.clone();
        let objects = self.0.server.objects();
        objects.iter().filter_map(|(resource, json)| path(resource, json, &used)).collect()
    }
}

/// The path of an object, if its resource is among those used.
fn path(resource: &str, json: &[u8], used: &[String]) -> Option<String> {
    let (group, plural) = resource.split_once('/')?;
    let plural = plural.split('/').next()?;
    let dotted = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    if !used.contains(&dotted) {
        return None;
    }
    let object: Value = serde_json::from_slice(json).ok()?;
    let version = object["apiVersion"].as_str()?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let name = object["metadata"]["name"].as_str()?;
    Some(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("/{root}/{version}/{plural}/{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_used_kinds_have_a_path() {
        let used = ["pods".to_owned(), "sites.example.dev".to_owned()];
        let pod = br#"{"apiVersion": "v1", "metadata": {"name": "a", "namespace": "d"}}"#;
        let site = br#"{"apiVersion": "example.dev/v1", "metadata": {"name": "a"}}"#;
        assert_eq!(path("/pods", pod, &used).as_deref(), Some("/api/v1/namespaces/d/pods/a"));
        let found = path("example.dev/sites/custom", site, &used);
        assert_eq!(found.as_deref(), Some("/apis/example.dev/v1/sites/a"));
        assert_eq!(path("/secrets", pod, &used), None);
    }
}
