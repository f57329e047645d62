//! Leader elections with clocks that differ, suspends, stops, cuts and crashes: no replica writes while another leads.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod link;
mod manager;
mod server;
mod standby;
mod world;

use std::ops::Range;
use std::time::Duration;

use link::{Fault, What};
use world::{DRAIN, Weather, requests_until_leading, run};

/// The seeds of each kind of weather: `ELECTION_SEEDS`, a number or a range such as `1000..2000`, or a few.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("ELECTION_SEEDS") else { return 0..40 };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    from.parse().unwrap()..to.parse().unwrap()
}

const STORMY: Weather = Weather {
    replicas: 2,
    rates: (1.0, 1.0),
    faults: Duration::from_secs(300),
    delay: Duration::from_millis(200),
};

/// Runs all seeds, and fails at a write that was wrong or a leadership that did not come back.
fn hold(weather: Weather) {
    let (mut writes, mut hand_overs) = (0, 0);
    let seeds = seeds();
    for seed in seeds.clone() {
        let outcome = run(seed, weather, None);
        assert!(outcome.wrong.is_empty(), "seed {seed}, {weather:?}: {:#?}", &outcome.wrong[..1]);
        // At worst all have just ended, one after it has waited for a lost write: five seconds to start, then the lease duration
        // by the slowest clock, and two seconds.
        let most = DRAIN.div_f64(weather.rates.0)
            + Duration::from_secs(5)
            + Duration::from_secs(17).div_f64(weather.rates.0)
            + 2 * weather.delay;
        assert!(outcome.last_gap <= most, "seed {seed}, {weather:?}: {outcome:?}");
        writes += outcome.writes;
        hand_overs += outcome.hand_overs;
    }
    println!("seeds {seeds:?} of {weather:?}: {writes} writes, {hand_overs} hand-overs");
    assert!(hand_overs as u64 > 3 * (seeds.end - seeds.start), "there was nothing to see");
}

#[test]
fn two_replicas_with_equal_clocks_never_write_at_once() {
    hold(STORMY);
}

#[test]
fn three_replicas_whose_clocks_run_up_to_1_4_times_as_fast_never_write_at_once() {
    hold(Weather { replicas: 3, rates: (1.0, 1.4), ..STORMY });
    hold(Weather { replicas: 3, rates: (0.8, 1.12), delay: Duration::from_millis(20), ..STORMY });
}

#[test]
fn with_a_clock_that_runs_twice_as_fast_two_leaders_are_found() {
    let weather = Weather { rates: (0.7, 1.4), ..STORMY };
    let found = seeds().filter(|seed| !run(*seed, weather, None).wrong.is_empty()).count();
    println!("two leaders in {found} of the seeds {:?}", seeds());
    assert!(found > 0, "the check would not notice two leaders");
}

const CALM: Weather =
    Weather { replicas: 2, rates: (1.0, 1.0), faults: Duration::ZERO, delay: Duration::from_millis(20) };

/// Lets each fault happen at every request that the first leader makes.
fn hold_at_every_request(faults: impl IntoIterator<Item = What>) {
    let requests = requests_until_leading(7);
    assert!(requests > 20, "{requests}");
    for what in faults {
        for at in 1..=requests {
            let outcome = run(7, CALM, Some(Fault { at, what }));
            assert!(outcome.wrong.is_empty(), "{what:?} at {at}: {:?}", outcome.wrong);
            assert!(outcome.last_gap <= Duration::from_secs(17), "{what:?} at {at}: {outcome:?}");
        }
    }
}

/// A moment; times before and after the renew deadline and the lease duration; and long.
const TIMES: [u64; 6] = [1, 9, 11, 16, 30, 60];

#[test]
fn a_crash_at_any_request_leaves_nothing_but_a_wait_for_the_lease() {
    hold_at_every_request([false, true].map(|after| What::Crash { after }));
}

#[test]
fn a_suspend_at_any_request_leaves_nothing_but_a_wait_for_the_lease() {
    hold_at_every_request(TIMES.map(|time| What::Freeze(Duration::from_secs(time))));
}

#[test]
fn a_stop_at_any_request_leaves_nothing_but_a_wait_for_the_lease() {
    hold_at_every_request(TIMES.map(|time| What::Stop(Duration::from_secs(time))));
}

#[test]
fn a_cut_at_any_request_leaves_nothing_but_a_wait_for_the_lease() {
    hold_at_every_request(TIMES.map(|time| What::Cut(Duration::from_secs(time))));
}
