//! Work done for definitions: compiled once, not parsed for each object, names passed on.

use std::cell::Cell;

use serde_json::json;
use watchkeeper::Env;

use crate::kinds::definition::Compiler;
use crate::kinds::schema::COMPILED;
use crate::server::ApiServer;
use crate::state::core::Core;
use crate::state::store::{Key, PARSED};
use crate::verbs::delete::DeleteOptions;
use crate::verbs::patch::Patch;
use crate::verbs::update::Part;
use crate::verbs::write::Write;

#[test]
fn a_schema_is_compiled_once_and_versions_share_their_patterns() {
    let schema = |n: usize| {
        let texts = (0..16)
            .map(|at| (format!("p{at}"), json!({"type": "string", "pattern": format!("^a{{{at}}}$")})));
        json!({"type": "object", "description": n.to_string(), "properties": texts.collect::<serde_json::Map<_, _>>()})
    };
    let version = |n: usize| json!({"name": format!("v{n}"), "served": true, "storage": n == 1, "schema": {"openAPIV3Schema": schema(n / 2)}});
    let mut definition = json!({"metadata": {"name": "bars.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
        "versions": (1..=30).map(version).collect::<Vec<_>>()}});
    let mut compiler = Compiler::default();
    assert_eq!(compiler.compile_all(&definition).len(), 30);
    assert_eq!(compiler.patterns.len(), 16);
    let server = ApiServer::new(&Env::simulated(1));
    let compiled = || COMPILED.with(Cell::get);
    server.shared.run(|core| {
        let kind = core.registry.custom_resource_definitions().unwrap();
        let before = compiled();
        core.create(&kind, "", definition.clone(), &Write::own()).unwrap();
        assert_eq!(
            compiled() - before,
            16,
            "two versions have one schema each, but for the first and the last"
        );
        let before = compiled();
        definition["metadata"]["labels"] = json!({"a": "b"});
        definition["spec"]["versions"][0]["deprecated"] = true.into();
        let key = Key::new("", "bars.example.com");
        let seen = core.see(&kind, &key);
        let version = seen.old.as_ref().unwrap().revision.to_string();
        definition["metadata"]["resourceVersion"] = version.into();
        let part = Part::Main;
        let draft = seen.replace(&kind, definition, part, &Write::own()).unwrap();
        core.store(&draft).unwrap();
        core.delete(&kind, &key, &DeleteOptions::default()).unwrap();
        assert_eq!(compiled() - before, 0, "what the definition has is not compiled again");
    });
}

#[test]
fn a_definition_is_not_parsed_for_each_of_its_objects_that_goes() {
    let server = ApiServer::new(&Env::simulated(1));
    let schema = json!({"type": "object", "description": "x".repeat(50_000)});
    let bars = json!({"metadata": {"name": "bars.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    server.shared.run(|core| {
        let definitions = core.registry.custom_resource_definitions().unwrap();
        core.create(&definitions, "", bars, &Write::own()).unwrap();
        let kind = core.registry.find("example.com", "v1", "bars").unwrap().clone();
        for name in 0..100 {
            let object = json!({"metadata": {"name": format!("b{name}")}});
            core.create(&kind, "", object, &Write::own()).unwrap();
        }
        let parsed = || PARSED.with(Cell::get);
        let before = parsed();
        core.delete(&definitions, &Key::new("", "bars.example.com"), &DeleteOptions::default()).unwrap();
        assert!(core.registry.find("example.com", "v1", "bars").is_none(), "it is gone");
        assert!(parsed() - before < 500_000, "{} bytes were parsed", parsed() - before);
    });
}

#[test]
fn definitions_that_get_their_names_one_after_the_other_are_decided_in_one_loop() {
    const COUNT: usize = 1_000;
    let server = ApiServer::new(&Env::simulated(1));
    let define = |plural: &str, short: &[String]| {
        let kind = plural.to_uppercase();
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": kind, "plural": plural, "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let short = |at: usize| format!("s{at}");
    server.shared.run(|core| {
        let kind = core.registry.custom_resource_definitions().unwrap();
        let create = |core: &mut Core, plural: &str, short: &[String]| {
            core.create(&kind, "", define(plural, short), &Write::own()).unwrap();
        };
        create(core, "first", &(0..COUNT).map(short).collect::<Vec<_>>());
        let revision = core.store.revision();
        for at in 0..COUNT {
            create(core, &format!("d{at}"), &[short(at)]);
        }
        assert_eq!(core.store.revision() - revision, COUNT as u64, "one that waits is left alone");
        assert!(core.registry.find("example.com", "v1", "d7").is_none());
        let parsed = || PARSED.with(Cell::get);
        let (before, revision) = (parsed(), core.store.revision());
        core.delete(&kind, &Key::new("", "first.example.com"), &DeleteOptions::default()).unwrap();
        // Marked, gone, and each of the others decided once.
        assert_eq!(core.store.revision() - revision, 2 + COUNT as u64);
        let parsed = parsed() - before;
        assert!(parsed < COUNT * 10_000, "{parsed} bytes were parsed");
        for at in 0..COUNT {
            let kind = core.registry.find("example.com", "v1", &format!("d{at}")).unwrap();
            assert_eq!(kind.short_names, [short(at)]);
        }
    });
}

#[test]
fn a_name_that_is_given_up_in_turn_goes_to_the_next() {
    let server = ApiServer::new(&Env::simulated(1));
    let define = |plural: &str, short: &str| {
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"kind": plural.to_uppercase(), "plural": plural, "shortNames": [short]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    server.shared.run(|core| {
        let kind = core.registry.custom_resource_definitions().unwrap();
        for (plural, short) in [("c", "one"), ("b", "two"), ("a", "three")] {
            core.create(&kind, "", define(plural, short), &Write::own()).unwrap();
        }
        // Each wants what the one before it has.
        for (plural, short) in [("b", "one"), ("a", "two")] {
            let seen = core.see(&kind, &Key::new("", &format!("{plural}.example.com")));
            let patch = Patch::Merge(json!({"spec": {"names": {"shortNames": [short]}}}));
            let part = Part::Main;
            let draft = seen.patch(&kind, &patch, part, &mut Write::own()).unwrap();
            core.store(&draft).unwrap();
        }
        let short = |core: &Core, plural: &str| {
            core.registry.find("example.com", "v1", plural).unwrap().short_names.clone()
        };
        assert_eq!((short(core, "a"), short(core, "b")), (vec!["three".to_owned()], vec!["two".to_owned()]));
        core.delete(&kind, &Key::new("", "c.example.com"), &DeleteOptions::default()).unwrap();
        assert_eq!((short(core, "a"), short(core, "b")), (vec!["two".to_owned()], vec!["one".to_owned()]));
    });
}
