//! The two APIs of Events, which share one storage.

use k8s_openapi::api::core::v1::ObjectReference;

/// The API that Events are written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventApi {
    /// `core/v1`: similar events are combined, repetitions counted with one patch each, and floods filtered.
    #[default]
    CoreV1,
    /// `events.k8s.io/v1`: repetitions become a series, which is written at the second event and then from time to
    /// time.
    EventsV1,
}

impl EventApi {
    /// Returns a field selector for the Events about an object, by its name, kind, API version and uid as far as they
    /// are set.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ObjectReference;
    /// # use watchkeeper::record::EventApi;
    /// let pod = ObjectReference { kind: Some("Pod".into()), name: Some("a".into()), ..Default::default() };
    /// assert_eq!(EventApi::CoreV1.field_selector(&pod), "involvedObject.kind=Pod,involvedObject.name=a");
    /// assert_eq!(EventApi::EventsV1.field_selector(&pod), "regarding.kind=Pod,regarding.name=a");
    /// ```
    pub fn field_selector(self, object: &ObjectReference) -> String {
        let prefix = match self {
            Self::CoreV1 => "involvedObject",
            Self::EventsV1 => "regarding",
        };
        let fields = [
            ("apiVersion", &object.api_version),
            ("kind", &object.kind),
            ("name", &object.name),
            ("uid", &object.uid),
        ];
        let given = fields.iter().filter_map(|(field, value)| Some((field, value.as_deref()?)));
        let terms: Vec<_> = given
            .filter(|(_, value)| !value.is_empty())
            .map(|(field, value)| format!("{prefix}.{field}={value}"))
            .collect();
        terms.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // client-go: TestGetFieldSelector
    #[test]
    fn a_selector_names_what_is_known_of_the_object_under_the_names_of_its_api() {
        let some = |text: &str| Some(text.to_owned());
        let mut object = ObjectReference {
            api_version: some("v1"),
            kind: some("Pod"),
            name: some("a"),
            uid: some("u"),
            namespace: some("ns"),
            ..ObjectReference::default()
        };
        assert_eq!(
            EventApi::CoreV1.field_selector(&object),
            "involvedObject.apiVersion=v1,involvedObject.kind=Pod,involvedObject.name=a,involvedObject.uid=u"
        );
        object.uid = some("");
        object.api_version = None;
        assert_eq!(EventApi::EventsV1.field_selector(&object), "regarding.kind=Pod,regarding.name=a");
        assert_eq!(EventApi::EventsV1.field_selector(&ObjectReference::default()), "");
    }
}
