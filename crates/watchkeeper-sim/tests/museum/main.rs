//! A museum of bugs: small operators, each with one mistake that real operators or toolkits have had. One configuration of the
//! simulator finds every one of them and names its class, and finds nothing where the mistake is mended.
//!
//! `cargo test -p watchkeeper-sim --test museum -- --nocapture` shows how each is found, and `MUSEUM_ONLY` is part of the name of
//! those to look at. With `MUSEUM=complete`, mended operators go through the same schedules as those that are wrong.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod intermediate;
mod stale;
mod toolkits;
mod unobserved;

#[test]
fn every_direct_bug_that_sieve_found_has_an_entry() {
    let found = [stale::sieve(), intermediate::sieve(), unobserved::sieve()].map(|exhibits| exhibits.len());
    assert_eq!(found, [19, 11, 7]);
}
