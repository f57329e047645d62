//! The elector step by step, with every case of upstream's tests.

use std::time::Duration;

use super::*;
use crate::object::ResourceVersion;

const SECOND: Duration = Duration::from_secs(1);

/// A moment so many milliseconds after boot.
fn at(milliseconds: u64) -> Now {
    Now {
        boot: boot(milliseconds),
        wall: Timestamp::from_millisecond(1_767_225_600_000 + i64::try_from(milliseconds).unwrap()).unwrap(),
        chance: 0.0,
    }
}

fn boot(milliseconds: u64) -> BootTime {
    BootTime::after_boot(Duration::from_millis(milliseconds))
}

fn elector() -> Elector {
    Elector::new("me", LeaseTimes::default())
}

fn seen(version: u64, holder: &str, transitions: i32) -> Seen {
    let record = LeaderRecord {
        holder: holder.to_owned(),
        lease_seconds: 15,
        acquired: Some(at(0).wall),
        renewed: Some(at(version).wall),
        transitions,
        ..LeaderRecord::default()
    };
    Seen { record, version: version.into(), uid: "u".to_owned() }
}

fn stored(record: &LeaderRecord, version: u64) -> Seen {
    Seen { record: record.clone(), version: version.into(), uid: "u".to_owned() }
}

/// Asks for a step that must be an update.
fn update(elector: &mut Elector, now: Now) -> LeaderRecord {
    match elector.step(now, true) {
        Step::Update(record) => record,
        other => panic!("expected an update, got {other:?}"),
    }
}

/// Makes the elector lead from `now` on, with a Lease that it created in version 1.
fn leader(now: u64) -> Elector {
    let mut elector = elector();
    elector.read(None, at(now));
    let Step::Create(record) = elector.step(at(now), true) else { panic!("expected a create") };
    elector.wrote(stored(&record, 1), boot(now), at(now));
    elector
}

// client-go: TestTryAcquireOrRenewLeases/acquire_from_no_object
#[test]
fn a_lease_that_does_not_exist_is_created_with_no_transitions() {
    let mut elector = elector();
    assert_eq!(elector.step(at(0), true), Step::Get);
    elector.read(None, at(10));
    let Step::Create(record) = elector.step(at(10), true) else { panic!("expected a create") };
    assert_eq!((&*record.holder, record.transitions, record.lease_seconds), ("me", 0, 15));
    assert_eq!((record.acquired, record.renewed), (Some(at(10).wall), Some(at(10).wall)));
    elector.wrote(stored(&record, 1), boot(10), at(30));
    assert_eq!(elector.leads_until(), Some(boot(10_010)), "from when it was sent, not from the answer");
    assert_eq!(elector.holder(), "me");
    assert_eq!(elector.step(at(30), true), Step::Wait(boot(2_030)));
}

// client-go: TestTryAcquireOrRenewLeases/acquire_from_object_without_annotations
// client-go: TestTryAcquireOrRenewLeases/acquire_from_unled_object
// client-go: TestTryAcquireOrRenewLeases/acquire_from_empty_led_object,_acked_object
#[test]
fn a_lease_without_a_holder_is_taken_at_once() {
    for transitions in [0, 4] {
        let mut elector = elector();
        elector.read(Some(seen(7, "", transitions)), at(10));
        let record = update(&mut elector, at(10));
        assert_eq!((&*record.holder, record.transitions), ("me", transitions + 1));
    }
}

// client-go: TestTryAcquireOrRenewLeases/don't_acquire_from_led_object,_acked
// client-go: TestTryAcquireOrRenewLeases/acquire_from_led_object_with_the_lease_duration_seconds
// client-go: TestTryAcquireOrRenewLeases/acquire_from_led,_unacked_object
#[test]
fn a_lease_that_another_holds_is_taken_when_it_was_seen_unchanged_for_its_duration() {
    let mut elector = elector();
    elector.read(Some(seen(7, "other", 2)), at(1_000));
    assert_eq!(elector.holder(), "other");
    assert_eq!(elector.step(at(1_000), true), Step::Wait(boot(16_000)));
    assert_eq!(elector.step(at(15_999), true), Step::Wait(boot(16_000)));
    let record = update(&mut elector, at(16_000));
    assert_eq!((&*record.holder, record.transitions), ("me", 3));
    // The duration is that of the holder, not one's own.
    let mut short = self::elector();
    short.read(
        Some(Seen {
            record: LeaderRecord { lease_seconds: 3, ..seen(7, "other", 2).record },
            ..seen(7, "", 0)
        }),
        at(0),
    );
    assert_eq!(short.step(at(0), true), Step::Wait(boot(3_000)));
    assert!(matches!(short.step(at(3_000), true), Step::Update(_)));
}

#[test]
fn a_record_without_a_duration_counts_for_as_long_as_an_own_one() {
    for lease_seconds in [0, -1] {
        let mut elector = elector();
        let record = LeaderRecord { lease_seconds, ..seen(7, "other", 0).record };
        elector.read(Some(stored(&record, 7)), at(0));
        assert_eq!(elector.step(at(0), true), Step::Wait(boot(15_000)));
    }
}

#[test]
fn the_wall_clocks_of_others_do_not_matter() {
    for hours in [-1_000_000, 1_000_000_i64] {
        let mut elector = elector();
        let wrong = at(0).wall + jiff::SignedDuration::from_hours(hours / 100);
        let record =
            LeaderRecord { acquired: Some(wrong), renewed: Some(wrong), ..seen(7, "other", 0).record };
        elector.read(Some(stored(&record, 7)), at(0));
        assert_eq!(elector.step(at(0), true), Step::Wait(boot(15_000)));
    }
}

#[test]
fn each_change_that_is_seen_starts_the_wait_again() {
    let mut elector = elector();
    elector.read(Some(seen(7, "other", 0)), at(0));
    elector.watched(Some(seen(8, "other", 0)), at(9_000));
    assert_eq!(elector.step(at(9_000), true), Step::Wait(boot(24_000)));
    // The same again, from a watch or a read, is no change.
    elector.watched(Some(seen(8, "other", 0)), at(12_000));
    elector.read(Some(seen(8, "other", 0)), at(13_000));
    assert_eq!(elector.step(at(13_000), true), Step::Wait(boot(24_000)));
    // A renewal less than a second after the last one is one.
    elector.watched(Some(seen(9, "other", 0)), at(13_100));
    assert_eq!(elector.step(at(13_100), true), Step::Wait(boot(28_100)));
    // Another Lease of the same version is one, too; and so is other content of the same version, after a backup was restored.
    elector.read(Some(Seen { uid: "v".to_owned(), ..seen(9, "other", 0) }), at(14_000));
    assert_eq!(elector.step(at(14_000), true), Step::Wait(boot(29_000)));
    let again = LeaderRecord { renewed: Some(at(3).wall), ..seen(9, "other", 0).record };
    elector.read(Some(Seen { uid: "v".to_owned(), ..stored(&again, 9) }), at(15_000));
    assert_eq!(elector.step(at(15_000), true), Step::Wait(boot(30_000)));
}

#[test]
fn a_watch_that_lags_behind_a_read_is_ignored() {
    let mut elector = elector();
    elector.read(Some(seen(9, "other", 0)), at(0));
    elector.watched(Some(seen(8, "", 0)), at(1_000));
    assert_eq!(elector.holder(), "other");
    assert_eq!(elector.step(at(1_000), true), Step::Wait(boot(15_000)));
}

#[test]
fn without_a_watch_the_lease_is_read_again_and_again() {
    let mut elector = elector();
    elector.read(Some(seen(7, "other", 0)), Now { chance: 0.5, ..at(0) });
    assert_eq!(elector.step(at(0), false), Step::Wait(boot(3_200)));
    assert_eq!(elector.step(at(3_200), false), Step::Get);
    elector.read_failed(at(3_300));
    assert_eq!(elector.step(at(3_300), false), Step::Wait(boot(5_300)));
    assert_eq!(elector.step(at(3_300), true), Step::Wait(boot(15_000)), "the watch is back");
    assert_eq!(elector.step(at(5_300), false), Step::Get);
    elector.read(Some(seen(7, "other", 0)), Now { chance: 0.99, ..at(13_000) });
    assert_eq!(elector.step(at(13_000), false), Step::Wait(boot(15_000)), "not after the lease is free");
}

#[test]
fn a_watch_that_shows_what_was_read_asks_for_no_other_read_and_one_that_shows_another_lease_does() {
    let mut elector = elector();
    elector.read(Some(seen(9, "", 0)), at(0));
    elector.watched(Some(seen(9, "", 0)), at(10));
    assert!(matches!(elector.step(at(10), true), Step::Update(_)));
    elector.watched(Some(Seen { uid: "v".to_owned(), ..seen(8, "other", 0) }), at(20));
    assert_eq!(elector.step(at(20), true), Step::Wait(boot(15_020)));
}

#[test]
fn nothing_is_written_on_the_word_of_a_watch_alone() {
    let mut elector = elector();
    elector.read(Some(seen(7, "other", 0)), at(0));
    elector.watched(Some(seen(8, "", 0)), at(3_000));
    assert_eq!(elector.step(at(3_000), true), Step::Get);
    elector.read(Some(seen(8, "", 0)), at(3_010));
    assert!(matches!(elector.step(at(3_010), true), Step::Update(_)));
}

#[test]
fn a_candidate_that_was_not_fast_enough_looks_again_after_a_pause() {
    let mut elector = elector();
    elector.read(Some(seen(7, "", 0)), at(0));
    update(&mut elector, at(0));
    elector.write_failed(Now { chance: 0.5, ..at(20) });
    assert_eq!(elector.leads_until(), None);
    assert_eq!(elector.step(at(20), true), Step::Wait(boot(3_220)));
    assert_eq!(elector.step(at(3_220), true), Step::Get);
    elector.read(Some(seen(8, "winner", 1)), at(3_230));
    assert_eq!(elector.step(at(3_230), true), Step::Wait(boot(18_230)));
}

// client-go: TestTryAcquireOrRenewLeases/renew_already_acquired_object
#[test]
fn a_leader_renews_with_one_write_and_keeps_when_it_began_and_the_transitions() {
    let mut elector = elector();
    elector.read(Some(seen(7, "", 4)), at(0));
    let acquired = update(&mut elector, at(0));
    elector.wrote(stored(&acquired, 8), boot(0), at(5));
    let renewed = update(&mut elector, at(2_005));
    assert_eq!((renewed.transitions, renewed.acquired), (5, acquired.acquired));
    assert_eq!(renewed.renewed, Some(at(2_005).wall));
    elector.wrote(stored(&renewed, 9), boot(2_005), at(2_010));
    assert_eq!((elector.leads_until(), elector.renewed()), (Some(boot(12_005)), Some(boot(2_005))));
    assert_eq!(elector.slow_paths(), 0);
}

// client-go: TestFastPathLeaderElection
#[test]
fn a_renewal_that_fails_is_followed_by_a_read_and_a_write_and_then_by_one_write_again() {
    let mut elector = leader(0);
    update(&mut elector, at(2_000));
    elector.write_failed(at(2_010));
    assert_eq!(elector.step(at(2_010), true), Step::Get);
    let fetched = stored(&LeaderRecord { acquired: Some(at(0).wall), ..seen(2, "me", 0).record }, 2);
    elector.read(Some(fetched), at(2_020));
    let record = update(&mut elector, at(2_020));
    elector.wrote(stored(&record, 3), boot(2_020), at(2_030));
    assert_eq!(elector.slow_paths(), 1);
    assert_eq!(elector.step(at(2_030), true), Step::Wait(boot(4_030)));
    update(&mut elector, at(4_030));
}

#[test]
fn a_server_that_refuses_renewals_is_asked_every_retry_period_until_the_deadline() {
    let mut elector = leader(0);
    update(&mut elector, at(2_000));
    elector.write_failed(at(2_000));
    let mut now = 2_000;
    while now < 10_000 {
        assert_eq!(elector.step(at(now), true), Step::Get, "at {now}");
        elector.read(Some(seen(1, "me", 0)), at(now));
        update(&mut elector, at(now));
        elector.write_failed(at(now));
        now += 2_000;
        assert_eq!(elector.step(at(now - 1_999), true), Step::Wait(boot(now)));
    }
    assert_eq!(elector.step(at(now), true), Step::Stop(Loss::NotRenewed));
}

#[test]
fn a_leader_stops_a_renew_deadline_after_it_sent_its_last_good_renewal() {
    let mut elector = leader(0);
    update(&mut elector, at(2_000));
    elector.write_failed(at(6_999));
    elector.read_failed(at(9_000));
    assert_eq!(elector.step(at(9_000), true), Step::Wait(boot(10_000)), "not until the next try at 11 s");
    assert_eq!(elector.step(at(10_000), true), Step::Stop(Loss::NotRenewed));
    // Also when it comes late to the decision, such as after a suspend, whatever else there is to do.
    assert_eq!(leader(0).step(at(70_000), true), Step::Stop(Loss::NotRenewed));
}

#[test]
fn a_renewal_that_is_answered_late_counts_from_when_it_was_sent() {
    let mut elector = leader(0);
    let record = update(&mut elector, at(2_000));
    elector.wrote(stored(&record, 2), boot(2_000), at(6_000));
    assert_eq!(elector.leads_until(), Some(boot(12_000)));
    let record = update(&mut elector, at(11_000));
    elector.wrote(stored(&record, 3), boot(11_000), at(21_500));
    assert_eq!(elector.step(at(21_500), true), Step::Stop(Loss::NotRenewed));
}

#[test]
fn a_lease_that_is_acquired_too_late_is_renewed_before_leading() {
    let mut elector = elector();
    elector.read(None, at(0));
    let Step::Create(record) = elector.step(at(0), true) else { panic!("expected a create") };
    elector.wrote(stored(&record, 1), boot(0), at(10_000));
    assert_eq!(elector.leads_until(), None);
    let renewed = update(&mut elector, at(10_000));
    assert_eq!((renewed.acquired, renewed.transitions), (record.acquired, 0));
    elector.wrote(stored(&renewed, 2), boot(10_000), at(10_001));
    assert_eq!(elector.leads_until(), Some(boot(20_000)));
}

#[test]
fn an_acquisition_whose_answer_was_lost_is_recognized_and_renewed() {
    let mut elector = elector();
    elector.read(Some(seen(7, "", 0)), at(0));
    let sent = update(&mut elector, at(0));
    elector.write_failed(at(5_000));
    elector.watched(Some(stored(&sent, 8)), at(5_100));
    assert_eq!(elector.step(at(5_100), true), Step::Get);
    elector.read(Some(stored(&sent, 8)), at(5_110));
    let renewed = update(&mut elector, at(5_110));
    assert_eq!((renewed.acquired, renewed.transitions), (sent.acquired, 1));
}

#[test]
fn a_candidate_may_hold_the_lease_from_its_first_write_until_it_sees_that_another_does() {
    let mut elector = elector();
    elector.read(Some(seen(7, "", 0)), at(0));
    assert!(!elector.may_hold());
    update(&mut elector, at(0));
    assert!(elector.may_hold(), "the answer may be lost");
    elector.write_failed(at(5_000));
    elector.read(Some(seen(7, "", 0)), at(7_000));
    assert!(elector.may_hold(), "the write may be under way");
    elector.read(Some(seen(8, "other", 1)), at(9_000));
    assert!(!elector.may_hold());
}

#[test]
fn a_record_of_another_process_with_the_same_identity_is_not_an_own_one() {
    let mut elector = elector();
    elector.read(Some(seen(7, "me", 0)), at(500));
    assert_eq!(elector.step(at(500), true), Step::Wait(boot(15_500)));
    let mut leader = leader(1);
    update(&mut leader, at(2_001));
    leader.write_failed(at(2_001));
    leader.read(Some(seen(7, "me", 0)), at(2_010));
    assert_eq!(leader.step(at(2_010), true), Step::Stop(Loss::TakenBy("me".to_owned())));
}

#[test]
fn a_leader_that_sees_another_stops_at_once() {
    let mut elector = leader(0);
    update(&mut elector, at(2_000));
    elector.write_failed(at(2_010));
    elector.read(Some(seen(9, "other", 1)), at(2_020));
    assert_eq!(elector.step(at(2_020), true), Step::Stop(Loss::TakenBy("other".to_owned())));
}

#[test]
fn a_leader_whose_lease_was_deleted_creates_it_again_as_it_was() {
    let mut elector = elector();
    elector.read(Some(seen(7, "", 4)), at(0));
    let acquired = update(&mut elector, at(0));
    elector.wrote(stored(&acquired, 8), boot(0), at(5));
    update(&mut elector, at(2_005));
    elector.write_failed(at(2_010));
    elector.read(None, at(2_020));
    let Step::Create(record) = elector.step(at(2_020), true) else { panic!("expected a create") };
    assert_eq!((record.acquired, record.transitions), (acquired.acquired, 5));
    elector.wrote(Seen { uid: "v".to_owned(), ..stored(&record, 9) }, boot(2_020), at(2_030));
    assert_eq!(elector.leads_until(), Some(boot(12_020)));
}

#[test]
fn a_leader_whose_lease_was_emptied_takes_it_again() {
    let mut elector = leader(0);
    update(&mut elector, at(2_000));
    elector.write_failed(at(2_010));
    elector.read(Some(seen(9, "", 3)), at(2_020));
    assert_eq!(update(&mut elector, at(2_020)).transitions, 4);
}

#[test]
fn a_candidate_does_not_create_a_deleted_lease_while_its_holder_may_lead() {
    let mut elector = elector();
    elector.read(Some(seen(7, "other", 0)), at(1_000));
    elector.watched(None, at(3_000));
    assert_eq!(elector.holder(), "");
    // It may have renewed right before the deletion, unseen.
    assert_eq!(elector.step(at(3_000), true), Step::Wait(boot(18_000)));
    elector.read(None, at(4_000));
    assert_eq!(elector.step(at(4_000), true), Step::Wait(boot(18_000)), "it is the same deletion");
    elector.watched(None, at(5_000));
    assert_eq!(elector.step(at(5_000), true), Step::Wait(boot(20_000)), "it is another one");
    assert_eq!(elector.step(at(20_000), true), Step::Get);
    elector.read(None, at(20_010));
    let Step::Create(record) = elector.step(at(20_010), true) else { panic!("expected a create") };
    assert_eq!(record.transitions, 0, "the count ends with the Lease");
    // One that nobody held may have been taken before it was deleted.
    let mut free = self::elector();
    free.read(Some(seen(7, "", 0)), at(1_000));
    free.read(None, at(2_000));
    assert_eq!(free.step(at(2_000), true), Step::Wait(boot(17_000)));
}

#[test]
fn a_first_look_through_the_watch_is_enough_to_wait() {
    let mut elector = elector();
    elector.watched(Some(seen(7, "other", 0)), at(1_000));
    assert_eq!(elector.step(at(1_000), true), Step::Wait(boot(16_000)));
    assert_eq!(elector.step(at(16_000), true), Step::Get);
    let mut none = self::elector();
    none.watched(None, at(1_000));
    assert_eq!(none.step(at(1_000), true), Step::Get);
}

// client-go: TestReleaseLeaseLeases
#[test]
fn a_release_leaves_the_holder_empty_for_a_second_and_keeps_the_transitions() {
    let elector = leader(0);
    let fetched = LeaderRecord { acquired: Some(at(0).wall), ..seen(9, "me", 3).record };
    let released = elector.release(&stored(&fetched, 9), at(7_000).wall).unwrap();
    assert_eq!((&*released.holder, released.lease_seconds, released.transitions), ("", 1, 3));
    assert_eq!((released.acquired, released.renewed), (Some(at(7_000).wall), Some(at(7_000).wall)));
}

#[test]
fn a_lease_that_another_holds_is_not_released() {
    let elector = leader(0);
    assert_eq!(elector.release(&seen(9, "other", 3), at(7_000).wall), None);
    assert_eq!(elector.release(&seen(9, "", 3), at(7_000).wall), None);
    let twin = LeaderRecord { acquired: Some(at(1).wall), ..seen(9, "me", 3).record };
    assert_eq!(elector.release(&stored(&twin, 9), at(7_000).wall), None);
}

#[test]
fn versions_that_cannot_be_compared_are_news() {
    let mut elector = elector();
    elector.read(Some(Seen { version: ResourceVersion::from("b"), ..seen(1, "other", 0) }), at(0));
    elector.watched(Some(Seen { version: ResourceVersion::from("a"), ..seen(1, "other", 0) }), at(5_000));
    assert_eq!(elector.step(at(5_000), true), Step::Wait(boot(5_000) + 15 * SECOND));
}
