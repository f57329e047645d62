//! What a Lease says about who leads, in the form that client-go's elector reads and writes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::object::{ObjectName, ResourceVersion};

/// Who holds a lease, as its `spec` says. Missing fields of a Lease are empty or zero.
///
/// Only [`holder`](Self::holder) and [`lease_seconds`](Self::lease_seconds) decide anything. The times are those of the holder's
/// wall clock, which may be wrong: nobody compares them with their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderRecord {
    /// The identity of the leader; empty if it has released the lease.
    pub holder: String,
    /// How long others wait after the last renewal.
    pub lease_seconds: i32,
    /// When the holder took over.
    pub acquired: Option<Timestamp>,
    /// When the holder last renewed.
    pub renewed: Option<Timestamp>,
    /// How often the lease has changed hands.
    pub transitions: i32,
    /// The strategy of a coordinated election, which the control plane holds.
    pub strategy: String,
    /// Who is to lead after the holder, in a coordinated election.
    pub preferred_holder: String,
}

/// The fields of a `spec`; what is missing or null has its default.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<MicroTime>,
    renew_time: Option<MicroTime>,
    lease_transitions: Option<i32>,
    strategy: Option<String>,
    preferred_holder: Option<String>,
}

impl LeaderRecord {
    /// Reads the `spec` of a Lease; one that cannot be read is an error, so that nobody takes it for a free one.
    pub fn from_spec(spec: &Value) -> Result<Self, serde_json::Error> {
        let spec = if spec.is_null() { Spec::default() } else { Spec::deserialize(spec)? };
        Ok(Self {
            holder: spec.holder_identity.unwrap_or_default(),
            lease_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
            strategy: spec.strategy.unwrap_or_default(),
            preferred_holder: spec.preferred_holder.unwrap_or_default(),
        })
    }

    /// Returns the `spec` of a Lease. As in client-go, the five classic fields are never null, and the other two are there only if
    /// they are set.
    pub fn to_spec(&self) -> Value {
        let time = |time: Option<Timestamp>| json!(MicroTime(time.unwrap_or(Timestamp::UNIX_EPOCH)));
        let mut spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.lease_seconds,
            "acquireTime": time(self.acquired),
            "renewTime": time(self.renewed),
            "leaseTransitions": self.transitions,
        });
        for (field, value) in [("strategy", &self.strategy), ("preferredHolder", &self.preferred_holder)] {
            if !value.is_empty() {
                spec[field] = value.as_str().into();
            }
        }
        spec
    }

    /// Returns how long others wait; `None` if the record does not say.
    pub(super) fn duration(&self) -> Option<Duration> {
        u64::try_from(self.lease_seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
}

/// Returns the wall time to the microsecond, as a Lease keeps it.
pub(super) fn to_microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// A Lease as the server returned it. Everything in it that is not about leading stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeaseObject {
    json: Map<String, Value>,
    pub(super) seen: Seen,
}

/// What an elector needs to know of a Lease that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) record: LeaderRecord,
    pub(super) version: ResourceVersion,
    pub(super) uid: String,
}

/// Why an answer is no Lease that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error("the Lease is no JSON object")]
    Json(#[from] serde_json::Error),
}

impl LeaseObject {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, LeaseError> {
        let json: Map<String, Value> = serde_json::from_slice(bytes)?;
        let text = |field: &str| {
            let metadata = json.get("metadata").and_then(|metadata| metadata.get(field));
            metadata.and_then(Value::as_str).unwrap_or_default()
        };
        let record = LeaderRecord::from_spec(json.get("spec").unwrap_or(&Value::Null))?;
        let seen = Seen { record, version: text("resourceVersion").into(), uid: text("uid").to_owned() };
        Ok(Self { json, seen })
    }

    /// Returns the body of a Lease to create.
    pub(super) fn create(
        name: &ObjectName,
        labels: &BTreeMap<String, String>,
        record: &LeaderRecord,
    ) -> Value {
        let mut metadata = json!({"name": name.name(), "namespace": name.namespace()});
        if !labels.is_empty() {
            metadata["labels"] = json!(labels);
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": record.to_spec(),
        })
    }

    /// Returns the body that puts `record` into this Lease, if nobody has changed it meanwhile. Labels of others are kept, own ones
    /// are set again.
    pub(super) fn with(&self, labels: &BTreeMap<String, String>, record: &LeaderRecord) -> Value {
        let mut json = self.json.clone();
        json.insert("spec".to_owned(), record.to_spec());
        if !labels.is_empty()
            && let Some(Value::Object(metadata)) = json.get_mut("metadata")
        {
            let all = metadata.entry("labels").or_insert_with(|| json!({}));
            if all.is_null() {
                *all = json!({});
            }
            for (key, value) in labels {
                all[key] = value.as_str().into();
            }
        }
        Value::Object(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LeaderRecord {
        LeaderRecord {
            holder: "host_1".to_owned(),
            lease_seconds: 15,
            acquired: Some("2026-01-01T00:00:00.000001Z".parse().unwrap()),
            renewed: Some("2026-01-01T00:00:02.5Z".parse().unwrap()),
            transitions: 3,
            ..LeaderRecord::default()
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn lease(metadata: &Value) -> LeaseObject {
        let lease = json!({"metadata": metadata, "spec": record().to_spec(), "other": {"kept": 1}});
        LeaseObject::read(lease.to_string().as_bytes()).unwrap()
    }

    // client-go: TestLeaseSpecToLeaderElectionRecordRoundTrip, TestLeaseConversion, TestGet
    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let coordinated = LeaderRecord {
            strategy: "OldestEmulationVersion".to_owned(),
            preferred_holder: "host_2".to_owned(),
            ..record()
        };
        for record in [record(), coordinated] {
            assert_eq!(LeaderRecord::from_spec(&record.to_spec()).unwrap(), record);
        }
    }

    #[test]
    fn a_spec_has_the_form_that_client_go_writes() {
        let expected = json!({
            "holderIdentity": "host_1",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000001Z",
            "renewTime": "2026-01-01T00:00:02.500000Z",
            "leaseTransitions": 3,
        });
        assert_eq!(record().to_spec(), expected);
        let empty = LeaderRecord::default().to_spec();
        assert!(empty.as_object().unwrap().values().all(|value| !value.is_null()), "{empty}");
        assert_eq!(empty.as_object().unwrap().len(), 5);
        assert_eq!(empty["holderIdentity"], "");
    }

    #[test]
    fn missing_fields_are_empty_and_a_spec_of_another_form_is_an_error() {
        for spec in [json!(null), json!({}), json!({"holderIdentity": null, "renewTime": null, "new": 1})] {
            assert_eq!(LeaderRecord::from_spec(&spec).unwrap(), LeaderRecord::default(), "{spec}");
        }
        for spec in [json!("none"), json!({"holderIdentity": 1}), json!({"leaseDurationSeconds": "15"})] {
            assert!(LeaderRecord::from_spec(&spec).is_err(), "{spec}");
        }
        assert!(LeaseObject::read(b"{\"spec\":").is_err());
    }

    #[test]
    fn a_duration_that_is_not_positive_says_nothing() {
        let duration = |lease_seconds| LeaderRecord { lease_seconds, ..record() }.duration();
        assert_eq!(duration(15), Some(Duration::from_secs(15)));
        assert_eq!((duration(0), duration(-1)), (None, None));
    }

    #[test]
    fn an_update_changes_the_spec_alone_and_only_the_version_that_was_read() {
        let metadata = json!({"name": "l", "resourceVersion": "7", "uid": "u", "annotations": {"a": "b"}});
        let lease = lease(&metadata);
        assert_eq!((lease.seen.version.clone(), &*lease.seen.uid), (7.into(), "u"));
        let released = LeaderRecord { holder: String::new(), ..record() };
        let body = lease.with(&BTreeMap::new(), &released);
        assert_eq!(body["metadata"], metadata);
        assert_eq!(body["other"], json!({"kept": 1}));
        assert_eq!(body["spec"], released.to_spec());
    }

    // client-go: TestLabelUpdate, TestUpdateWithNilLabelsOnLease, TestUpdateWithNilLabelsOnLeaseLock
    #[test]
    fn own_labels_are_set_again_and_those_of_others_are_kept() {
        let own = labels(&[("component", "mine")]);
        let body =
            |metadata: Value, own: &_| lease(&metadata).with(own, &record())["metadata"]["labels"].clone();
        let both = json!({"component": "changed", "team": "theirs"});
        assert_eq!(body(json!({"labels": both}), &own), json!({"component": "mine", "team": "theirs"}));
        assert_eq!(body(json!({}), &own), json!({"component": "mine"}));
        assert_eq!(body(json!({"labels": null}), &own), json!({"component": "mine"}));
        assert_eq!(body(json!({"labels": both}), &BTreeMap::new()), both);
        assert_eq!(body(json!({}), &BTreeMap::new()), Value::Null);
        let name = ObjectName::namespaced("ns", "l");
        let created = LeaseObject::create(&name, &own, &record());
        assert_eq!(
            created["metadata"],
            json!({"name": "l", "namespace": "ns", "labels": {"component": "mine"}})
        );
        assert_eq!(created["spec"], record().to_spec());
    }

    #[test]
    fn times_are_kept_to_the_microsecond() {
        let time: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
        assert_eq!(to_microseconds(time).to_string(), "2026-01-01T00:00:00.123456Z");
    }
}
