//! Reads objects of the cluster with the arguments of `kubectl get`. A request of a client needs
//! much less CPU time than a kubectl process, and scenarios read objects in loops.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Error, Result};
use kube::Client;
use serde_json::Value;
use tokio::runtime::{Handle, Id};

use super::Cluster;

const CORE: &str = "/api/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const APPS: &str = "/apis/apps/v1";
const BATCH: &str = "/apis/batch/v1";
const NETWORKING: &str = "/apis/networking.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const RUKPAK: &str = "/apis/core.rukpak.io/v1alpha1";

/// Kinds that the harness reads with a client instead of kubectl.
const KINDS: &[ServedKind] = &[
    cluster_wide(RUKPAK, "bundles", &["bundle"]),
    cluster_wide(
        RUKPAK,
        "bundledeployments",
        &["bundledeployment", "bd", "bds"],
    ),
    cluster_wide(RUKPAK, "bundleapprovals", &["bundleapproval"]),
    cluster_wide(RUKPAK, "provisionerclasses", &["provisionerclass"]),
    cluster_wide(RUKPAK, "signaturepolicies", &["signaturepolicy"]),
    cluster_wide(CORE, "namespaces", &["namespace", "ns"]),
    namespaced(CORE, "configmaps", &["configmap", "cm"]),
    namespaced(
        CORE,
        "persistentvolumeclaims",
        &["persistentvolumeclaim", "pvc"],
    ),
    namespaced(CORE, "pods", &["pod", "po"]),
    namespaced(CORE, "resourcequotas", &["resourcequota", "quota"]),
    namespaced(CORE, "secrets", &["secret"]),
    namespaced(CORE, "serviceaccounts", &["serviceaccount", "sa"]),
    namespaced(CORE, "services", &["service", "svc"]),
    namespaced(APPS, "daemonsets", &["daemonset", "ds"]),
    namespaced(APPS, "deployments", &["deployment", "deploy"]),
    namespaced(APPS, "replicasets", &["replicaset", "rs"]),
    namespaced(APPS, "statefulsets", &["statefulset", "sts"]),
    namespaced(BATCH, "cronjobs", &["cronjob", "cj"]),
    namespaced(BATCH, "jobs", &["job"]),
    namespaced(NETWORKING, "ingresses", &["ingress", "ing"]),
    namespaced(NETWORKING, "networkpolicies", &["networkpolicy", "netpol"]),
    namespaced("/apis/coordination.k8s.io/v1", "leases", &["lease"]),
    cluster_wide(RBAC, "clusterroles", &["clusterrole"]),
    cluster_wide(RBAC, "clusterrolebindings", &["clusterrolebinding"]),
    namespaced(RBAC, "roles", &["role"]),
    namespaced(RBAC, "rolebindings", &["rolebinding"]),
    cluster_wide(
        ADMISSION,
        "mutatingwebhookconfigurations",
        &["mutatingwebhookconfiguration"],
    ),
    cluster_wide(
        ADMISSION,
        "validatingwebhookconfigurations",
        &["validatingwebhookconfiguration"],
    ),
    cluster_wide(
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        &["customresourcedefinition", "crd", "crds"],
    ),
];

/// Kind of the API, with the API version that kubectl reads by default.
struct ServedKind {
    /// Path of group and version.
    api: &'static str,
    plural: &'static str,
    /// Singular and short names, as kubectl accepts them.
    aliases: &'static [&'static str],
    is_namespaced: bool,
}

impl ServedKind {
    /// Returns `true` if `name` is a name of this kind. The API group can follow the name, as in
    /// `deployments.apps`.
    fn has_name(&self, name: &str) -> bool {
        let (name, group) = name
            .split_once('.')
            .map_or((name, None), |(name, group)| (name, Some(group)));
        let is_own_group = group.is_none_or(|group| {
            let own = self.api.strip_prefix("/apis/");
            own.and_then(|own| own.split_once('/'))
                .is_some_and(|(own, _)| own == group)
        });
        is_own_group && (self.plural == name || self.aliases.contains(&name))
    }
}

const fn cluster_wide(
    api: &'static str,
    plural: &'static str,
    aliases: &'static [&'static str],
) -> ServedKind {
    ServedKind {
        api,
        plural,
        aliases,
        is_namespaced: false,
    }
}

const fn namespaced(
    api: &'static str,
    plural: &'static str,
    aliases: &'static [&'static str],
) -> ServedKind {
    ServedKind {
        is_namespaced: true,
        ..cluster_wide(api, plural, aliases)
    }
}

/// Kind, namespace and name of one object.
struct ObjectLocation<'a> {
    kind: &'static ServedKind,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> ObjectLocation<'a> {
    /// Returns the location of `KIND NAME` or `KIND/NAME`, with or without `-n NAMESPACE`. Returns
    /// `None` for all other arguments, and for other kinds.
    fn parse(what: &'a str) -> Option<Self> {
        let mut words = what.split(' ');
        let mut namespace = None;
        let mut operands = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "-n" | "--namespace" => namespace = Some(words.next()?),
                _ if word.starts_with('-') => return None,
                _ => operands.push(word),
            }
        }
        let (kind, name) = match operands[..] {
            [operand] => operand.split_once('/')?,
            [kind, name] => (kind, name),
            _ => return None,
        };
        let is_valid = is_path_segment(name) && namespace.is_none_or(is_path_segment);
        if !is_valid {
            return None;
        }
        Some(Self {
            kind: KINDS.iter().find(|served| served.has_name(kind))?,
            namespace,
            name,
        })
    }

    /// Returns the path of the object in the API. `default` is the namespace of a namespaced object
    /// without `-n`.
    fn path(&self, default: &str) -> String {
        let ServedKind { api, plural, .. } = self.kind;
        let name = self.name;
        if self.kind.is_namespaced {
            let namespace = self.namespace.unwrap_or(default);
            format!("{api}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("{api}/{plural}/{name}")
        }
    }
}

/// Returns `true` if the text is a segment of a URL path that needs no percent-encoding.
fn is_path_segment(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
    !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
}

/// Clients of the administrator, one for each async runtime. The connections of a client end with
/// the runtime that opened them.
#[derive(Default)]
pub(super) struct ClientCache(Mutex<HashMap<Id, Client>>);

impl ClientCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Returns the object `what`, such as `configmap a -n b`, if it exists. `what` are arguments of
    /// `kubectl get`. As in the output of `kubectl get -o json`, the object has no `managedFields`.
    /// Lists, other flags and uncommon kinds are read with kubectl itself.
    pub async fn get(&self, what: &str) -> Result<Option<Value>> {
        let Some(location) = ObjectLocation::parse(what) else {
            return self.get_with_kubectl(what).await;
        };
        let client = self.client_of(Handle::current().id()).await?;
        self.get_path(&location.path(client.default_namespace()))
            .await
    }

    /// Returns the object with this path in the API, such as `/api/v1/namespaces/default`, without
    /// `managedFields`. Returns `None` if the object does not exist, and an error if the API server
    /// does not serve its kind.
    pub async fn get_path(&self, path: &str) -> Result<Option<Value>> {
        let runtime = Handle::current().id();
        let client = self.client_of(runtime).await?;
        let request = http::Request::get(path).body(Vec::new())?;
        match client.request::<Value>(request).await {
            Ok(mut object) => {
                let metadata = object.pointer_mut("/metadata");
                if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
                Ok(Some(object))
            }
            // For a kind that is not served, the response also has status 404, but another reason.
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => Ok(None),
            Err(error) => {
                // The client may belong to an ended runtime that had the same ID as this runtime.
                if !matches!(error, kube::Error::Api(_)) {
                    self.clients.lock().remove(&runtime);
                }
                Err(Error::new(error).context(format!("cannot read {path}")))
            }
        }
    }

    /// Returns the client of the administrator for this async runtime.
    async fn client_of(&self, runtime: Id) -> Result<Client> {
        let known = self.clients.lock().get(&runtime).cloned();
        if let Some(client) = known {
            return Ok(client);
        }
        let client = self.client().await?;
        self.clients.lock().insert(runtime, client.clone());
        Ok(client)
    }

    async fn get_with_kubectl(&self, what: &str) -> Result<Option<Value>> {
        let line = format!("get {what} -o json --ignore-not-found");
        let printed = self.kubectl(line.split(' ')).await?.success()?;
        if printed.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&printed)
            .map(Some)
            .with_context(|| format!("`kubectl {line}` printed no JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(what: &str) -> Option<String> {
        ObjectLocation::parse(what).map(|location| location.path("default"))
    }

    #[test]
    fn path_has_group_version_namespace_plural_and_name() {
        for (what, expected) in [
            (
                "configmap web -n team-a",
                "/api/v1/namespaces/team-a/configmaps/web",
            ),
            (
                "configmap -n team-a web",
                "/api/v1/namespaces/team-a/configmaps/web",
            ),
            ("secrets/web", "/api/v1/namespaces/default/secrets/web"),
            ("namespace team-a -n other", "/api/v1/namespaces/team-a"),
            (
                "bundledeployment web",
                "/apis/core.rukpak.io/v1alpha1/bundledeployments/web",
            ),
            (
                "deployment web -n team-a",
                "/apis/apps/v1/namespaces/team-a/deployments/web",
            ),
            (
                "deployment.apps/web",
                "/apis/apps/v1/namespaces/default/deployments/web",
            ),
            (
                "bundle.core.rukpak.io/web",
                "/apis/core.rukpak.io/v1alpha1/bundles/web",
            ),
            (
                "clusterrole system:node",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
            ),
            (
                "crd jugs.shop.example.com",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jugs.shop.example.com",
            ),
        ] {
            assert_eq!(path(what).as_deref(), Some(expected), "{what}");
        }
    }

    #[test]
    fn parse_accepts_only_one_object_of_a_known_kind() {
        for what in [
            "configmaps",
            "configmaps -n team-a",
            "configmaps -A",
            "configmap web --show-managed-fields",
            "bundles -l app=web",
            "configmap,secret web",
            "configmap web other",
            "configmap/web secret/web",
            "queue basket-events -n shop",
            "deployments.extensions web",
            "configmaps.apps web",
            "configmap web -n",
            "configmap ../secrets -n team-a",
            "configmap .. -n team-a",
            "configmap a?b",
            "configmap web -n ../x",
            "",
        ] {
            assert_eq!(path(what), None, "{what}");
        }
    }

    #[test]
    fn names_of_kinds_are_unique() {
        let mut names: Vec<&str> = KINDS
            .iter()
            .flat_map(|kind| std::iter::once(kind.plural).chain(kind.aliases.iter().copied()))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
