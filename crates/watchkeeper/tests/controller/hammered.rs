//! An unshared informer under many concurrent changes, resyncs and lists: it ends in the server's state, and notifies
//! only real changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper::source::{ByteStream, ListOptions, ListerWatcher, WatchOptions};
use watchkeeper::wire::ApiError;

use crate::UnsharedInformer;
use crate::common::{QUEUES, cached, event, gone, parse, settle};

/// An API server of one kind: lists, watches that replay what came after their version, and ways to disturb them.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    version: u64,
    objects: BTreeMap<String, u64>,
    /// By version, the event of that version as a line of a watch.
    history: Vec<(u64, String)>,
    /// By name, the versions that it had, 0 for a delete.
    states: BTreeMap<String, Vec<u64>>,
    watchers: Vec<UnboundedSender<String>>,
}

impl Server {
    /// Creates or changes `name`, or deletes it.
    fn change(&self, name: &str, is_delete: bool) {
        let mut server = self.0.lock();
        let before = server.objects.get(name).copied();
        let verb = match (before, is_delete) {
            (None, true) => return,
            (Some(_), true) => "DELETED",
            (None, false) => "ADDED",
            (Some(_), false) => "MODIFIED",
        };
        // A list of nothing has a version as well.
        server.version = server.version.max(1) + 1;
        let version = server.version;
        if is_delete {
            server.objects.remove(name);
        } else {
            server.objects.insert(name.to_owned(), version);
        }
        server.states.entry(name.to_owned()).or_default().push(if is_delete { 0 } else { version });
        let line = event(verb, &format!("{name}@{version}"));
        server.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
        server.history.push((version, line));
    }

    /// Ends all watches, with a 410 or by closing them.
    fn disturb(&self, is_gone: bool) {
        for watcher in std::mem::take(&mut self.0.lock().watchers) {
            if is_gone {
                let _nobody_reads = watcher.send(gone());
            }
        }
    }

    fn items(&self) -> Vec<String> {
        sorted(&self.0.lock().objects)
    }

    /// Waits, for at most so many seconds, until the store of `world` shows what is here.
    async fn until_shown_by(&self, unshared: &UnsharedInformer<Self>, seconds: u32) {
        for _ in 0..seconds * 10 {
            if cached(&unshared.store) == self.items() {
                return;
            }
            unshared.env.clock.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(cached(&unshared.store), self.items());
    }

    /// Checks that every state in `lines` follows the previous one and existed on the server, and that none is
    /// repeated.
    fn check(&self, lines: Vec<String>) {
        let (server, mut told) = (self.0.lock(), BTreeMap::<String, String>::new());
        for line in lines {
            if let Some(added) = line.strip_prefix("+ ") {
                let (name, version) = added.split_once('@').unwrap();
                let version = version.trim_end_matches(" initial");
                assert!(server.states[name].contains(&version.parse().unwrap()));
                assert_eq!(told.insert(name.to_owned(), version.to_owned()), None, "{line}");
            } else if let Some(gone) = line.strip_prefix("- ") {
                let (name, _) = gone.split_once('@').unwrap();
                assert!(told.remove(name).is_some(), "{line}");
            } else if let Some(again) = line.strip_prefix("= ") {
                let (name, version) = again.split_once('@').unwrap();
                assert_eq!(told.get(name).map(String::as_str), Some(version), "{line}");
            } else {
                let (name, change) = line.split_once(' ').unwrap();
                let (old, new) = change.split_once("->").unwrap();
                assert!(server.states[name].contains(&new.parse().unwrap()));
                assert!(old.parse::<u64>().unwrap() <= new.parse().unwrap(), "{line} goes back");
                assert_eq!(told.insert(name.to_owned(), new.to_owned()).as_deref(), Some(old));
            }
        }
        assert_eq!(sorted(&told), sorted(&server.objects));
    }
}

/// `name@version`, as [`cached`] shows a store.
fn sorted<V: std::fmt::Display>(objects: &BTreeMap<String, V>) -> Vec<String> {
    let mut all: Vec<_> = objects.iter().map(|(name, version)| format!("{name}@{version}")).collect();
    all.sort();
    all
}

impl ListerWatcher for Server {
    async fn list(&self, _options: &ListOptions) -> Result<ByteStream, ApiError> {
        let items: Vec<_> = self.items().iter().map(|item| parse(item)).collect();
        let version = self.0.lock().version.max(1).to_string();
        let body = json!({"metadata": {"resourceVersion": version}, "items": items}).to_string();
        Ok(Box::pin(futures::stream::iter([Ok(body.into())])))
    }

    async fn watch(&self, options: &WatchOptions) -> Result<ByteStream, ApiError> {
        let (sender, receiver) = unbounded_channel();
        let (mut server, from) = (self.0.lock(), options.version.as_number().unwrap());
        for (_, line) in server.history.iter().filter(|(version, _)| *version > from) {
            sender.send(line.clone()).unwrap();
        }
        server.watchers.push(sender);
        Ok(Box::pin(futures::stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|line| (Ok(line.into()), receiver))
        })))
    }

    fn streams_lists(&self) -> bool {
        false
    }
}

// client-go: TestHammerController, TestUpdate
#[tokio::test(start_paused = true)]
async fn under_many_changes_and_resyncs_the_store_ends_as_the_server_says() {
    for kind in QUEUES {
        let server = Server::default();
        let unshared =
            UnsharedInformer::new(Env::simulated(1), server.clone(), kind, Duration::from_millis(100));
        let task = unshared.start();
        unshared.until_synced().await;
        let chance = Generator::seeded(7);
        for _ in 2..3000 {
            server.change(&format!("o{}", chance.below(20)), chance.below(3) == 0);
            if chance.below(10) == 0 {
                unshared.env.clock.sleep(Duration::from_millis(chance.below(30))).await;
            }
        }
        settle(&unshared.env).await;
        assert_eq!(cached(&unshared.store), server.items());
        let lines = unshared.log.take();
        let is_of_a_list = |line: &String| line.ends_with(" initial") || line.ends_with(" tombstone");
        assert!(!lines.iter().any(is_of_a_list), "all came through one watch");
        server.check(lines);
        unshared.end(task).await;
    }
}

// client-go: TestUpdate
#[tokio::test(start_paused = true)]
async fn only_transitions_that_happened_are_told_and_everything_is_deleted_in_the_end() {
    // What happens to an object: put and delete.
    const PLAYS: [&str; 5] = ["pd", "ppd", "pppd", "pdpd", "pdppd"];
    for kind in QUEUES {
        let server = Server::default();
        server.change("there-before", false);
        let unshared =
            UnsharedInformer::new(Env::simulated(3), server.clone(), kind, Duration::from_millis(7));
        let task = unshared.start();
        unshared.until_synced().await;
        let mut plays = Vec::new();
        for (n, play) in PLAYS.iter().cycle().take(50).enumerate() {
            let (server, env) = (server.clone(), unshared.env.fork(&n.to_string()));
            plays.push(tokio::spawn(async move {
                for step in play.chars() {
                    env.clock.sleep(Duration::from_millis(env.generator.below(10))).await;
                    server.change(&format!("o{n}"), step == 'd');
                }
            }));
        }
        for play in plays {
            play.await.unwrap();
        }
        server.change("there-before", true);
        server.until_shown_by(&unshared, 10).await;
        assert!(unshared.store.snapshot().is_empty());
        let lines = unshared.log.take();
        // Changed by one step: nothing is skipped while the watch goes on.
        let states = server.0.lock().states.clone();
        for line in lines.iter().filter_map(|line| line.split_once("->")) {
            let (name, old) = line.0.split_once(' ').unwrap();
            let step = [old.parse::<u64>().unwrap(), line.1.parse().unwrap()];
            assert!(states[name].windows(2).any(|window| window == step), "{line:?}");
        }
        let deletes = states.values().flatten().filter(|version| **version == 0).count();
        assert_eq!(lines.iter().filter(|line| line.starts_with("- ")).count(), deletes);
        server.check(lines);
        unshared.end(task).await;
    }
}

// client-go: TestHammerController
#[tokio::test(start_paused = true)]
async fn changes_from_many_sides_amid_resyncs_and_relists_neither_hang_nor_get_lost() {
    for kind in QUEUES {
        for seed in 1..=5 {
            let server = Server::default();
            let unshared =
                UnsharedInformer::new(Env::simulated(seed), server.clone(), kind, Duration::from_millis(100));
            let task = unshared.start();
            unshared.until_synced().await;
            let mut sides = Vec::new();
            for side in 0..10 {
                let (server, env) = (server.clone(), unshared.env.fork(&format!("side {side}")));
                sides.push(tokio::spawn(async move {
                    for _ in 0..200 {
                        let name = format!("o{}", env.generator.below(30));
                        match env.generator.below(100) {
                            0 => server.disturb(true),
                            1 => server.disturb(false),
                            chance => server.change(&name, chance < 30),
                        }
                        env.clock.sleep(Duration::from_millis(env.generator.below(50))).await;
                    }
                }));
            }
            for side in sides {
                side.await.unwrap();
            }
            server.until_shown_by(&unshared, 300).await;
            server.check(unshared.log.take());
            assert!(unshared.informer.health().lists > 1);
            unshared.end(task).await;
            assert!(server.0.lock().watchers.iter().all(UnboundedSender::is_closed));
        }
    }
}

// client-go: TestHammerController
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hammered_informer_on_several_threads_ends_as_the_server_says() {
    for kind in QUEUES {
        let (env, server) = (Env::new(Clock::system(), Generator::seeded(1)), Server::default());
        let unshared = UnsharedInformer::new(env, server.clone(), kind, Duration::from_millis(5));
        let task = unshared.start();
        unshared.until_synced().await;
        let mut sides = Vec::new();
        for side in 0..8 {
            let (server, env) = (server.clone(), unshared.env.fork(&format!("side {side}")));
            sides.push(tokio::spawn(async move {
                for _ in 0..300 {
                    server.change(&format!("o{}", env.generator.below(30)), env.generator.below(3) == 0);
                    tokio::task::yield_now().await;
                }
            }));
        }
        for side in sides {
            side.await.unwrap();
        }
        server.until_shown_by(&unshared, 30).await;
        unshared.end(task).await;
        server.check(unshared.log.take());
    }
}
