//! The `metadata.managedFields` of a Pod, as the controller manager and the kubelet write them.

use super::super::pod::{CHECKPOINT, Draft, Part, TRACK};
use super::workload::{Env, Owner, Volume, Workload};

/// Appends `managedFields` as a running Pod has them: about a third of its bytes.
pub(super) fn put(draft: &mut Draft, workload: &Workload, ip: &str, created: &str, ready: &str) {
    draft.raw(r#""managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":""#);
    draft.slot(Part::Created, created);
    draft.put(format_args!(r#"","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{".":{{}},"f:{CHECKPOINT}":{{}}"#));
    for (key, _) in &workload.annotations {
        draft.put(format_args!(r#","f:{key}":{{}}"#));
    }
    draft.put(format_args!(r#"}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:{TRACK}":{{}}"#));
    for (key, _) in &workload.labels {
        draft.put(format_args!(r#","f:{key}":{{}}"#));
    }
    draft.put(format_args!(
        r#"}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{}\"}}":{{}}}}}},"f:spec":{{"#,
        workload.uid
    ));
    if workload.owner == Owner::DaemonSet {
        draft.raw(r#""f:affinity":{".":{},"f:nodeAffinity":{".":{},"f:requiredDuringSchedulingIgnoredDuringExecution":{}}},"#);
    }
    put_containers(draft, workload);
    draft.raw(r#","f:dnsPolicy":{},"f:enableServiceLinks":{}"#);
    if workload.node_pool.is_some() {
        draft.raw(r#","f:nodeSelector":{}"#);
    }
    draft.raw(r#","f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{}"#);
    put_volumes(draft, workload);
    draft.raw(r#"}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":""#);
    draft.slot(Part::Transition, ready);
    draft.raw(r#"","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"#);
    let conditions = ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"];
    draft.each(conditions, |draft, kind| {
        draft.put(format_args!(
            r#""k:{{\"type\":\"{kind}\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}}"#
        ));
    });
    draft.put(format_args!(
        r#"}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:hostIPs":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{ip}\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}},"subresource":"status"}}]"#
    ));
}

fn put_containers(draft: &mut Draft, workload: &Workload) {
    draft.raw(r#""f:containers":{"#);
    draft.each(&workload.containers, |draft, container| {
        draft.put(format_args!(r#""k:{{\"name\":\"{}\"}}":{{".":{{}},"f:args":{{}}"#, container.name));
        if !container.env.is_empty() {
            draft.raw(r#","f:env":{".":{}"#);
            for env in &container.env {
                draft.put(format_args!(r#","k:{{\"name\":\"{}\"}}":{{".":{{}},"f:name":{{}},"#, env.name()));
                draft.raw(match env {
                    Env::Value(..) => r#""f:value":{}}"#,
                    Env::Field(..) => r#""f:valueFrom":{".":{},"f:fieldRef":{}}}"#,
                    Env::Secret { .. } => r#""f:valueFrom":{".":{},"f:secretKeyRef":{}}}"#,
                });
            }
            draft.raw("}");
        }
        draft.raw(r#","f:image":{},"f:imagePullPolicy":{}"#);
        for (wanted, probe) in [(container.liveness, "livenessProbe"), (container.readiness, "readinessProbe")] {
            if wanted {
                draft.put(format_args!(
                    r#","f:{probe}":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},"f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:periodSeconds":{{}},"f:successThreshold":{{}},"f:timeoutSeconds":{{}}}}"#
                ));
            }
        }
        draft.raw(r#","f:name":{}"#);
        if !container.ports.is_empty() {
            draft.raw(r#","f:ports":{".":{}"#);
            for (_, port) in &container.ports {
                draft.put(format_args!(
                    r#","k:{{\"containerPort\":{port},\"protocol\":\"TCP\"}}":{{".":{{}},"f:containerPort":{{}},"f:name":{{}},"f:protocol":{{}}}}"#
                ));
            }
            draft.raw("}");
        }
        draft.raw(if container.resources.is_some() {
            r#","f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}}"#
        } else {
            r#","f:resources":{}"#
        });
        draft.raw(r#","f:terminationMessagePath":{},"f:terminationMessagePolicy":{}"#);
        if !container.mounts.is_empty() {
            draft.raw(r#","f:volumeMounts":{".":{}"#);
            for (_, path) in &container.mounts {
                draft.put(format_args!(
                    r#","k:{{\"mountPath\":\"{path}\"}}":{{".":{{}},"f:mountPath":{{}},"f:name":{{}}}}"#
                ));
            }
            draft.raw("}");
        }
        draft.raw("}");
    });
    draft.raw("}");
}

fn put_volumes(draft: &mut Draft, workload: &Workload) {
    if workload.volumes.is_empty() {
        return;
    }
    draft.raw(r#","f:volumes":{".":{}"#);
    for volume in &workload.volumes {
        draft.put(format_args!(r#","k:{{\"name\":\"{}\"}}":{{".":{{}},"#, volume.name()));
        draft.raw(match volume {
            Volume::ConfigMap(_) => r#""f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},"f:name":{}}"#,
            Volume::Secret(_) => r#""f:name":{},"f:secret":{".":{},"f:defaultMode":{},"f:secretName":{}}}"#,
            Volume::EmptyDir(_) => r#""f:emptyDir":{},"f:name":{}}"#,
        });
    }
    draft.raw("}");
}
