//! A watch stream that is cut anywhere resumes, and leads to the same store.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use watchkeeper::source::{Asked, Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::{ScriptedReflector, error, event, list, object};

fn stream_of(versions: std::ops::Range<u64>) -> String {
    versions
        .map(|version| {
            let mut object = object(&format!("o{}", version % 3), version);
            object["data"] = json!({"text": "a \"quoted\" \\ and é"});
            event(if version % 7 == 0 { "DELETED" } else { "MODIFIED" }, &object)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_cut_of_a_stream_gives_a_prefix_and_a_resume_and_the_same_store(
        // The third watch in a row that brings nothing new leads to a list, which two cuts cannot cause.
        cuts in prop::collection::vec(0..2000_usize, 0..3), pieces in 1..200_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let source = ScriptedSource::new();
            source.on_list(list(10, &["o0"]));
            let scripted = ScriptedReflector::start(source, |builder| builder);
            scripted.until_asked(2).await;
            let mut from = 11;
            for cut in cuts {
                let reply = Reply::body(stream_of(from..31)).in_pieces(pieces);
                let asked = scripted.source.asked().len();
                scripted.source.on_watch(reply.cut_at(cut, error(Class::ConnectionLost)));
                scripted.until_asked(asked + 1).await;
                let Asked::Watch(options) = scripted.source.asked().pop().unwrap() else { panic!("a cut is no reason to list") };
                from = options.version.as_number().unwrap() + 1;
            }
            scripted.source.on_watch(Reply::body(stream_of(from..31)).then_hang());
            scripted.env.clock.sleep(Duration::from_secs(300)).await;
            let mut expected: std::collections::BTreeMap<String, u64> = [("o0".to_owned(), 1)].into();
            for version in 11..31_u64 {
                let name = format!("o{}", version % 3);
                if version % 7 == 0 { expected.remove(&name); } else { expected.insert(name, version); }
            }
            let expected: Vec<_> = expected.iter().map(|(name, version)| format!("{name}@{version}")).collect();
            assert_eq!(scripted.cached(), expected);
            scripted.stop.cancel();
        });
    }
}
