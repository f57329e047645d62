//! Faults of requests, as a client sees them.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use crate::{Faulty, MAPS, map};

#[tokio::test]
async fn a_request_can_be_lost_before_the_server_acts() {
    let faulty = Faulty::always("lose-request").await;
    let (seen, why) = faulty.send("POST", MAPS, &map("a")).await.end().await;
    assert_eq!((seen.as_str(), why), ("", ErrorKind::ConnectionReset));
    assert_eq!(faulty.names(), [] as [&str; 0]);
    assert_eq!(faulty.faults(), ["lose-request @ raw: create configmaps default/ #1"]);
}

#[tokio::test]
async fn an_answer_can_be_lost_after_the_server_has_acted() {
    let faulty = Faulty::always("lose-answer").await;
    let (seen, why) = faulty.send("POST", MAPS, &map("a")).await.end().await;
    assert_eq!((seen.as_str(), why), ("", ErrorKind::ConnectionReset));
    assert_eq!(faulty.names(), ["a"]);
}

#[tokio::test]
async fn a_server_refuses_in_each_manner_and_does_not_act() {
    let faulty = Faulty::always("refuse").await;
    let mut statuses = BTreeSet::new();
    for _ in 0..60 {
        let answer = faulty.ask("PUT", &format!("{MAPS}/a"), &map("a")).await.unwrap();
        assert!(answer.status != 429 || answer.head.contains("retry-after: 1"), "{answer:?}");
        statuses.insert(answer.status);
    }
    assert_eq!(statuses, [401, 403, 409, 429, 500, 503, 504].into());
    assert_eq!(faulty.names(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_server_can_act_and_refuse_all_the_same() {
    let faulty = Faulty::always("refuse-after").await;
    let mut statuses = BTreeSet::new();
    for number in 0..20 {
        let name = format!("map-{number:02}");
        statuses.insert(faulty.ask("POST", MAPS, &map(&name)).await.unwrap().status);
    }
    assert_eq!(statuses, [500, 503, 504].into());
    assert_eq!(faulty.names().len(), 20);
}

#[tokio::test]
async fn requests_and_answers_can_be_slow() {
    for kind in ["slow-request", "slow-answer"] {
        let faulty = Faulty::always(kind).await;
        let begun = faulty.env.clock.now();
        let answer = faulty.ask("POST", MAPS, &map("a")).await.unwrap();
        let passed = (faulty.env.clock.now() - begun).as_millis() as u64;
        assert_eq!(answer.status, 201);
        let fault = faulty.faults().remove(0);
        let time = fault.split(['(', 'm']).nth(1).unwrap().parse::<u64>().unwrap();
        assert!(passed >= time && time <= 50, "{passed} ms, {fault}");
    }
}

#[tokio::test]
async fn a_request_can_arrive_twice() {
    let faulty = Faulty::always("double").await;
    let generated = r#"{"metadata":{"generateName":"a-"}}"#;
    assert_eq!(faulty.ask("POST", MAPS, generated).await.unwrap().status, 201);
    assert_eq!(faulty.names().len(), 2);
}

#[tokio::test]
async fn another_writer_can_come_between_read_and_write() {
    let faulty = Faulty::always("foreign").await;
    faulty.create("a").await;
    let path = format!("{MAPS}/a");
    let read = faulty.ask("GET", &path, "").await.unwrap();
    let answer = faulty.ask("PUT", &path, &read.body).await.unwrap();
    assert_eq!(answer.status, 409, "{answer:?}");
}

#[tokio::test]
async fn the_next_page_of_a_list_can_expire() {
    let faulty = Faulty::always("expire").await;
    faulty.create("a").await;
    faulty.create("b").await;
    let first = faulty.ask("GET", &format!("{MAPS}?limit=1"), "").await.unwrap();
    let list: serde_json::Value = serde_json::from_str(&first.body).unwrap();
    let token = list["metadata"]["continue"].as_str().unwrap();
    let reasons = faulty.reasons_of_410(&format!("{MAPS}?limit=1&continue={token}")).await;
    assert_eq!(reasons, ["Expired", "Gone"]);
}

#[tokio::test]
async fn a_version_can_be_too_large_for_lists_and_watches() {
    let faulty = Faulty::always("too-large").await;
    for path in [format!("{MAPS}?resourceVersion=5"), format!("{MAPS}?watch=true&resourceVersion=5")] {
        let answer = faulty.ask("GET", &path, "").await.unwrap();
        assert_eq!(answer.status, 504);
        assert!(answer.body.contains("ResourceVersionTooLarge"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_server_can_be_out_of_reach_for_a_while() {
    let faulty = Faulty::always("unreachable").await;
    let mut lost = 0;
    for _ in 0..10 {
        lost += usize::from(faulty.ask("GET", MAPS, "").await.is_none());
    }
    assert_eq!(lost, 10);
    // Requests that come while the server is away meet no fault of their own.
    assert!((1..=10).contains(&faulty.faults().len()), "{:?}", faulty.faults());
    assert!(faulty.faults()[0].starts_with("unreachable("), "{:?}", faulty.faults());
}

#[tokio::test]
async fn discovery_health_checks_and_kubectl_meet_no_faults() {
    let faulty = Faulty::always("lose-request").await;
    for path in ["/healthz", "/readyz", "/livez", "/version", "/api", "/apis", "/api/v1", "/apis/apps/v1"] {
        let answer = faulty.ask("GET", path, "").await;
        assert_eq!(answer.map(|answer| answer.status), Some(200), "{path}");
    }
    let url = faulty.listening.url();
    let config = kube_client::Config::new(url.parse().unwrap());
    let client = watchkeeper::Client::from_config(config, &faulty.env).unwrap();
    let name = watchkeeper::ObjectName::namespaced("default", "a");
    let get = async |client: watchkeeper::Client| {
        client.api::<k8s_openapi::api::core::v1::ConfigMap>().get_opt(&name).await
    };
    assert!(get(client.clone().program("kubectl", "v1.36.3")).await.unwrap().is_none());
    assert!(get(client.program("operator", "v1")).await.is_err());
    let noise = faulty.ask("GET", "/api/v1/namespaces/default/events", "").await;
    assert_eq!(noise.map(|answer| answer.status), Some(200), "events");
    faulty.listening.stop().await;
}

/// The faults that these requests meet, sorted.
async fn faults_of(seed: u64, names: impl Iterator<Item = u32>) -> Vec<String> {
    let kinds = ["lose-request", "lose-answer", "refuse", "refuse-after"].map(|kind| kind.parse().unwrap());
    let faulty = Faulty::seeded(seed, |faults| faults.rate(0.3).kinds(kinds)).await;
    for name in names {
        for method in ["PUT", "GET", "GET", "DELETE"] {
            faulty.ask(method, &format!("{MAPS}/map-{name}"), &map(&format!("map-{name}"))).await;
        }
    }
    let mut faults = faulty.faults();
    faults.sort();
    faults
}

#[tokio::test]
async fn one_seed_decides_the_same_for_the_same_requests_in_any_order() {
    let first = faults_of(7, 0..20).await;
    assert!((10..40).contains(&first.len()), "about 24: {first:#?}");
    assert_eq!(first, faults_of(7, 0..20).await);
    assert_eq!(first, faults_of(7, (0..20).rev()).await);
    assert_ne!(first, faults_of(8, 0..20).await);
}
