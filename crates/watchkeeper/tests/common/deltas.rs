//! Inputs of queues: objects without a kind, and deltas of them.

use watchkeeper::Object;
use watchkeeper::clock::Generator;
use watchkeeper::queue::{Deleted, Delta, DeltaFifo};

pub(crate) fn obj(name: &str, version: u64) -> Object<()> {
    let json =
        format!(r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

pub(crate) fn deleted(name: &str, version: u64) -> Delta<()> {
    Delta::Deleted(Deleted::Final(obj(name, version)))
}

pub(crate) fn delta_fifo() -> DeltaFifo<()> {
    DeltaFifo::new(&Generator::seeded(1))
}
