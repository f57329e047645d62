//! Rollouts without a server: plans are carried out on ReplicaSets in memory.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::plan::{Plan, World, plan};
use super::sets::{REVISION, Set};
use super::status::Status;

/// A Deployment, its ReplicaSets, and a ReplicaSet controller that needs no time.
struct Rollout {
    deployment: Deployment,
    sets: Vec<ReplicaSet>,
    now: Timestamp,
    /// Sets whose Pods never get ready.
    broken: Vec<String>,
    /// The number of Pods after each step: all, and available ones.
    steps: Vec<(i32, i32)>,
}

impl Rollout {
    fn new(replicas: i32, more: &Value) -> Self {
        let mut spec = json!({
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": template("a"), "progressDeadlineSeconds": 600, "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let deployment = json!({"metadata": {"name": "web", "uid": "d", "generation": 1}, "spec": spec});
        Self {
            deployment: serde_json::from_value(deployment).unwrap(),
            sets: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            broken: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn edit(&mut self, edit: impl FnOnce(&mut k8s_openapi::api::apps::v1::DeploymentSpec)) {
        edit(self.deployment.spec.as_mut().unwrap());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    fn use_image(&mut self, image: &str) {
        self.edit(|spec| spec.template = serde_json::from_value(template(image)).unwrap());
    }

    fn status(&self) -> Status {
        let status = self.deployment.status.as_ref().map(|status| serde_json::to_value(status).unwrap());
        status.map(|status| serde_json::from_value(status).unwrap()).unwrap_or_default()
    }

    fn condition(&self, of: &str) -> (String, String) {
        let status = self.status();
        let condition = status.condition(of).unwrap();
        (condition.status.clone(), condition.reason.clone().unwrap())
    }

    fn plan(&self) -> Plan {
        let sets = self.sets.iter().map(|set| Set::new(Arc::new(set.clone()))).collect();
        let status = self.status();
        plan(World { deployment: &self.deployment, sets, old_pods_run: false, status, now: self.now })
    }

    /// Carries out one plan; returns whether it changed anything.
    fn step(&mut self) -> bool {
        let before = (self.sets.clone(), self.deployment.clone());
        let plan = self.plan();
        if let Some(mut set) = plan.create {
            set.metadata.creation_timestamp = Some(
                serde_json::from_value(json!(format!("2026-01-01T00:{:02}:00Z", self.sets.len()))).unwrap(),
            );
            self.sets.push(set);
        }
        for change in plan.change {
            let set =
                self.sets.iter_mut().find(|set| set.metadata.name.as_deref() == Some(change.name())).unwrap();
            set.metadata.annotations = Some(change.annotations);
            set.spec.as_mut().unwrap().replicas = Some(change.replicas);
        }
        self.sets.retain(|set| !plan.delete.contains(set.metadata.name.as_ref().unwrap()));
        if let Some(revision) = plan.revision {
            let annotations = self.deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(REVISION.to_owned(), revision);
        }
        let status = serde_json::to_value(plan.status).unwrap();
        self.deployment.status = Some(serde_json::from_value(status).unwrap());
        self.run_pods();
        before != (self.sets.clone(), self.deployment.clone())
    }

    /// Does what the ReplicaSet controller does.
    fn run_pods(&mut self) {
        let (mut all, mut available) = (0, 0);
        for set in &mut self.sets {
            let replicas = set.spec.as_ref().unwrap().replicas.unwrap();
            let image = set.spec.as_ref().unwrap().template.as_ref().unwrap().spec.as_ref().unwrap();
            let is_broken = self.broken.contains(image.containers[0].image.as_ref().unwrap());
            let ready = if is_broken { 0 } else { replicas };
            let status = json!({"replicas": replicas, "readyReplicas": ready, "availableReplicas": ready});
            set.status = Some(serde_json::from_value(status).unwrap());
            (all, available) = (all + replicas, available + ready);
        }
        self.steps.push((all, available));
    }

    fn run(&mut self) {
        let steps = (0..100).take_while(|_| self.step()).count();
        assert!(steps < 100, "the rollout does not come to rest");
    }

    /// Images and replicas of the sets, the oldest first.
    fn sets(&self) -> Vec<(String, i32)> {
        let of = |set: &ReplicaSet| {
            let spec = set.spec.as_ref().unwrap();
            let pod = spec.template.as_ref().unwrap().spec.as_ref().unwrap();
            (pod.containers[0].image.clone().unwrap(), spec.replicas.unwrap())
        };
        self.sets.iter().map(of).collect()
    }

    fn revisions(&self) -> Vec<&str> {
        self.sets.iter().map(|set| set.metadata.annotations.as_ref().unwrap()[REVISION].as_str()).collect()
    }
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": image}]}})
}

fn named(sets: &[(&str, i32)]) -> Vec<(String, i32)> {
    sets.iter().map(|(image, replicas)| ((*image).to_owned(), *replicas)).collect()
}

#[test]
fn a_new_deployment_gets_a_set_and_becomes_available() {
    let mut rollout = Rollout::new(3, &json!({}));
    assert!(rollout.step());
    assert_eq!(rollout.condition("Progressing"), ("True".into(), "NewReplicaSetCreated".into()));
    assert_eq!(rollout.condition("Available"), ("False".into(), "MinimumReplicasUnavailable".into()));
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 3)]));
    assert_eq!(rollout.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(rollout.condition("Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    let status = rollout.status();
    assert_eq!(
        (status.replicas, status.updated_replicas, status.unavailable_replicas),
        (Some(3), Some(3), None)
    );
    assert_eq!(rollout.revisions(), ["1"]);
}

#[test]
fn a_rolling_update_keeps_within_its_limits() {
    for (surge, unavailable) in
        [(json!(1), json!(0)), (json!(0), json!(1)), (json!("25%"), json!("25%")), (json!(9), json!(9))]
    {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let mut rollout = Rollout::new(8, &json!({"strategy": rolling}));
        rollout.run();
        rollout.use_image("b");
        rollout.steps.clear();
        rollout.run();
        assert_eq!(rollout.sets(), named(&[("a", 0), ("b", 8)]));
        let limits = super::limits::Limits::of(&rollout.deployment);
        for (all, available) in &rollout.steps {
            assert!(
                *all <= limits.most() && *available >= limits.fewest(),
                "{surge} {unavailable}: {:?}",
                rollout.steps
            );
        }
    }
}

#[test]
fn going_back_to_a_template_reuses_its_set_with_a_new_revision() {
    let mut rollout = Rollout::new(2, &json!({}));
    for image in ["a", "b", "a"] {
        rollout.use_image(image);
        rollout.run();
    }
    assert_eq!(rollout.sets(), named(&[("a", 2), ("b", 0)]));
    assert_eq!(rollout.revisions(), ["3", "2"]);
    let annotations = rollout.sets[0].metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(rollout.deployment.metadata.annotations.as_ref().unwrap()[REVISION], "3");
}

#[test]
fn old_sets_beyond_the_history_limit_are_deleted() {
    let mut rollout = Rollout::new(1, &json!({}));
    for image in ["a", "b", "c", "d", "e"] {
        rollout.use_image(image);
        rollout.run();
    }
    assert_eq!(rollout.sets(), named(&[("c", 0), ("d", 0), ("e", 1)]));
}

#[test]
fn a_broken_template_stops_the_rollout_and_times_out() {
    let mut rollout = Rollout::new(4, &json!({}));
    rollout.run();
    rollout.broken.push("b".to_owned());
    rollout.use_image("b");
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 3), ("b", 2)]));
    let wake = rollout.plan().wake.unwrap();
    rollout.now = rollout.now.checked_add(wake).unwrap();
    rollout.run();
    assert_eq!(rollout.condition("Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(rollout.plan().wake, None);
    rollout.use_image("a");
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 4), ("b", 0)]));
    assert_eq!(rollout.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn a_paused_deployment_is_scaled_and_not_rolled_out() {
    let mut rollout = Rollout::new(2, &json!({}));
    rollout.run();
    rollout.edit(|spec| spec.paused = Some(true));
    rollout.use_image("b");
    rollout.edit(|spec| spec.replicas = Some(5));
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 5)]));
    assert_eq!(rollout.condition("Progressing"), ("Unknown".into(), "DeploymentPaused".into()));
    rollout.edit(|spec| spec.paused = None);
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 0), ("b", 5)]));
    assert_eq!(rollout.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn recreate_ends_the_old_pods_first() {
    let mut rollout = Rollout::new(3, &json!({"strategy": {"type": "Recreate"}}));
    rollout.run();
    rollout.use_image("b");
    rollout.steps.clear();
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 0), ("b", 3)]));
    assert!(rollout.steps.iter().all(|(all, _)| *all <= 3), "{:?}", rollout.steps);
    assert!(rollout.steps.contains(&(0, 0)));
}

#[test]
fn recreate_waits_until_the_old_set_says_that_it_has_no_pods() {
    let mut rollout = Rollout::new(3, &json!({"strategy": {"type": "Recreate"}}));
    rollout.run();
    rollout.use_image("b");
    rollout.step();
    // Its Pods are gone, but its controller has not said so yet.
    rollout.sets[0].status.as_mut().unwrap().replicas = 3;
    assert!(rollout.plan().create.is_none());
    rollout.sets[0].status.as_mut().unwrap().replicas = 0;
    assert!(rollout.plan().create.is_some());
}

#[test]
fn a_deployment_is_scaled_in_the_middle_of_a_rollout() {
    let mut rollout = Rollout::new(6, &json!({}));
    rollout.run();
    rollout.broken.push("b".to_owned());
    rollout.use_image("b");
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 5), ("b", 2)]));
    rollout.edit(|spec| spec.replicas = Some(13));
    rollout.run();
    assert_eq!(rollout.sets().iter().map(|(_, replicas)| replicas).sum::<i32>(), 14);
    assert!(rollout.sets()[1].1 > 2, "{:?}", rollout.sets());
    rollout.edit(|spec| spec.replicas = Some(0));
    rollout.run();
    assert_eq!(rollout.sets(), named(&[("a", 0), ("b", 0)]));
}
