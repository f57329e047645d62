//! client-go's leader election on our server: three candidates for one Lease.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::coordination::v1::Lease;
use watchkeeper::informer::{Change, on_change};

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
