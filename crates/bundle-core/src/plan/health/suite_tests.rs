//! Objects for which the comparison with the test suites of kstatus and Argo CD found a difference.

use serde_json::json;

use super::*;

#[test]
fn custom_resources_in_groups_of_kubernetes_projects_have_health() {
    for (group, kind, expected) in [
        ("gateway.networking.k8s.io", "Gateway", true),
        ("snapshot.storage.k8s.io", "VolumeSnapshot", true),
        ("policy.networking.k8s.io", "AdminNetworkPolicy", true),
        ("networking.k8s.io", "NetworkPolicy", false),
        ("rbac.authorization.k8s.io", "ClusterRole", false),
        ("internal.apiserver.k8s.io", "StorageVersion", false),
        ("events.k8s.io", "Event", false),
    ] {
        assert_eq!(has_health(group, kind), expected, "{kind}.{group}");
    }
}

#[test]
fn pod_is_ready_only_in_phase_running() {
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    for phase in [json!(null), json!("Pending"), json!("Unknown")] {
        let pod = json!({ "status": { "phase": phase, "conditions": ready } });
        assert!(
            matches!(health("", "Pod", &pod), Health::Waiting(_)),
            "{pod}"
        );
    }
}

#[test]
fn replica_set_without_replicas_waits_for_its_controller() {
    for (group, kind) in [("apps", "ReplicaSet"), ("", "ReplicationController")] {
        let mut object = json!({ "spec": { "replicas": 0 } });
        let found = health(group, kind, &object);
        assert_eq!(
            found,
            Health::waiting("its controller has not seen it yet"),
            "{kind}"
        );
        object["status"] = json!({ "observedGeneration": 1 });
        assert_eq!(health(group, kind, &object), Health::Ready, "{kind}");
    }
}

#[test]
fn differences_have_unique_names_and_differ() {
    let mut names = std::collections::BTreeSet::new();
    for row in differences::DIFFERENCES {
        assert!(names.insert(row.name), "{}", row.name);
        assert!(row.here != row.there, "{}", row.name);
        assert!(
            row.reason.ends_with('.') && !row.state.ends_with('.'),
            "{}",
            row.name
        );
    }
}
