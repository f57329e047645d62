//! A replica of a workload as JSON, as the API server writes it: in its field order, with defaults.

use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use super::super::pod::{CHECKPOINT, Draft, Part, TRACK, time};
use super::super::world::NamedPod;
use super::draw::{happens, hex, letters, phrase, unique_suffix, word};
use super::managed;
use super::workload::{Container, Env, Owner, Volume, Workload};

/// What is one replica's own.
struct Replica {
    name: String,
    /// The suffix of the volume that holds the service account's token.
    token: String,
    node: u64,
    ip: String,
    created: String,
    /// When it became ready.
    ready: String,
    version: u64,
}

/// Pod `index` of `count`: a replica of `workload`.
pub(super) fn pod(workload: &Workload, index: u32, count: u32, chance: &Generator) -> NamedPod {
    // Unique, in no order of names, and below the version of the list.
    let step = 9_000_000 / u64::from(count.max(1));
    let age = chance.below(9_000_000) as i64;
    let replica = Replica {
        name: format!("{}-{}", workload.name, unique_suffix(index)),
        token: letters(chance, 5),
        node: chance.below(u64::from(count) / 40 + 3),
        ip: format!("10.{}.{}.{}", 1 + chance.below(250), chance.below(256), 1 + chance.below(254)),
        created: time(-age).to_string(),
        ready: time(5 + chance.below(90) as i64 - age.max(100)).to_string(),
        version: 1_000_000 + u64::from(index) * step + chance.below(step.max(1)),
    };
    let mut draft = Draft::default();
    put_metadata(&mut draft, workload, &replica, chance);
    put_spec(&mut draft, workload, &replica);
    put_status(&mut draft, workload, &replica, chance);
    (format!("{}/{}", workload.namespace, replica.name), draft.finish())
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn rules(chance: &Generator) -> String {
    let rule = |number| {
        let (when, then) = (phrase(chance, 3), word(chance));
        json!({"number": number, "when": when, "then": then, "id": hex(chance, 24)})
    };
    format!("{:#}\n", Value::from_iter((0..4 + chance.below(40)).map(rule)))
}

fn put_metadata(draft: &mut Draft, workload: &Workload, replica: &Replica, chance: &Generator) {
    draft.put(format_args!(
        r#"{{"metadata":{{"name":"{}","generateName":"{}-","namespace":"{}","uid":""#,
        replica.name, workload.name, workload.namespace
    ));
    draft.slot(Part::Uid, &chance.uuid());
    draft.raw(r#"","resourceVersion":""#);
    draft.slot(Part::ResourceVersion, &replica.version.to_string());
    draft.raw(r#"","generation":1,"creationTimestamp":""#);
    draft.slot(Part::Created, &replica.created);
    draft.raw(r#"","labels":{"#);
    for (key, value) in &workload.labels {
        draft.put(format_args!(r#""{key}":"{value}","#));
    }
    draft.put(format_args!(r#""{TRACK}":""#));
    draft.slot(Part::Track, "stable");
    draft.raw(r#""},"annotations":{"#);
    for (key, value) in &workload.annotations {
        draft.put(format_args!(r#""{key}":{},"#, quoted(value)));
    }
    if happens(chance, 4) {
        // A few are large, and full of characters that JSON escapes.
        draft.put(format_args!(r#""example.com/applied-rules":{},"#, quoted(&rules(chance))));
    }
    draft.put(format_args!(r#""{CHECKPOINT}":""#));
    draft.slot(Part::Checkpoint, &hex(chance, 40));
    let (api_version, kind) = match workload.owner {
        Owner::ReplicaSet => ("apps/v1", "ReplicaSet"),
        Owner::DaemonSet => ("apps/v1", "DaemonSet"),
        Owner::Job => ("batch/v1", "Job"),
    };
    draft.put(format_args!(
        r#""}},"ownerReferences":[{{"apiVersion":"{api_version}","kind":"{kind}","name":"{}","uid":"{}","controller":true,"blockOwnerDeletion":true}}],"#,
        workload.name, workload.uid
    ));
    managed::put(draft, workload, &replica.ip, &replica.created, &replica.ready);
    draft.raw(r#"},"spec":{"#);
}

fn put_spec(draft: &mut Draft, workload: &Workload, replica: &Replica) {
    draft.raw(r#""volumes":["#);
    for volume in &workload.volumes {
        match volume {
            Volume::ConfigMap(name) => draft.put(format_args!(
                r#"{{"name":"{name}","configMap":{{"name":"{name}","defaultMode":420}}}},"#
            )),
            Volume::Secret(name) => draft.put(format_args!(
                r#"{{"name":"{name}","secret":{{"secretName":"{name}","defaultMode":420}}}},"#
            )),
            Volume::EmptyDir(name) => draft.put(format_args!(r#"{{"name":"{name}","emptyDir":{{}}}},"#)),
        }
    }
    draft.put(format_args!(
        r#"{{"name":"kube-api-access-{}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace","fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],"defaultMode":420}}}}],"containers":["#,
        replica.token
    ));
    draft.each(&workload.containers, |draft, container| put_container(draft, container, workload, replica));
    let restart = if workload.owner == Owner::Job { "OnFailure" } else { "Always" };
    draft.put(format_args!(
        r#"],"restartPolicy":"{restart}","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","#
    ));
    if let Some(pool) = &workload.node_pool {
        draft.put(format_args!(r#""nodeSelector":{{"example.com/pool":"{pool}"}},"#));
    }
    draft.put(format_args!(
        r#""serviceAccountName":"{0}","serviceAccount":"{0}","nodeName":"{1}","securityContext":{{}},"#,
        workload.service_account,
        node_name(replica.node)
    ));
    if workload.owner == Owner::DaemonSet {
        draft.put(format_args!(
            r#""affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{{"matchFields":[{{"key":"metadata.name","operator":"In","values":["{}"]}}]}}]}}}}}},"#,
            node_name(replica.node)
        ));
    }
    draft.raw(r#""schedulerName":"default-scheduler","tolerations":["#);
    if workload.owner == Owner::DaemonSet {
        let taints = [
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        ];
        draft.each(taints, |draft, (taint, effect)| {
            draft.put(format_args!(
                r#"{{"key":"node.kubernetes.io/{taint}","operator":"Exists","effect":"{effect}"}}"#
            ));
        });
    } else {
        draft.each(["not-ready", "unreachable"], |draft, taint| {
            draft.put(format_args!(r#"{{"key":"node.kubernetes.io/{taint}","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}"#));
        });
    }
    let priority = if workload.critical {
        r#""priorityClassName":"system-node-critical","priority":2000001000"#
    } else {
        r#""priority":0"#
    };
    draft.put(format_args!(
        r#"],{priority},"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"#
    ));
}

fn node_name(node: u64) -> String {
    format!("ip-10-0-{}-{}.eu-central-1.compute.internal", node / 250, node % 250)
}

fn put_container(draft: &mut Draft, container: &Container, workload: &Workload, replica: &Replica) {
    draft.put(format_args!(r#"{{"name":"{}","image":"{}","args":["#, container.name, container.image));
    draft.each(&container.args, |draft, arg| draft.put(format_args!(r#""{arg}""#)));
    draft.raw("],");
    if !container.ports.is_empty() {
        draft.raw(r#""ports":["#);
        draft.each(&container.ports, |draft, (name, port)| {
            draft.put(format_args!(r#"{{"name":"{name}","containerPort":{port},"protocol":"TCP"}}"#));
        });
        draft.raw("],");
    }
    if !container.env.is_empty() {
        draft.raw(r#""env":["#);
        draft.each(&container.env, put_env);
        draft.raw("],");
    }
    match container.resources {
        Some(resources) => {
            draft.raw(r#""resources":"#);
            put_resources(draft, resources);
        }
        None => draft.raw(r#""resources":{}"#),
    }
    draft.raw(r#","volumeMounts":["#);
    for (volume, path) in &container.mounts {
        draft.put(format_args!(r#"{{"name":"{}","mountPath":"{path}"}},"#, workload.volumes[*volume].name()));
    }
    draft.put(format_args!(
        r#"{{"name":"kube-api-access-{}","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"#,
        replica.token
    ));
    let port = container.ports.first().map_or(8080, |(_, port)| *port);
    for (wanted, probe, path) in
        [(container.liveness, "livenessProbe", "/livez"), (container.readiness, "readinessProbe", "/readyz")]
    {
        if wanted {
            draft.put(format_args!(
                r#""{probe}":{{"httpGet":{{"path":"{path}","port":{port},"scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"#
            ));
        }
    }
    draft.raw(r#""terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent""#);
    if container.locked_down {
        draft.raw(r#","securityContext":{"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false}"#);
    }
    draft.raw("}");
}

fn put_resources(draft: &mut Draft, [cpu, memory, cpu_limit, memory_limit]: [u64; 4]) {
    draft.put(format_args!(
        r#"{{"limits":{{"cpu":"{cpu_limit}m","memory":"{memory_limit}Mi"}},"requests":{{"cpu":"{cpu}m","memory":"{memory}Mi"}}}}"#
    ));
}

fn put_env(draft: &mut Draft, env: &Env) {
    match env {
        Env::Value(name, value) => draft.put(format_args!(r#"{{"name":"{name}","value":"{value}"}}"#)),
        Env::Field(name, path) => draft.put(format_args!(
            r#"{{"name":"{name}","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"{path}"}}}}}}"#
        )),
        Env::Secret { name, secret, key } => draft.put(format_args!(
            r#"{{"name":"{name}","valueFrom":{{"secretKeyRef":{{"name":"{secret}","key":"{key}"}}}}}}"#
        )),
    }
}

fn put_status(draft: &mut Draft, workload: &Workload, replica: &Replica, chance: &Generator) {
    draft.raw(r#""status":{"phase":"Running","conditions":["#);
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    draft.each(conditions, |draft, kind| {
        draft.put(format_args!(r#"{{"type":"{kind}","status":""#));
        let moves = kind.ends_with("Ready");
        if moves {
            draft.slot(Part::Ready, "True");
        } else {
            draft.raw("True");
        }
        draft.raw(r#"","lastProbeTime":null,"lastTransitionTime":""#);
        draft.slot(
            if moves { Part::Transition } else { Part::Created },
            if moves { &replica.ready } else { &replica.created },
        );
        draft.raw(r#""}"#);
    });
    let (host, ip) = (format!("10.0.{}.{}", replica.node / 250, replica.node % 250), &replica.ip);
    draft.put(format_args!(
        r#"],"hostIP":"{host}","hostIPs":[{{"ip":"{host}"}}],"podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"startTime":""#
    ));
    draft.slot(Part::Created, &replica.created);
    draft.raw(r#"","containerStatuses":["#);
    draft.each(&workload.containers, |draft, container| {
        put_container_status(draft, container, replica, chance)
    });
    let class = if workload.containers.iter().any(|container| container.resources.is_some()) {
        "Burstable"
    } else {
        "BestEffort"
    };
    draft.put(format_args!(r#"],"qosClass":"{class}"}}}}"#));
}

fn put_container_status(draft: &mut Draft, container: &Container, replica: &Replica, chance: &Generator) {
    draft.put(format_args!(r#"{{"name":"{}","state":{{"running":{{"startedAt":""#, container.name));
    draft.slot(Part::Transition, &replica.ready);
    draft.raw(r#""}},"lastState":{"#);
    let restarted = happens(chance, 12);
    if restarted {
        draft.put(format_args!(
            r#""terminated":{{"exitCode":{0},"reason":"Error","message":"{2} failed","startedAt":"{1}","finishedAt":"{1}","containerID":"containerd://{3}"}}"#,
            1 + chance.below(130),
            replica.created,
            word(chance),
            hex(chance, 64),
        ));
    }
    draft.raw(r#"},"ready":"#);
    draft.slot(Part::ContainerReady, "true");
    draft.raw(r#","restartCount":"#);
    draft.slot(Part::Restarts, if restarted { "1" } else { "0" });
    draft.put(format_args!(
        r#","image":"{0}","imageID":"{1}@sha256:{2}","containerID":"containerd://{3}","started":true"#,
        container.image,
        container.image.split(':').next().unwrap_or_default(),
        container.digest,
        hex(chance, 64),
    ));
    draft.raw("}");
}
