use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn now() -> Instant {
    Clock::system().now()
}

/// Returns the delays of `times` failures in a row.
fn waits<L: RateLimiter<&'static str>>(limiter: &mut L, times: u32) -> Vec<Duration> {
    let now = now();
    (0..times).map(|failures| limiter.when(&"one", failures, now)).collect()
}

// client-go: TestItemExponentialFailureRateLimiter
#[test]
fn each_failure_doubles_the_wait() {
    let mut limiter = ItemExponential::new(MS, SECOND);
    assert_eq!(waits(&mut limiter, 5), [MS, 2 * MS, 4 * MS, 8 * MS, 16 * MS]);
    // The delay depends on the failures of that key, whatever others did in between.
    assert_eq!(waits(&mut limiter, 2), [MS, 2 * MS]);
}

// client-go: TestItemExponentialFailureRateLimiterOverFlow
#[test]
fn a_wait_never_grows_beyond_its_bound() {
    let waits = |base, max| waits(&mut ItemExponential::new(base, max), 1000);
    assert_eq!(waits(MS, 1000 * SECOND)[5], 32 * MS);
    assert_eq!(waits(MS, 1000 * SECOND)[999], 1000 * SECOND);

    let (minute, hours) = (60 * SECOND, 3_600_000 * SECOND);
    assert_eq!(waits(minute, hours)[..3], [minute, 2 * minute, 4 * minute]);
    assert_eq!(waits(minute, hours)[999], hours);
    assert_eq!(ItemExponential::new(MS, SECOND).when(&(), u32::MAX, now()), SECOND);
}

#[test]
fn odd_bases_and_bounds_are_clamped() {
    assert_eq!(waits(&mut ItemExponential::new(2 * SECOND, SECOND), 2), [SECOND, SECOND]);
    assert_eq!(waits(&mut ItemExponential::new(Duration::ZERO, SECOND), 70)[69], Duration::ZERO);
    assert_eq!(waits(&mut ItemExponential::new(Duration::MAX, Duration::MAX), 2)[1], Duration::MAX);
    // A nanosecond doubled 63 times is the last that fits; then the cap.
    let tiny = waits(&mut ItemExponential::new(Duration::from_nanos(1), Duration::MAX), 66);
    assert_eq!(tiny[63..], [Duration::from_nanos(1 << 63), Duration::MAX, Duration::MAX]);
}

// client-go: TestItemFastSlowRateLimiter
#[test]
fn a_few_fast_tries_then_slow_ones() {
    let (fast, slow) = (5 * MS, 10 * SECOND);
    assert_eq!(waits(&mut FastSlow::new(fast, slow, 3), 5), [fast, fast, fast, slow, slow]);
}

// client-go: TestMaxOfRateLimiter
#[test]
fn the_longer_of_two_waits_counts() {
    let (fast, slow) = (5 * MS, 3 * SECOND);
    let limiter = || (FastSlow::new(fast, slow, 3), ItemExponential::new(MS, SECOND));
    let (first, second) = limiter();
    assert_eq!(waits(&mut MaxOf::new(first, second), 5), [fast, fast, fast, slow, slow]);
    let (second, first) = limiter();
    assert_eq!(waits(&mut MaxOf::new(first, second), 5), [fast, fast, fast, slow, slow]);
}

#[test]
fn a_pair_uses_up_tokens_where_the_other_wait_is_longer() {
    let mut limiter = MaxOf::new(ItemExponential::new(MS, SECOND), TokenBucket::new(1.0, 2));
    assert_eq!(waits(&mut limiter, 4), [MS, 2 * MS, SECOND, 2 * SECOND]);
}

// client-go: TestWithMaxWaitRateLimiter
#[test]
fn a_wait_can_be_capped() {
    let mut limiter = MaxWait::new(FastSlow::new(5 * MS, 1000 * SECOND, 100), 500 * SECOND);
    let all = waits(&mut limiter, 200);
    assert!(all[..100].iter().all(|wait| *wait == 5 * MS), "{all:?}");
    assert!(all[100..].iter().all(|wait| *wait == 500 * SECOND), "{all:?}");
}

#[test]
fn the_controllers_series_runs_from_5_ms_to_1000_s() {
    let all = waits(&mut default_controller(), 20);
    assert_eq!(all[..3], [5 * MS, 10 * MS, 20 * MS]);
    assert_eq!((all[17], all[18], all[19]), (655_360 * MS, 1000 * SECOND, 1000 * SECOND));
    let all = waits(&mut default_item_based(), 21);
    assert_eq!((all[0], all[1], all[20]), (MS, 2 * MS, 1000 * SECOND));
}

#[test]
fn the_controllers_buckets_bound_the_retries_of_all_keys_together() {
    let first_delayed = |mut limiter: MaxOf<ItemExponential, TokenBucket>| {
        let now = now();
        let waits: Vec<_> = (0..400).map(|key| limiter.when(&key, 0, now)).collect();
        let first = waits.iter().position(|wait| *wait != 5 * MS).unwrap();
        (first, waits[first])
    };
    // The first token beyond the burst comes after 100 ms or 20 ms.
    assert_eq!(first_delayed(default_controller()), (100, 100 * MS));
    assert_eq!(first_delayed(sample_controller()), (300, 20 * MS));
}

#[test]
fn a_boxed_limiter_is_a_limiter() {
    let mut limiter: Box<dyn RateLimiter<&'static str>> = Box::new(ItemExponential::new(MS, SECOND));
    assert_eq!(waits(&mut limiter, 2), [MS, 2 * MS]);
}
