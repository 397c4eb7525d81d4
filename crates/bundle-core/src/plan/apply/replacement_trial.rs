//! Dry run for the creation of an object that replaces an existing object
//! ([`crate::plan::replace`]), while the former object still exists.

use std::collections::HashSet;

use serde_json::Value;

use crate::object::ObjectId;
use crate::rights::concerns_rights;

/// Removes from the Service `value` the node ports that `live` uses, which is the existing Service
/// of the same name. These ports are not free until `live` is deleted. Other ports are not removed,
/// because the dry run checks that they are free.
///
/// Cluster IPs are not removed, because a dry run does not check cluster IPs. Sources:
/// `pkg/registry/core/service/{portallocator,ipallocator}` of Kubernetes.
pub fn remove_held_node_ports(id: &ObjectId, value: &mut Value, live: &Value) {
    if !is_service(id) {
        return;
    }
    let held = node_ports(&live["spec"]);
    let Some(spec) = value["spec"].as_object_mut() else {
        return;
    };
    let is_held = |port: &Value| port.as_u64().is_some_and(|port| held.contains(&port));
    if spec.get("healthCheckNodePort").is_some_and(is_held) {
        spec.remove("healthCheckNodePort");
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if let Some(port) = port.as_object_mut()
            && port.get("nodePort").is_some_and(is_held)
        {
            port.remove("nodePort");
        }
    }
}

/// Returns true if the API server rejects the dry run only because a quota is exhausted. The
/// deletion of the former object frees the quota that the former object uses.
///
/// Quotas are the last admission plugin, so all other plugins have accepted the request. Source:
/// `AllOrderedPlugins` of Kubernetes' `pkg/kubeapiserver/options`.
pub fn is_full_quota(message: &str) -> bool {
    message.contains("is forbidden: exceeded quota: ") && !concerns_rights(message, false)
}

/// Returns true for a Service. The creation of a Service can need node ports that the former object
/// still uses.
pub fn is_service(id: &ObjectId) -> bool {
    (id.group.as_str(), id.kind.as_str()) == ("", "Service")
}

/// Returns the node ports of a Service.
fn node_ports(spec: &Value) -> HashSet<u64> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.map(|port| &port["nodePort"]);
    ports
        .chain([&spec["healthCheckNodePort"]])
        .filter_map(Value::as_u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(kind: &str) -> ObjectId {
        ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("a".to_owned()),
            name: "web".to_owned(),
        }
    }

    fn tried(spec: &Value) -> Value {
        let live = json!({"spec": {
            "clusterIP": "10.96.0.7", "healthCheckNodePort": 32000,
            "ports": [{"port": 80, "nodePort": 30080}, {"port": 443}],
        }});
        let mut value = json!({ "spec": spec });
        remove_held_node_ports(&id("Service"), &mut value, &live);
        value["spec"].take()
    }

    #[test]
    fn removes_only_node_ports_that_the_former_service_holds() {
        let spec =
            json!({"ports": [{"port": 8080, "nodePort": 30080}, {"port": 443, "nodePort": 30443}]});
        let expected = json!({"ports": [{"port": 8080}, {"port": 443, "nodePort": 30443}]});
        assert_eq!(tried(&spec), expected);
        assert_eq!(tried(&json!({"healthCheckNodePort": 32000})), json!({}));
        for others in [
            json!({"healthCheckNodePort": 32001}),
            json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}),
            json!({"type": "ExternalName", "externalName": "example.com"}),
        ] {
            assert_eq!(tried(&others), others);
        }
    }

    #[test]
    fn cost_is_linear_in_the_ports_of_both_services() {
        let service = |first: u64| {
            let ports = first..first + 100_000;
            let ports: Vec<Value> = ports.map(|port| json!({ "nodePort": port })).collect();
            json!({"spec": { "ports": ports }})
        };
        let live = service(0);
        let mut others = service(100_000);
        remove_held_node_ports(&id("Service"), &mut others, &live);
        assert_eq!(others, service(100_000));
        let mut held = live.clone();
        remove_held_node_ports(&id("Service"), &mut held, &live);
        assert_eq!(held["spec"]["ports"][99_999], json!({}));
    }

    #[test]
    fn accepts_only_rejections_by_quotas() {
        let quota = "services \"web-0000000a\" is forbidden: exceeded quota: one, requested: services=1, used: services=1, limited: services=1";
        assert!(is_full_quota(quota));
        for other in [
            "admission webhook \"a.b.c\" denied the request: is forbidden: exceeded quota: x",
            "services \"web\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: exceeded quota: x",
            "services is forbidden: User \"ana\" cannot create resource \"services\"",
        ] {
            assert!(!is_full_quota(other), "{other}");
        }
    }

    #[test]
    fn other_kinds_are_unchanged() {
        let value = json!({"spec": {"healthCheckNodePort": 32000}});
        let mut other = value.clone();
        remove_held_node_ports(&id("ConfigMap"), &mut other, &value);
        assert_eq!(other, value);
    }
}
