//! The NetworkPolicy of the manifests selects the pods of the Deployment, and opens the ports that
//! the Services and the probes use.

use std::collections::BTreeSet;
use std::path::Path;

use e2e::cluster::manifests;
use serde_json::Value;

/// Returns the only object of this kind in the shipped manifests.
fn shipped(kind: &str) -> Value {
    let mut found = all_shipped(kind);
    assert_eq!(found.len(), 1, "objects of kind {kind}");
    found.remove(0)
}

/// Returns the objects of this kind in the shipped manifests.
fn all_shipped(kind: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../webhook/deploy/manifests");
    let objects = manifests::read_folder(&folder).unwrap();
    let found = objects.into_iter().filter(|object| object["kind"] == kind);
    found.collect()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).unwrap().as_array().unwrap()
}

/// Returns `true` if each label of the selector is among `labels`.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().unwrap();
    !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value)
}

/// Returns the port number of the container port with this name or number.
fn port(deployment: &Value, wanted: &Value) -> u64 {
    if let Some(number) = wanted.as_u64() {
        return number;
    }
    let ports = list(deployment, "/spec/template/spec/containers/0/ports");
    let found = ports.iter().find(|port| port["name"] == *wanted);
    found.unwrap()["containerPort"].as_u64().unwrap()
}

#[test]
fn network_policy_selects_the_pods_and_opens_only_the_ports_of_services_and_probes() {
    let (policy, deployment) = (shipped("NetworkPolicy"), shipped("Deployment"));
    let services = all_shipped("Service");
    assert_eq!(services.len(), 2);
    let template = "/spec/template/metadata/labels";
    let labels = deployment.pointer(template).unwrap();
    let namespace = &deployment["metadata"]["namespace"];
    for object in services.iter().chain([&policy]) {
        assert_eq!(&object["metadata"]["namespace"], namespace);
    }
    assert!(selects(
        &policy["spec"]["podSelector"]["matchLabels"],
        labels
    ));
    let mut needed = BTreeSet::new();
    for service in &services {
        assert!(selects(&service["spec"]["selector"], labels));
        for entry in list(service, "/spec/ports") {
            needed.insert(port(&deployment, &entry["targetPort"]));
        }
    }
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        needed.insert(port(&deployment, &container[probe]["httpGet"]["port"]));
    }
    let declared = list(&deployment, "/spec/template/spec/containers/0/ports");
    let declared = declared.iter().map(|port| port["containerPort"].as_u64());
    let declared: BTreeSet<u64> = declared.map(Option::unwrap).collect();
    let rules = list(&policy, "/spec/ingress").iter();
    let opened = rules.flat_map(|rule| list(rule, "/ports"));
    let opened: BTreeSet<u64> = opened
        .map(|entry| {
            assert_eq!(entry["protocol"], "TCP", "{entry}");
            entry["port"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(opened, needed);
    assert_eq!(opened, declared);
    assert_eq!(list(&policy, "/spec/policyTypes"), ["Ingress", "Egress"]);
}
