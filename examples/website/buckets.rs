//! The object storage outside the cluster, and a stand-in for it.

use std::collections::BTreeSet;
use std::io;

use parking_lot::Mutex;
use watchkeeper::ObjectName;

/// Object storage with a bucket for each Website. Both calls may be repeated: an answer can get lost.
pub(crate) trait Buckets: Send + Sync + 'static {
    /// Creates the bucket of a Website, if there is none.
    fn ensure(&self, site: &ObjectName) -> impl Future<Output = io::Result<()>> + Send;

    /// Removes the bucket of a Website, if there is one.
    fn remove(&self, site: &ObjectName) -> impl Future<Output = io::Result<()>> + Send;
}

/// Buckets in memory. A real operator would have a client of S3 here.
#[derive(Debug, Default)]
pub(crate) struct InMemory(pub(crate) Mutex<BTreeSet<ObjectName>>);

impl Buckets for InMemory {
    async fn ensure(&self, site: &ObjectName) -> io::Result<()> {
        self.0.lock().insert(site.clone());
        Ok(())
    }

    async fn remove(&self, site: &ObjectName) -> io::Result<()> {
        self.0.lock().remove(site);
        Ok(())
    }
}
