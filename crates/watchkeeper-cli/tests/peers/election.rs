//! client-go's leader election on our server: three candidates for one Lease; and together with candidates of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::informer::{Change, on_apply, on_change};
use watchkeeper::{Object, ObjectName};

use crate::PeerPrograms;
use crate::observer::Observer;
use crate::program::Program;

pub(crate) async fn a_candidate_takes_over_from_one_that_was_killed_or_stopped(programs: &PeerPrograms) {
    let server = programs.serve().await;
    let observer = Observer::connect(&programs.env, &programs.kubeconfig()).await;
    let holders = Arc::new(Mutex::new(Vec::new()));
    let heard = holders.clone();
    let note = on_change(move |change: Change<'_, Lease>| {
        let (Change::Added { object, .. } | Change::Updated { new: object, .. }) = change else { return };
        let spec = object.get().unwrap().spec.clone().unwrap();
        let holder = spec.holder_identity.unwrap_or_default();
        let mut holders = heard.lock().unwrap();
        if holders.last() != Some(&holder) {
            holders.push(holder);
        }
    });
    observer.factory.informer::<Lease>().add_handler(note).unwrap();
    observer.observe::<Lease>().await;
    let candidate = |name: &str| -> Program { programs.peer("candidate", &["-identity", name]) };

    let mut a = candidate("a");
    a.until(&["leading"]).await;
    let mut b = candidate("b");
    b.until(&["leader a"]).await;
    a.signal("KILL");
    assert!(!a.exit().await.0.success());
    b.until(&["leading"]).await;

    let mut c = candidate("c");
    c.until(&["leader b"]).await;
    b.signal("TERM");
    let (status, lines) = b.exit().await;
    assert!(status.success() && lines.iter().any(|line| line == "stopped"), "{lines:#?}");
    c.until(&["leading"]).await;

    let transitions =
        |seen: &Observer| seen.seen::<Lease>("leader").unwrap().spec.as_ref().unwrap().lease_transitions;
    observer
        .until("c holds the Lease", |seen| {
            holders.lock().unwrap().last().is_some_and(|holder| holder == "c") && transitions(seen).is_some()
        })
        .await;
    // Who is killed holds on until its time is over; who stops gives the Lease back at once.
    assert_eq!(*holders.lock().unwrap(), ["a", "b", "", "c"]);
    c.signal("TERM");
    assert!(c.exit().await.0.success());
    server.signal("TERM");
    assert!(server.exit().await.0.success());
}

/// Who wrote or held what, in the order of the server's versions, and when by the clock of this machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    /// The Lease was written, with this holder; nobody, if it was released.
    Held(String, Timestamp),
    /// The holder, as it thought, sent a write.
    Wrote(String, Timestamp),
}

/// How long the holder of a Lease that another has released may not know it: until its next renewal, which comes every half a second,
/// on a machine that is busy.
const UNAWARE: Duration = Duration::from_secs(3);

/// One process that competes, of ours or in Go.
struct Competitor {
    kind: &'static str,
    identity: String,
    program: Program,
}

impl Competitor {
    fn ended(&mut self) -> Option<&mut Self> {
        self.program.has_ended().then_some(self)
    }
}

/// The number of hand-overs: `WATCHKEEPER_TEST_HANDOVERS`, or 10.
fn hand_overs() -> usize {
    std::env::var("WATCHKEEPER_TEST_HANDOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

pub(crate) async fn candidates_of_ours_and_of_go_hand_the_lease_over_and_never_write_at_once(
    programs: &PeerPrograms,
) {
    let server = programs.serve_or_real().await;
    let observer = Observer::connect(&programs.env, &programs.kubeconfig()).await;
    let facts = Arc::new(Mutex::new(BTreeMap::new()));
    let (held, wrote) = (facts.clone(), facts.clone());
    observer
        .factory
        .informer::<Lease>()
        .add_handler(on_apply(move |lease: &Object<Lease>| {
            // A real server has others, of its own.
            if lease.key() != ObjectName::namespaced("default", "leader") {
                return;
            }
            let spec = lease.get().unwrap().spec.clone().unwrap();
            let renewed = spec.renew_time.map_or(Timestamp::MIN, |time| time.0);
            let holder = spec.holder_identity.unwrap_or_default();
            held.lock().unwrap().insert(lease.version().as_number(), Fact::Held(holder, renewed));
        }))
        .unwrap();
    observer
        .factory
        .informer::<ConfigMap>()
        .add_handler(on_apply(move |map: &Object<ConfigMap>| {
            let data = map.get().unwrap().data.clone().unwrap_or_default();
            if let (Some(writer), Some(at)) = (data.get("writer"), data.get("at")) {
                let fact = Fact::Wrote(writer.clone(), at.parse().unwrap());
                wrote.lock().unwrap().insert(map.version().as_number(), fact);
            }
        }))
        .unwrap();
    observer.observe::<Lease>().await;
    observer.observe::<ConfigMap>().await;
    let work = serde_json::json!({"metadata": {"name": "work", "namespace": "default"}});
    observer.client.api::<ConfigMap>().create(&serde_json::from_value(work).unwrap()).await.unwrap();
    let holder = || {
        let facts = facts.lock().unwrap();
        facts.values().rev().find_map(|fact: &Fact| match fact {
            Fact::Held(holder, _) => Some(holder.clone()),
            Fact::Wrote(..) => None,
        })
    };

    let mut lives = 0;
    let mut start = |kind: &'static str| {
        lives += 1;
        let identity = format!("{kind}-{lives}");
        let program = match kind {
            "go" => programs.peer("candidate", &["-identity", &identity]),
            _ => programs.candidate(&identity),
        };
        Competitor { kind, identity, program }
    };
    let mut competitors = vec![start("ours"), start("ours"), start("go")];
    let (mut led_by_go, mut exposed) = (0, BTreeSet::new());
    for hand_over in 0..hand_overs() {
        programs.env.clock.sleep(Duration::from_secs(1)).await;
        // A candidate in Go that wakes up releases the Lease though another holds it by now, which then ends.
        for competitor in competitors.iter_mut().filter_map(Competitor::ended) {
            *competitor = start(competitor.kind);
        }
        let leader =
            || competitors.iter().position(|competitor| holder().as_ref() == Some(&competitor.identity));
        observer.until("somebody holds the Lease", |_| leader().is_some()).await;
        let at = leader().unwrap();
        let Competitor { kind, identity: old, program } = competitors.remove(at);
        let how = ["KILL", "STOP", "TERM"][hand_over % 3];
        println!("     {hand_over}: {old} gets SIG{how}");
        // Ours watch the Lease and are faster: now and then they are suspended until Go's candidate has it.
        let is_turn_of_go = hand_over % 4 == 0 && kind == "ours";
        let ours = competitors.iter().filter(|competitor| competitor.kind == "ours");
        let suspended: Vec<_> = ours.filter(|_| is_turn_of_go).collect();
        suspended.iter().for_each(|competitor| competitor.program.signal("STOP"));
        program.signal(how);
        observer
            .until("another holds the Lease", |_| holder().is_some_and(|new| new != old && !new.is_empty()))
            .await;
        suspended.iter().for_each(|competitor| competitor.program.signal("CONT"));
        led_by_go += usize::from(holder().is_some_and(|new| new.starts_with("go")));
        if how == "STOP" {
            exposed.extend(holder().filter(|_| kind == "go"));
            program.signal("CONT");
        }
        let (status, lines) = program.exit().await;
        // A stop is a success; who wakes up finds that it has lost, which in Go is one too.
        assert!(how != "TERM" || status.success(), "{lines:#?}");
        if how == "STOP" && kind == "ours" {
            assert!(
                !status.success() && lines.iter().any(|line| line.contains("leader election lost")),
                "{lines:#?}"
            );
        }
        competitors.push(start(kind));
    }
    judge(&facts.lock().unwrap(), &exposed);
    println!("     Go's candidate took over {led_by_go} times");
    assert!(led_by_go > hand_overs() / 5, "Go's candidate took over {led_by_go} times");
    drop(competitors);
    if let Some(server) = server {
        server.signal("TERM");
        assert!(server.exit().await.0.success());
    }
}

/// Every write was stored while its writer held the Lease.
///
/// The `exposed` held it when a candidate in Go woke up, which may release the Lease of another: they learn that at their next renewal,
/// so what they send up to [`UNAWARE`] after the release is excused.
fn judge(facts: &BTreeMap<Option<u64>, Fact>, exposed: &BTreeSet<String>) {
    let (writes, changes) = wrong(facts, exposed).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("     {writes} writes under {changes} holders of the Lease, each by its holder");
    assert!(writes > 50 && changes >= hand_overs(), "{facts:#?}");
}

/// The numbers of writes and of holders; the first write that is wrong, as an error.
fn wrong(facts: &BTreeMap<Option<u64>, Fact>, exposed: &BTreeSet<String>) -> Result<(usize, usize), String> {
    let (mut leader, mut writes, mut changes) = (None, 0, 0);
    // When the Lease of an exposed holder was released.
    let mut released = BTreeMap::new();
    for (version, fact) in facts {
        match fact {
            Fact::Held(holder, at) => {
                let before = leader.replace(holder);
                changes += usize::from(before != Some(holder));
                if let Some(before) = before.filter(|before| holder.is_empty() && exposed.contains(*before)) {
                    released.insert(before, *at);
                }
            }
            Fact::Wrote(writer, at) => {
                writes += 1;
                let is_excused = released.get(writer).is_some_and(|released| {
                    at.duration_since(*released) <= SignedDuration::try_from(UNAWARE).unwrap()
                });
                if leader != Some(writer) && !is_excused {
                    let at = format!("version {version:?}, {at}");
                    return Err(format!("at {at}, {writer} wrote, and {leader:?} held the Lease"));
                }
            }
        }
    }
    Ok((writes, changes))
}

/// The judge itself is tried: a write is excused only of who was exposed, and only shortly after the release.
pub(crate) async fn a_write_of_who_does_not_hold_the_lease_is_found(_: &PeerPrograms) {
    let at = |second| Timestamp::from_second(second).unwrap();
    let story = |second, exposed: &[&str]| {
        let facts = [
            Fact::Held("a".to_owned(), at(1)),
            Fact::Wrote("a".to_owned(), at(2)),
            Fact::Held(String::new(), at(3)),
            Fact::Held("b".to_owned(), at(3)),
            Fact::Wrote("b".to_owned(), at(4)),
            Fact::Wrote("a".to_owned(), at(second)),
        ];
        let facts = facts.into_iter().enumerate();
        let facts = facts.map(|(version, fact)| (Some(version as u64), fact)).collect();
        wrong(&facts, &exposed.iter().map(|name| (*name).to_owned()).collect())
    };
    assert_eq!(story(5, &["a"]), Ok((3, 3)));
    assert!(story(5, &[]).is_err() && story(5, &["b"]).is_err(), "it was not exposed");
    assert!(story(7, &["a"]).is_err(), "it has had the time to learn of the release");
}
