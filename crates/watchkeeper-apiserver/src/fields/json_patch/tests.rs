use serde_json::json;

use super::*;

fn operations(patch: &Value) -> Vec<Operation> {
    patch.as_array().unwrap().iter().map(|one| Operation::read(one.clone()).unwrap().0).collect()
}

fn patched(document: Value, patch: Value) -> Result<Value> {
    apply(&operations(&patch), document)
}

#[test]
fn operations_do_what_the_rfc_says() {
    for (document, patch, result) in [
        (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": 1}), json!([{"op": "add", "path": "/a", "value": 2}]), json!({"a": 2})),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/1", "value": [2]}]), json!({"a": [1, [2]]})),
        (json!({"a": []}), json!([{"op": "add", "path": "/a/-", "value": 1}]), json!({"a": [1]})),
        (json!({"a": []}), json!([{"op": "add", "path": "/a/0", "value": 1}]), json!({"a": [1]})),
        (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/b"}]), json!({"a": 1})),
        (json!({"a": [1, 2, 3]}), json!([{"op": "remove", "path": "/a/1"}]), json!({"a": [1, 3]})),
        (json!({"a": [1, 2]}), json!([{"op": "replace", "path": "/a/1", "value": 5}]), json!({"a": [1, 5]})),
        (
            json!({"a": {"b": 1}, "c": {}}),
            json!([{"op": "move", "from": "/a/b", "path": "/c/d"}]),
            json!({"a": {}, "c": {"d": 1}}),
        ),
        (
            json!({"a": [1, 2, 3]}),
            json!([{"op": "move", "from": "/a/0", "path": "/a/2"}]),
            json!({"a": [2, 3, 1]}),
        ),
        (
            json!({"a": {"b": [1]}}),
            json!([{"op": "copy", "from": "/a", "path": "/c"}, {"op": "remove", "path": "/a/b/0"}]),
            json!({"a": {"b": []}, "c": {"b": [1]}}),
        ),
        (
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            json!({"/": 9, "~1": 10}),
        ),
        (json!({"/": 9}), json!([{"op": "remove", "path": "/~1"}]), json!({})),
        (json!({"": {"": 1}}), json!([{"op": "remove", "path": "//"}]), json!({"": {}})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
    ] {
        assert_eq!(patched(document.clone(), patch.clone()), Ok(result), "{document} {patch}");
    }
}

/// Deviations from the RFC that clients know from the real server.
#[test]
fn operations_are_as_lenient_as_on_the_real_server() {
    for (document, patch, result) in [
        (json!({}), json!([{"op": "test", "path": "/a", "value": null}]), json!({})),
        (json!({}), json!([{"op": "test", "path": "/a"}]), json!({})),
        (json!({"a": null}), json!([{"op": "test", "path": "/a", "value": null}]), json!({"a": null})),
        (json!({}), json!([{"op": "replace", "path": "/a", "value": 1}]), json!({"a": 1})),
        (json!({}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"b": null})),
        (json!({}), json!([{"op": "add", "path": "/a"}]), json!({"a": null})),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-1", "value": 3}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-3", "value": 3}]), json!({"a": [3, 1, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "replace", "path": "/a/-2", "value": 3}]), json!({"a": [3, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "test", "path": "/a/+01", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": 1}), json!([{"op": "remove", "path": "ignored/a"}]), json!({})),
    ] {
        assert_eq!(patched(document.clone(), patch.clone()), Ok(result), "{document} {patch}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let document = || json!({"a": [1, 2], "b": {"c": null}, "s": "x"});
    for (patch, misfit) in [
        (json!([{"op": "test", "path": "/a", "value": [1]}]), Misfit::Test),
        (json!([{"op": "test", "path": "/a/0", "value": 1.0}]), Misfit::Test),
        (json!([{"op": "test", "path": "/a", "value": null}]), Misfit::Test),
        (json!([{"op": "test", "path": "", "value": {}}]), Misfit::Test),
        (json!([{"op": "test", "path": "/n/o", "value": null}]), Misfit::Missing),
        (json!([{"op": "test", "path": "/a/2", "value": null}]), Misfit::Index),
        (json!([{"op": "remove", "path": "/n"}]), Misfit::Missing),
        (json!([{"op": "remove", "path": "/a/-"}]), Misfit::Index),
        (json!([{"op": "remove", "path": "/a/-3"}]), Misfit::Index),
        (json!([{"op": "remove", "path": ""}]), Misfit::Missing),
        (json!([{"op": "remove", "path": "s"}]), Misfit::Missing),
        (json!([{"op": "add", "path": "", "value": {}}]), Misfit::Missing),
        (json!([{"op": "add", "path": "/a/3", "value": 1}]), Misfit::Index),
        (json!([{"op": "add", "path": "/a/-4", "value": 1}]), Misfit::Index),
        (json!([{"op": "add", "path": "/a/x", "value": 1}]), Misfit::Index),
        (json!([{"op": "add", "path": "/a/9223372036854775808", "value": 1}]), Misfit::Index),
        (json!([{"op": "add", "path": "/s/x", "value": 1}]), Misfit::Missing),
        (json!([{"op": "add", "path": "/b/c/d", "value": 1}]), Misfit::Missing),
        (json!([{"op": "add", "value": 1}]), Misfit::Missing),
        (json!([{"op": "replace", "path": "/a/2", "value": 1}]), Misfit::Index),
        (json!([{"op": "replace", "path": "/n/o", "value": 1}]), Misfit::Missing),
        (json!([{"op": "replace", "path": "", "value": 7}]), Misfit::Whole),
        (json!([{"op": "move", "from": "/n", "path": "/m"}]), Misfit::Missing),
        (json!([{"op": "move", "from": "/b", "path": "/b/d"}]), Misfit::Missing),
        (json!([{"op": "move", "path": "/m"}]), Misfit::Missing),
        (json!([{"op": "copy", "from": "/n/o", "path": "/m"}]), Misfit::Missing),
        (json!([{"op": "merge", "path": "/a"}]), Misfit::UnknownOperation),
        (json!([null]), Misfit::UnknownOperation),
    ] {
        assert_eq!(patched(document(), patch.clone()), Err(misfit), "{patch}");
    }
}

#[test]
fn copies_add_up_to_a_limit() {
    // Including its quotes, a third of the limit.
    let third = "x".repeat(COPY_LIMIT / 3 - 2);
    let copy = |to: &str| json!({"op": "copy", "from": "/a", "path": to});
    let three = json!([copy("/b"), copy("/c"), copy("/d")]);
    assert!(patched(json!({"a": third}), three).is_ok());
    let four = json!([copy("/b"), copy("/b"), copy("/b"), copy("/b")]);
    assert_eq!(patched(json!({"a": third}), four), Err(Misfit::Copied));
    let escaped = "<".repeat(COPY_LIMIT / 6);
    assert_eq!(patched(json!({"a": escaped}), json!([copy("/b")])), Err(Misfit::Copied));
    let nested: Vec<_> = (0..300).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/b"})).collect();
    assert_eq!(patched(json!({"a": {"c": "x"}}), json!(nested)), Err(Misfit::Depth));
}

#[test]
fn a_document_of_any_depth_is_taken_apart() {
    // Each move nests the value one level deeper.
    let step = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/a"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let steps = operations(&step.iter().cycle().take(90_000).cloned().collect());
    assert_eq!(apply(&steps, json!({"a": 1})), Err(Misfit::Depth));
    let mut gone = steps;
    gone.extend(operations(&json!([{"op": "remove", "path": "/a"}])));
    assert_eq!(apply(&gone, json!({"a": 1})), Ok(json!({})));
}

#[test]
fn elements_come_and_go_in_a_long_list_as_in_a_vector() {
    let mut expected: Vec<u32> = (0..3_000).collect();
    let mut patch = Vec::new();
    let mut state = 7_u32;
    for new in 0..6_000_u32 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let place = |len: usize| (state >> 8) as usize % len;
        match state >> 30 {
            0 => {
                let at = place(expected.len());
                expected.remove(at);
                patch.push(json!({"op": "remove", "path": format!("/a/{at}")}));
            }
            1 => {
                let at = place(expected.len() + 1);
                expected.insert(at, new);
                patch.push(json!({"op": "add", "path": format!("/a/{at}"), "value": new}));
            }
            2 => {
                expected.push(new);
                patch.push(json!({"op": "add", "path": "/a/-", "value": new}));
            }
            _ => {
                let at = place(expected.len());
                let moved = expected.remove(at);
                expected.insert(0, moved);
                patch.push(json!({"op": "move", "from": format!("/a/{at}"), "path": "/a/0"}));
            }
        }
    }
    patch.push(json!({"op": "test", "path": "/a", "value": expected}));
    assert_eq!(
        patched(json!({"a": (0..3_000).collect::<Vec<u32>>()}), json!(patch)),
        Ok(json!({"a": expected}))
    );
}

#[test]
fn fields_that_no_operation_has_are_named() {
    let (_, unknown) = Operation::read(json!({"op": "add", "path": "/a", "vlaue": 1})).unwrap();
    assert_eq!(unknown, ["vlaue"]);
    assert_eq!(
        Operation::read(json!({"op": 5})).unwrap_err(),
        "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
    );
}
