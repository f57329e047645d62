//! client-go's leader election on our server: three candidates for one Lease; and together with candidates of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

/// Who wrote or held what, in the order of the server's versions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Held(String),
    Wrote(String),
}

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
            let holder = lease.get().unwrap().spec.clone().unwrap().holder_identity.unwrap_or_default();
            held.lock().unwrap().insert(lease.version().as_number(), Fact::Held(holder));
        }))
        .unwrap();
    observer
        .factory
        .informer::<ConfigMap>()
        .add_handler(on_apply(move |map: &Object<ConfigMap>| {
            let data = map.get().unwrap().data.clone().unwrap_or_default();
            if let Some(writer) = data.get("writer") {
                wrote.lock().unwrap().insert(map.version().as_number(), Fact::Wrote(writer.clone()));
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
            Fact::Held(holder) => Some(holder.clone()),
            Fact::Wrote(_) => None,
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
/// The `exposed` held it when a candidate in Go woke up, which may release the Lease of another: they learn that at their next
/// renewal, so they may write until then.
fn judge(facts: &BTreeMap<Option<u64>, Fact>, exposed: &BTreeSet<String>) {
    let (mut leader, mut writes, mut changes) = (None, 0, 0);
    for (version, fact) in facts {
        match fact {
            Fact::Held(holder) => changes += usize::from(leader.replace(holder) != Some(holder)),
            Fact::Wrote(writer) => {
                writes += 1;
                let is_own = leader == Some(writer) || exposed.contains(writer);
                assert!(is_own, "at version {version:?} {writer} wrote, and {leader:?} held the Lease");
            }
        }
    }
    println!("     {writes} writes under {changes} holders of the Lease, each by its holder");
    assert!(writes > 50 && changes >= hand_overs(), "{facts:#?}");
}
