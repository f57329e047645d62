use super::*;

fn pod() -> ObjectRef {
    ObjectRef::new("Pod", ObjectName::namespaced("ns", "a"))
}

#[test]
fn every_trigger_is_part_of_a_sentence() {
    let itself = |reason| Trigger::itself(reason, &"7".into()).to_string();
    assert_eq!(itself(Reason::Changed), "the object changed (version 7)");
    assert_eq!(itself(Reason::Resync), "the object was resynced (version 7)");
    let related = |reason, version: &str| Trigger::related(Relation::Owner, pod(), reason, &version.into());
    assert_eq!(related(Reason::InitialList, "7").to_string(), "Pod ns/a was in the initial list (version 7)");
    assert_eq!(related(Reason::Deleted, "").to_string(), "Pod ns/a was deleted");
    assert_eq!(related(Reason::Changed, "opaque").to_string(), "Pod ns/a changed");
    assert_eq!(Trigger::Retry.to_string(), "a retry was due");
    assert_eq!(Trigger::Requeue.to_string(), "a delayed add was due");
    assert_eq!(Trigger::OwnWrites.to_string(), "it waited for its own writes");
    assert_eq!(Trigger::External.to_string(), "it was added from outside");
    assert_eq!(format!("{:?}", pod()), "ObjectRef(Pod ns/a)");
}

#[test]
fn a_trigger_counts_by_relation_unless_nothing_changed() {
    let cause = |relation, reason| Trigger::related(relation, pod(), reason, &"7".into()).cause();
    assert_eq!(Trigger::itself(Reason::Changed, &"7".into()).cause(), Cause::Itself);
    assert_eq!(Trigger::itself(Reason::InitialList, &"7".into()).cause(), Cause::InitialList);
    assert_eq!(cause(Relation::Owner, Reason::Deleted), Cause::Owner);
    assert_eq!(cause(Relation::Mapping, Reason::Changed), Cause::Mapping);
    assert_eq!(cause(Relation::Mapping, Reason::Resync), Cause::Resync);
    let others = [Trigger::Retry, Trigger::Requeue, Trigger::OwnWrites, Trigger::External];
    assert_eq!(
        others.map(|trigger| trigger.cause().as_str()),
        ["retry", "requeue", "own_writes", "external"]
    );
    for (number, cause) in Cause::ALL.into_iter().enumerate() {
        assert_eq!(cause as usize, number);
    }
}

#[test]
fn triggers_are_alike_that_differ_in_the_version_only() {
    let changed = |name: &str, version: &str| {
        let object = ObjectRef::new("Pod", ObjectName::namespaced("ns", name));
        Trigger::related(Relation::Owner, object, Reason::Changed, &version.into())
    };
    assert!(changed("a", "1").is_like(&changed("a", "2")));
    assert!(!changed("a", "1").is_like(&changed("b", "1")));
    assert!(!changed("a", "1").is_like(&Trigger::related(
        Relation::Owner,
        pod(),
        Reason::Deleted,
        &"1".into()
    )));
    assert!(!changed("a", "1").is_like(&Trigger::related(
        Relation::Mapping,
        pod(),
        Reason::Changed,
        &"1".into()
    )));
    assert!(Trigger::Retry.is_like(&Trigger::Retry) && !Trigger::Retry.is_like(&Trigger::Requeue));
}

#[test]
fn a_trigger_is_small() {
    assert_eq!(size_of::<Trigger>(), 56);
}
