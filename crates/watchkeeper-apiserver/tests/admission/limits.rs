//! `LimitRanger`. On the embedded server alone: a limit range would reach pods of other tests.

use serde_json::{Value, json};

use crate::common::{Server, call, post};
use crate::{PODS, refused};

const RANGES: &str = "/api/v1/namespaces/wktest/limitranges";
const CLAIMS: &str = "/api/v1/namespaces/wktest/persistentvolumeclaims";

async fn server(limits: &Value) -> Server {
    let server = Server::embedded_with_admission("LimitRanger").await;
    post(&server, RANGES, &json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}})).await;
    server
}

fn pod(resources: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": resources});
    json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
}

#[tokio::test(start_paused = true)]
async fn containers_get_the_defaults_that_they_lack() {
    let limits = json!([{"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}]);
    let server = server(&limits).await;
    let made = post(&server, PODS, &pod(&json!({"limits": {"memory": "2Gi"}}))).await;
    let resources =
        json!({"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_range_is_refused() {
    let server = server(&json!([
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}},
        {"type": "Pod", "max": {"memory": "1Gi"}},
    ]))
    .await;
    let message = async |resources: Value| refused(call(&server, "POST", PODS, &pod(&resources)).await, 403);
    let memory = json!({"cpu": "1", "memory": "2Gi"});
    assert_eq!(
        message(json!({"requests": memory, "limits": memory})).await,
        "pods \"p\" is forbidden: maximum memory usage per Pod is 1Gi, but limit is 2Gi"
    );
    assert_eq!(
        message(json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2", "memory": "1Gi"}})).await,
        "pods \"p\" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container \
         is 1, but limit is 2, cpu max limit to request ratio per Container is 2, but provided ratio is 40.000000]"
    );
    let fits = json!({"cpu": "500m", "memory": "1Gi"});
    post(&server, PODS, &pod(&json!({"requests": fits, "limits": fits}))).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_as_large_as_allowed() {
    let server = server(
        &json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]),
    )
    .await;
    let claim = |size: &str| json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}});
    let forbidden = "persistentvolumeclaims \"c\" is forbidden: ";
    assert_eq!(
        refused(call(&server, "POST", CLAIMS, &claim("3Gi")).await, 403),
        format!("{forbidden}maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")
    );
    assert_eq!(
        refused(call(&server, "POST", CLAIMS, &claim("1Mi")).await, 403),
        format!("{forbidden}minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")
    );
    post(&server, CLAIMS, &claim("2Gi")).await;
}
