//! Small Pods: only the fields that a running Pod needs, without `managedFields`, so that a cache keeps all of it.

use watchkeeper::clock::Generator;

use super::super::pod::{CHECKPOINT, Draft, Part, TRACK, time};
use super::super::world::NamedPod;
use super::draw::{hex, letters, unique_suffix, word};

/// Pod `index` of `count`, of about 1,000 bytes, which follows from the seed and the index alone.
pub(crate) fn pod(seed: u64, index: u32, count: u32) -> NamedPod {
    let chance = Generator::seeded(seed ^ u64::from(index));
    let (app, step) = (word(&chance), 9_000_000 / u64::from(count.max(1)));
    let namespace = format!("team-{}", chance.below(u64::from(count) / 250 + 4));
    let owner = format!("{app}-{}", letters(&chance, 8));
    let name = format!("{owner}-{}", unique_suffix(index));
    let created = time(-(chance.below(9_000_000) as i64)).to_string();

    let mut draft = Draft::default();
    draft.put(format_args!(
        r#"{{"metadata":{{"name":"{name}","generateName":"{owner}-","namespace":"{namespace}","uid":""#
    ));
    draft.slot(Part::Uid, &chance.uuid());
    draft.raw(r#"","resourceVersion":""#);
    draft.slot(Part::ResourceVersion, &(1_000_000 + u64::from(index) * step).to_string());
    draft.raw(r#"","creationTimestamp":""#);
    draft.slot(Part::Created, &created);
    draft.put(format_args!(r#"","labels":{{"app":"{app}","{TRACK}":""#));
    draft.slot(Part::Track, "stable");
    draft.put(format_args!(r#""}},"annotations":{{"{CHECKPOINT}":""#));
    draft.slot(Part::Checkpoint, &hex(&chance, 20));
    draft.put(format_args!(
        r#""}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}","uid":"{}","controller":true,"blockOwnerDeletion":true}}]}},"#,
        chance.uuid()
    ));
    draft.put(format_args!(
        r#""spec":{{"containers":[{{"name":"main","image":"registry.example.com/{app}:{}.{}","resources":{{}},"imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always","nodeName":"node-{}"}},"#,
        chance.below(9),
        chance.below(40),
        chance.below(u64::from(count) / 40 + 3)
    ));
    draft.raw(r#""status":{"phase":"Running","conditions":[{"type":"Ready","status":""#);
    draft.slot(Part::Ready, "True");
    draft.raw(r#"","lastTransitionTime":""#);
    draft.slot(Part::Transition, &created);
    draft.put(format_args!(
        r#""}}],"podIP":"10.{}.{}.{}","startTime":""#,
        1 + chance.below(250),
        chance.below(256),
        1 + chance.below(254)
    ));
    draft.slot(Part::Created, &created);
    draft.raw(r#"","containerStatuses":[{"name":"main","ready":"#);
    draft.slot(Part::ContainerReady, "true");
    draft.raw(r#","restartCount":"#);
    draft.slot(Part::Restarts, "0");
    draft.put(format_args!(
        r#","image":"{app}","imageID":"","containerID":"containerd://{}"}}]}}}}"#,
        hex(&chance, 32)
    ));
    (format!("{namespace}/{name}"), draft.finish())
}
