//! Data directories: everything survives a restart, and an unusable folder is refused with a remedy.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper_apiserver::{ApiServer, Credentials, DataDirError};

use common::{
    CONFIG_MAPS, MERGE, Server, Watch, call, config_map, get, inside, names, patch, post, raw, version,
};

fn folder() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    (parent, folder)
}

async fn open(folder: &Path) -> Server {
    let env = Env::system();
    Server::around(&env, ApiServer::builder(&env).open(folder).unwrap()).await
}

fn error(folder: &Path) -> String {
    let error = ApiServer::builder(&Env::system()).open(folder).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(folder.to_str().unwrap()), "{text}");
    text
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn widgets() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 3}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "selectableFields": [{"jsonPath": ".spec.size"}]}],
        },
    })
}

#[tokio::test]
async fn objects_kinds_and_versions_are_there_after_a_restart() {
    let (_parent, folder) = folder();
    let server = open(&folder).await;
    post(&server, DEFINITIONS, &widgets()).await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    post(&server, WIDGETS, &widget).await;
    let labelled = json!({"metadata": {"name": "a", "labels": {"x": "y"}}});
    post(&server, CONFIG_MAPS, &labelled).await;
    post(&server, CONFIG_MAPS, &config_map("gone", &json!({}))).await;
    assert_eq!(call(&server, "DELETE", &format!("{CONFIG_MAPS}/gone"), &Value::Null).await.0, 200);
    let paths = [
        "/api/v1/namespaces",
        "/api/v1/services",
        CONFIG_MAPS,
        DEFINITIONS,
        WIDGETS,
        "/apis/example.com/v1",
        "/api/v1/configmaps?labelSelector=x%3Dy",
        "/apis/example.com/v1/widgets?fieldSelector=spec.size%3D3",
    ];
    let mut before = Vec::new();
    for path in paths {
        before.push(get(&server, path).await);
    }
    assert_eq!(before[7].1["items"].as_array().unwrap().len(), 1, "{}", before[7].1);
    let revision = inside(&server).revision();
    drop(server);
    let server = open(&folder).await;
    assert_eq!(inside(&server).revision(), revision);
    for (path, before) in paths.iter().zip(before) {
        assert_eq!(get(&server, path).await, before, "{path}");
    }
    // The kind is served as before, with its defaults, and revisions continue.
    let again =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "v"}, "spec": {}});
    let made = post(&server, WIDGETS, &again).await;
    assert_eq!((&made["spec"]["size"], version(&made)), (&json!(3), revision + 1));
}

#[tokio::test]
async fn a_watch_from_before_the_restart_resumes_without_a_gap_or_is_expired() {
    let (_parent, folder) = folder();
    let env = Env::system();
    let open = async |history| {
        Server::around(&env, ApiServer::builder(&env).history(history).open(&folder).unwrap()).await
    };
    let server = open(3).await;
    let first = version(&post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await);
    let object = format!("{CONFIG_MAPS}/a");
    for step in 0..3 {
        patch(&server, &object, MERGE, &json!({"data": {"step": step.to_string()}})).await;
    }
    drop(server);
    let server = open(3).await;
    call(&server, "DELETE", &object, &Value::Null).await;
    // The three newest changes are in the history after the restart.
    let from = |version: u64| format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
    let mut watch = Watch::open(&server, &from(first + 1)).await;
    for (kind, step) in [("MODIFIED", 2), ("MODIFIED", 3), ("DELETED", 4)] {
        assert_eq!(watch.event().await, (kind.to_owned(), "a".to_owned(), first + step));
    }
    let expired = Watch::open(&server, &from(first)).await.next().await.unwrap();
    assert_eq!((&expired["type"], &expired["object"]["code"]), (&json!("ERROR"), &json!(410)));
    drop(watch);
    drop(server);
    // A server with a shorter history works, too.
    let server = open(1).await;
    let expired = Watch::open(&server, &from(first + 2)).await.next().await.unwrap();
    assert_eq!(expired["object"]["code"], 410);
    assert_eq!(Watch::open(&server, &from(first + 3)).await.event().await.0, "DELETED");
    inside(&server).compact_now();
    drop(server);
    let expired = Watch::open(&open(3).await, &from(first + 3)).await.next().await.unwrap();
    assert_eq!(expired["object"]["code"], 410);
}

#[tokio::test]
async fn what_waited_for_a_finalizer_goes_on_waiting() {
    let (_parent, folder) = folder();
    let server = open(&folder).await;
    post(&server, DEFINITIONS, &widgets()).await;
    let held = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "finalizers": ["example.com/x"]}});
    post(&server, WIDGETS, &held).await;
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    call(&server, "DELETE", &definition, &Value::Null).await;
    drop(server);
    let server = open(&folder).await;
    assert!(get(&server, &definition).await.1["metadata"]["deletionTimestamp"].is_string());
    let (code, _) =
        patch(&server, &format!("{WIDGETS}/w"), MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!((code, get(&server, &definition).await.0, get(&server, WIDGETS).await.0), (200, 404, 404));
    drop(server);
    assert_eq!(get(&open(&folder).await, WIDGETS).await.0, 404);
}

#[tokio::test]
async fn a_watch_sees_its_kind_go_and_after_a_restart_nothing_is_known_of_it() {
    let (_parent, folder) = folder();
    let server = open(&folder).await;
    post(&server, DEFINITIONS, &widgets()).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let from =
        format!("{WIDGETS}?watch=1&resourceVersion={}", version(&post(&server, WIDGETS, &widget).await));
    let mut watches = [Watch::open(&server, &from).await, Watch::open(&server, &from).await];
    let mut next = Box::pin(watches[0].next());
    assert!(futures::poll!(&mut next).is_pending(), "nothing has happened yet");
    call(&server, "DELETE", &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null).await;
    post(&server, DEFINITIONS, &widgets()).await;
    assert_eq!(next.await.unwrap()["type"], "DELETED");
    assert_eq!(watches[0].next().await, None);
    assert_eq!(watches[1].event().await.0, "DELETED", "also to one that reads late");
    assert_eq!(watches[1].next().await, None);
    drop(watches);
    drop(server);
    let server = open(&folder).await;
    let expired = Watch::open(&server, &from).await.next().await.unwrap();
    assert_eq!(expired["object"]["code"], 410);
    assert_eq!(get(&server, WIDGETS).await.1["items"], json!([]));
}

#[tokio::test]
async fn what_was_written_under_another_schema_is_read_by_the_newest_after_a_restart() {
    let (_parent, folder) = folder();
    let server = open(&folder).await;
    post(&server, DEFINITIONS, &widgets()).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 4}});
    let made = post(&server, WIDGETS, &widget).await;
    let mut versions = widgets()["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        json!({"weight": {"type": "integer", "default": 9}});
    versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.weight"}]);
    let change = json!({"spec": {"versions": versions}});
    patch(&server, &format!("{DEFINITIONS}/widgets.example.com"), MERGE, &change).await;
    let (_, read) = get(&server, &format!("{WIDGETS}/w")).await;
    assert_eq!((&read["spec"], version(&read)), (&json!({"weight": 9}), version(&made)));
    drop(server);
    let server = open(&folder).await;
    assert_eq!(get(&server, &format!("{WIDGETS}/w")).await.1, read);
    assert_eq!(names(&get(&server, &format!("{WIDGETS}?fieldSelector=spec.weight%3D9")).await.1), ["w"]);
}

#[tokio::test]
async fn a_seeded_generator_gives_no_uid_twice() {
    let (_parent, folder) = folder();
    let mut uids = Vec::new();
    for name in ["a", "b"] {
        let server = {
            let env = Env::simulated(1);
            Server::around(&env, ApiServer::builder(&env).open(&folder).unwrap()).await
        };
        let made = post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
        uids.push(made["metadata"]["uid"].clone());
    }
    assert_ne!(uids[0], uids[1]);
}

#[tokio::test]
async fn versions_go_on_though_the_clock_was_set_back() {
    let (_parent, folder) = folder();
    let mut last = 0;
    for time in
        ["2026-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "2030-01-01T00:00:00Z"]
    {
        let env = Env::new(Clock::virtual_at(time.parse().unwrap()), Generator::seeded(1));
        let server = Server::around(&env, ApiServer::builder(&env).open(&folder).unwrap()).await;
        let made = post(&server, CONFIG_MAPS, &config_map(&format!("c{}", &time[..4]), &json!({}))).await;
        assert!(version(&made) > last, "{time}: {} is not after {last}", version(&made));
        last = version(&made);
        // Objects created in the future have an invalid age.
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let (code, table) = raw(&server, "GET", CONFIG_MAPS, &table, "").await;
        assert_eq!(code, 200, "{table}");
    }
}

#[tokio::test]
async fn a_folder_is_for_one_server_at_a_time() {
    let (_parent, folder) = folder();
    let server = open(&folder).await;
    assert!(error(&folder).contains("in use by another server: stop it, or choose another folder"));
    drop(server);
    drop(open(&folder).await);
}

#[test]
fn a_folder_with_files_of_others_is_left_alone() {
    let (_parent, folder) = folder();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("thesis.txt"), "").unwrap();
    assert!(error(&folder).contains("thesis.txt"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let file = folder.join("thesis.txt");
    fs::write(folder.join("token.new.new"), "").unwrap();
    fs::remove_file(&file).unwrap();
    assert!(error(&folder).contains("token.new.new"));
    fs::write(&file, "").unwrap();
    assert!(error(&file).contains("is not a folder"));
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_begun_again() {
    let (_parent, folder) = folder();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("state.redb.new"), "half").unwrap();
    drop(open(&folder).await);
    assert!(!folder.join("state.redb.new").exists());
}

#[tokio::test]
async fn another_format_is_refused_and_not_touched() {
    let (_parent, folder) = folder();
    drop(open(&folder).await);
    for (format, remedy) in
        [(3, "use the newer watchkeeper that wrote it"), (1, "use the older watchkeeper that wrote it")]
    {
        let state = redb::TableDefinition::<&str, u64>::new("state");
        let database = redb::Database::open(folder.join("state.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(state).unwrap().insert("format", format).unwrap();
        transaction.commit().unwrap();
        drop(database);
        assert!(error(&folder).contains(remedy));
    }
}

#[tokio::test]
async fn a_damaged_folder_is_refused_with_a_remedy() {
    let (_parent, folder) = folder();
    let server = open(&folder).await;
    for name in 0..50 {
        post(&server, CONFIG_MAPS, &config_map(&format!("c{name}"), &json!({"k": "v".repeat(500)}))).await;
    }
    drop(server);
    let file = folder.join("state.redb");
    let sound = fs::read(&file).unwrap();
    // In the object data: their text is no longer the JSON of that revision.
    let at = sound.windows(8).position(|bytes| bytes == b"vvvvvvvv").unwrap();
    let mut spoilt = sound.clone();
    spoilt[at - 200..at].fill(0);
    for (what, bytes) in [
        ("garbage", vec![7; 5000]),
        ("cut short", sound[..sound.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("spoilt", spoilt),
    ] {
        fs::write(&file, bytes).unwrap();
        let text = error(&folder);
        assert!(
            text.contains("damaged") && text.contains("remove the folder to start afresh"),
            "{what}: {text}"
        );
    }
    fs::write(&file, sound).unwrap();
    assert_eq!(get(&open(&folder).await, CONFIG_MAPS).await.1["items"].as_array().unwrap().len(), 50);
}

#[tokio::test]
async fn a_copy_of_the_whole_folder_can_be_brought_back_and_a_part_of_it_is_refused() {
    let (_parent, folder) = folder();
    let copy = |to: &mut Vec<(PathBuf, Vec<u8>)>| {
        let paths = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        to.extend(paths.map(|path| (path.clone(), fs::read(path).unwrap())));
    };
    let mut older = Vec::new();
    for name in ["a", "b"] {
        let server = open(&folder).await;
        post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
        drop(server);
        if older.is_empty() {
            copy(&mut older);
        }
    }
    let (_, database) = older.iter().find(|(path, _)| path.ends_with("state.redb")).unwrap();
    fs::write(folder.join("state.redb"), database).unwrap();
    for _ in 0..2 {
        let text = error(&folder);
        assert!(text.contains("a copy of the whole folder including its file `lock`"), "{text}");
        assert!(text.contains("without `lock` it is opened as it is"), "{text}");
    }
    for (path, contents) in &older {
        fs::write(path, contents).unwrap();
    }
    let server = open(&folder).await;
    assert_eq!(names(&get(&server, CONFIG_MAPS).await.1), ["a"]);
    post(&server, CONFIG_MAPS, &config_map("c", &json!({}))).await;
    drop(server);
    assert_eq!(names(&get(&open(&folder).await, CONFIG_MAPS).await.1), ["a", "c"]);
    // The remedy of the error message.
    fs::write(folder.join("state.redb"), database).unwrap();
    fs::remove_file(folder.join("lock")).unwrap();
    assert_eq!(names(&get(&open(&folder).await, CONFIG_MAPS).await.1), ["a"]);
}

#[cfg(unix)]
#[tokio::test]
async fn what_others_have_planted_under_an_unfinished_name_receives_no_secret() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let names = ["state.redb", "ca.pem", "token"];
    for how in ["a link", "a dangling link", "another name of a file"] {
        let (parent, folder) = folder();
        fs::create_dir(&folder).unwrap();
        for name in names {
            let (planted, theirs) = (folder.join(format!("{name}.new")), parent.path().join(name));
            if how != "a dangling link" {
                fs::write(&theirs, "theirs").unwrap();
            }
            match how {
                "another name of a file" => fs::hard_link(&theirs, &planted).unwrap(),
                _ => symlink(&theirs, &planted).unwrap(),
            }
        }
        let _server = open(&folder).await;
        Credentials::kept_in(&folder).unwrap();
        for name in names {
            let there = fs::read(parent.path().join(name)).ok();
            let before = (how != "a dangling link").then(|| b"theirs".to_vec());
            assert!(there == before, "{how}: {name} went elsewhere");
            let made = fs::symlink_metadata(folder.join(name)).unwrap();
            assert_eq!(
                (made.is_file(), made.mode() & 0o777, made.nlink()),
                (true, 0o600, 1),
                "{how}: {name}"
            );
            assert!(fs::symlink_metadata(folder.join(format!("{name}.new"))).is_err(), "{how}: {name}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let (_parent, folder) = folder();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    drop(open(&folder).await);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("state.redb"))), (0o700, 0o600));
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_or_a_file_in_it_that_others_may_have_put_there_is_refused() {
    use std::os::unix::fs::{chown, symlink};
    let (parent, folder) = folder();
    drop(open(&folder).await);
    Credentials::kept_in(&folder).unwrap();
    let refused = |path: &Path| {
        let error = ApiServer::builder(&Env::system()).open(path).unwrap_err();
        let DataDirError::NotOwn { path, problem } = error else { panic!("{error}") };
        (path, problem)
    };
    let link = parent.path().join("link");
    symlink(&folder, &link).unwrap();
    for link in [link.clone(), link.join(""), link.join(".")] {
        assert_eq!(refused(&link), (link, "is a symbolic link"));
    }
    let aside = parent.path().join("aside");
    for name in ["lock", "state.redb", "ca.pem", "token"] {
        let file = folder.join(name);
        fs::rename(&file, &aside).unwrap();
        symlink(&aside, &file).unwrap();
        assert_eq!(refused(&folder), (file.clone(), "is a symbolic link"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(refused(&folder), (file.clone(), "is not a file"));
        fs::remove_dir(&file).unwrap();
        fs::rename(&aside, &file).unwrap();
    }
    // Only root can change the owner; other users take a file of root's.
    let theirs = match rustix::process::geteuid().is_root() {
        true => {
            chown(folder.join("token"), Some(12_345), None).unwrap();
            assert_eq!(refused(&folder), (folder.join("token"), "belongs to another user"));
            let error = Credentials::kept_in(&folder).unwrap_err().to_string();
            assert!(error.contains("token belongs to another user: remove it"), "{error}");
            chown(&folder, Some(12_345), None).unwrap();
            folder
        }
        false => "/".into(),
    };
    assert_eq!(refused(&theirs), (theirs, "belongs to another user"));
}

#[tokio::test]
async fn errors_can_be_distinguished() {
    let (_parent, folder) = folder();
    let _server = open(&folder).await;
    let error = ApiServer::builder(&Env::system()).open(&folder).unwrap_err();
    assert!(matches!(error, DataDirError::InUse(named) if named == folder));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, bool),
    Delete(u8),
    Compact,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_u8, any::<bool>()).prop_map(|(name, label)| Step::Put(name, label)),
        3 => (0..4_u8).prop_map(Step::Delete),
        1 => Just(Step::Compact),
        3 => Just(Step::Restart),
    ]
}

async fn apply(server: &Server, step: &Step) {
    match step {
        Step::Put(name, label) => {
            let body = json!({"metadata": {"name": format!("c{name}"), "labels": {"in": label.to_string()}}});
            if call(server, "POST", CONFIG_MAPS, &body).await.0 == 409 {
                patch(server, &format!("{CONFIG_MAPS}/c{name}"), MERGE, &body).await;
            }
        }
        Step::Delete(name) => {
            drop(call(server, "DELETE", &format!("{CONFIG_MAPS}/c{name}"), &Value::Null).await)
        }
        Step::Compact => inside(server).compact_now(),
        Step::Restart => {}
    }
}

/// Reads everything a client can see of the config maps, current and past, with random parts masked.
async fn seen(server: &Server, first: u64) -> Vec<String> {
    let mut seen = vec![inside(server).revision().to_string()];
    let show = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", metadata["name"], metadata["resourceVersion"], metadata["labels"])
    };
    for at in first..=inside(server).revision() {
        let path = format!("{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=Exact");
        let (code, list) = get(server, &path).await;
        let items = list["items"].as_array().into_iter().flatten().map(show);
        seen.push(format!("list {at}: {code} {:?}", items.collect::<Vec<_>>()));
        // The timeout runs on a paused clock: it fires once nothing else is left to do.
        let path =
            format!("{CONFIG_MAPS}?watch=1&resourceVersion={at}&timeoutSeconds=1&labelSelector=in%3Dtrue");
        let mut watch = Watch::open(server, &path).await;
        while let Some(event) = watch.next().await {
            seen.push(format!("watch {at}: {} {}", event["type"], show(&event["object"])));
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn restarts_change_nothing_that_can_be_seen(steps in prop::collection::vec(step(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_parent, folder) = folder();
            let env = Env::simulated(1);
            let builder = || ApiServer::builder(&Env::simulated(1)).history(6);
            let reference = Server::around(&env, builder().build()).await;
            let mut server = Server::around(&env, builder().open(&folder).unwrap()).await;
            let first = inside(&server).revision();
            for step in &steps {
                apply(&reference, step).await;
                apply(&server, step).await;
                if matches!(step, Step::Restart) {
                    drop(server);
                    server = Server::around(&env, builder().open(&folder).unwrap()).await;
                }
            }
            prop_assert_eq!(seen(&reference, first).await, seen(&server, first).await);
            Ok(())
        })?;
    }
}
