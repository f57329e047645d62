//! The Lease on the server.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;

use super::record::{LeaderRecord, LeaseObject, Seen};
use crate::object::ObjectName;
use crate::source::Requests;
use crate::wire::{ApiError, Class};

/// One Lease, as it was last read or written.
#[derive(Debug)]
pub(super) struct LeaseLock {
    requests: Requests,
    name: ObjectName,
    /// Set on the Lease with every write.
    labels: BTreeMap<String, String>,
    last: Option<LeaseObject>,
}

impl LeaseLock {
    pub(super) fn new(requests: Requests, name: ObjectName, labels: BTreeMap<String, String>) -> Self {
        Self { requests, name, labels, last: None }
    }

    /// Reads the Lease; `None` if there is none.
    pub(super) async fn get(&mut self) -> Result<Option<Seen>, ApiError> {
        let found = self.requests.api::<Lease>().get_object(&self.name).await?;
        let lease = found.map(|object| LeaseObject::read(object.json()));
        self.last = lease.transpose().map_err(ApiError::undecodable)?;
        Ok(self.last.as_ref().map(|lease| lease.seen.clone()))
    }

    pub(super) async fn create(&mut self, record: &LeaderRecord) -> Result<Seen, ApiError> {
        let body = LeaseObject::create(&self.name, &self.labels, record);
        let request = self.requests.api::<Lease>().create_request(&self.name, &body)?;
        self.write(request).await
    }

    /// Puts `record` into the Lease as it was last read or written: a conflict if it has changed since.
    pub(super) async fn update(&mut self, record: &LeaderRecord) -> Result<Seen, ApiError> {
        let Some(last) = &self.last else {
            return Err(ApiError::new(
                Class::Invalid,
                format!("the Lease {} was not read before", self.name),
            ));
        };
        let body = last.with(&self.labels, record);
        let request = self.requests.api::<Lease>().replace_request(&self.name, &body)?;
        self.write(request).await
    }

    async fn write(&mut self, request: Request<Vec<u8>>) -> Result<Seen, ApiError> {
        let answer: Bytes = self.requests.send(request).await?;
        let lease = LeaseObject::read(&answer).map_err(ApiError::undecodable)?;
        let seen = lease.seen.clone();
        self.last = Some(lease);
        Ok(seen)
    }

    /// Returns what events are recorded on.
    pub(super) fn reference(&self) -> ObjectReference {
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let seen = self.last.as_ref().map(|lease| &lease.seen);
        ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some(self.name.name().to_owned()),
            namespace: self.name.namespace().map(str::to_owned),
            resource_version: seen.and_then(|seen| text(seen.version.to_string())),
            uid: seen.and_then(|seen| text(seen.uid.clone())),
            field_path: None,
        }
    }
}
