use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn now() -> Instant {
    Clock::system().now()
}

fn waits<L: RateLimiter<&'static str>>(limiter: &mut L, item: &'static str, times: usize) -> Vec<Duration> {
    let now = now();
    (0..times).map(|_| limiter.when(&item, now)).collect()
}

// client-go: TestItemExponentialFailureRateLimiter
#[test]
fn each_failure_of_a_key_doubles_its_wait_until_it_is_forgotten() {
    let mut limiter = ItemExponential::new(MS, SECOND);
    assert_eq!(waits(&mut limiter, "one", 5), [MS, 2 * MS, 4 * MS, 8 * MS, 16 * MS]);
    assert_eq!(limiter.retries(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [MS, 2 * MS]);
    assert_eq!(limiter.retries(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!((limiter.retries(&"one"), limiter.retries(&"two")), (0, 2));
    assert_eq!(waits(&mut limiter, "one", 1), [MS]);
}

// client-go: TestItemExponentialFailureRateLimiterOverFlow
#[test]
fn a_wait_never_grows_beyond_its_bound() {
    let mut limiter = ItemExponential::new(MS, 1000 * SECOND);
    assert_eq!(waits(&mut limiter, "one", 6)[5], 32 * MS);
    assert_eq!(waits(&mut limiter, "one", 1000)[999], 1000 * SECOND);

    let (minute, hours) = (60 * SECOND, 3_600_000 * SECOND);
    let mut limiter = ItemExponential::new(minute, hours);
    assert_eq!(waits(&mut limiter, "two", 3), [minute, 2 * minute, 4 * minute]);
    assert_eq!(waits(&mut limiter, "two", 1000)[999], hours);
}

#[test]
fn odd_bases_and_bounds_are_clamped() {
    assert_eq!(waits(&mut ItemExponential::new(2 * SECOND, SECOND), "x", 2), [SECOND, SECOND]);
    assert_eq!(waits(&mut ItemExponential::new(Duration::ZERO, SECOND), "x", 70)[69], Duration::ZERO);
    assert_eq!(waits(&mut ItemExponential::new(Duration::MAX, Duration::MAX), "x", 2)[1], Duration::MAX);
    // A nanosecond, doubled 63 times, is the last that fits; then the bound.
    let tiny = waits(&mut ItemExponential::new(Duration::from_nanos(1), Duration::MAX), "x", 66);
    assert_eq!(tiny[63..], [Duration::from_nanos(1 << 63), Duration::MAX, Duration::MAX]);
}

// client-go: TestItemFastSlowRateLimiter
#[test]
fn a_few_fast_tries_then_slow_ones() {
    let mut limiter = FastSlow::new(5 * MS, 10 * SECOND, 3);
    let slow = 10 * SECOND;
    assert_eq!(waits(&mut limiter, "one", 5), [5 * MS, 5 * MS, 5 * MS, slow, slow]);
    assert_eq!(limiter.retries(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [5 * MS, 5 * MS]);
    assert_eq!(limiter.retries(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!((limiter.retries(&"one"), limiter.retries(&"two")), (0, 2));
    assert_eq!(waits(&mut limiter, "one", 1), [5 * MS]);
}

// client-go: TestMaxOfRateLimiter
#[test]
fn the_longer_of_two_waits_counts_and_forgetting_reaches_both() {
    let mut limiter = MaxOf::new(FastSlow::new(5 * MS, 3 * SECOND, 3), ItemExponential::new(MS, SECOND));
    let slow = 3 * SECOND;
    assert_eq!(waits(&mut limiter, "one", 5), [5 * MS, 5 * MS, 5 * MS, slow, slow]);
    assert_eq!(limiter.retries(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [5 * MS, 5 * MS]);
    assert_eq!(limiter.retries(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!((limiter.first.retries(&"one"), limiter.second.retries(&"one")), (0, 0));
    assert_eq!(waits(&mut limiter, "one", 1), [5 * MS]);
}

#[test]
fn the_retries_of_a_pair_are_those_of_the_limiter_that_counts_them() {
    let mut first = MaxOf::new(ItemExponential::new(MS, SECOND), TokenBucket::new(1.0, 1));
    let mut second = MaxOf::new(TokenBucket::new(1.0, 1), ItemExponential::new(MS, SECOND));
    waits(&mut first, "x", 2);
    waits(&mut second, "x", 2);
    assert_eq!((first.retries(&"x"), second.retries(&"x")), (2, 2));
}

// client-go: TestWithMaxWaitRateLimiter
#[test]
fn a_wait_can_be_capped_without_touching_the_counting() {
    let mut limiter = MaxWait::new(FastSlow::new(5 * MS, 1000 * SECOND, 100), 500 * SECOND);
    let all = waits(&mut limiter, "one", 200);
    assert!(
        all[..100].iter().all(|wait| *wait == 5 * MS) && all[100..].iter().all(|wait| *wait == 500 * SECOND)
    );
    assert_eq!(limiter.retries(&"one"), 200);
    limiter.forget(&"one");
    assert_eq!(limiter.retries(&"one"), 0);
}

#[test]
fn the_controllers_series_runs_from_5_ms_to_1000_s() {
    let mut limiter = default_controller();
    let all = waits(&mut limiter, "one", 20);
    assert_eq!(all[..3], [5 * MS, 10 * MS, 20 * MS]);
    assert_eq!((all[17], all[18], all[19]), (655_360 * MS, 1000 * SECOND, 1000 * SECOND));
}

#[test]
fn the_controllers_buckets_bound_the_retries_of_all_keys_together() {
    let first_delayed = |mut limiter: MaxOf<ItemExponential<u32>, TokenBucket>| {
        let now = now();
        let waits: Vec<_> = (0..400).map(|key| limiter.when(&key, now)).collect();
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
    assert_eq!(waits(&mut limiter, "x", 2), [MS, 2 * MS]);
    assert_eq!(RateLimiter::retries(&limiter, &"x"), 2);
    RateLimiter::forget(&mut limiter, &"x");
    assert_eq!(RateLimiter::retries(&limiter, &"x"), 0);
}
