//! Folders to build bundles from: a realistic shop, a small greeting, many small objects, and the
//! project's own manifests. Each function produces the same bytes for the same arguments.

pub mod fixtures;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

/// Services of the shop in version 1.0.0.
const SERVICES: [&str; 20] = [
    "account",
    "basket",
    "billing",
    "catalog",
    "checkout",
    "coupons",
    "delivery",
    "fraud",
    "gateway",
    "inventory",
    "invoices",
    "mailer",
    "orders",
    "payments",
    "pricing",
    "ratings",
    "returns",
    "search",
    "stock",
    "tax",
];

/// Services that versions after 1.0.0 remove. These versions also add the service [`ADDED`].
const DROPPED: [&str; 2] = ["coupons", "tax"];
const ADDED: &str = "wishlist";

/// Writes the shop: more than two hundred objects of eighteen kinds, with two CRDs and their custom
/// resources.
///
/// Versions after 1.0.0 have other images and settings, drop two services and add one.
pub fn shop(folder: &Path, version: &str) -> Result<()> {
    let first = version == "1.0.0";
    let services: Vec<&str> = SERVICES
        .into_iter()
        .filter(|service| first || !DROPPED.contains(service))
        .chain((!first).then_some(ADDED))
        .collect();
    let manifests = folder.join("manifests");
    fs_err::create_dir_all(&manifests)?;
    package(
        folder,
        "shop",
        version,
        "A shop of small services, with its queues and feature switches",
        Some(">=1.31 <1.38"),
    )?;
    fs_err::write(manifests.join("00-base.yaml"), BASE)?;
    fs_err::write(manifests.join("10-crds.yaml"), CRDS)?;
    for service in &services {
        fs_err::write(
            manifests.join(format!("20-{service}.yaml")),
            service_objects(service, version),
        )?;
    }
    let mut custom = String::new();
    for service in services.iter().take(10) {
        write!(
            custom,
            "---
apiVersion: shop.example.com/v1
kind: Queue
metadata: {{name: {service}-events, namespace: shop}}
spec: {{service: {service}, depth: {depth}}}
",
            depth = if first { 100 } else { 250 }
        )?;
    }
    for feature in ["express-checkout", "guest-accounts", "gift-wrapping"] {
        write!(
            custom,
            "---
apiVersion: shop.example.com/v1
kind: Feature
metadata: {{name: {feature}}}
spec: {{enabled: {enabled}}}
",
            enabled = !first
        )?;
    }
    fs_err::write(manifests.join("30-custom.yaml"), custom)?;
    Ok(())
}

/// Writes a bundle of three objects. `kubernetes` is the range of Kubernetes versions that the
/// bundle supports.
pub fn greeting(folder: &Path, version: &str, kubernetes: Option<&str>) -> Result<()> {
    let name = "greeting";
    package(folder, name, version, "Says hello", kubernetes)?;
    fs_err::create_dir_all(folder.join("manifests"))?;
    let text = format!(
        "apiVersion: v1
kind: Namespace
metadata:
  name: {name}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: {name}
data:
  text: Hello from {version}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {name}
  namespace: {name}
"
    );
    fs_err::write(folder.join("manifests").join("greeting.yaml"), text)?;
    Ok(())
}

/// Writes `count` small ConfigMaps in one namespace, all named after `name`.
pub fn many(folder: &Path, name: &str, count: usize) -> Result<()> {
    package(folder, name, "1.0.0", "Many small objects", None)?;
    let manifests = folder.join("manifests");
    fs_err::create_dir_all(&manifests)?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
    fs_err::write(manifests.join("00-namespace.yaml"), namespace)?;
    let mut text = String::new();
    for number in 0..count {
        write!(
            text,
            "---
apiVersion: v1
kind: ConfigMap
metadata: {{name: item-{number:05}, namespace: {name}}}
data: {{number: \"{number}\", text: a small object}}
"
        )?;
    }
    fs_err::write(manifests.join("items.yaml"), text)?;
    Ok(())
}

/// Writes a bundle of `count` ConfigMaps, each in its own file.
pub fn many_files(folder: &Path, name: &str, count: usize) -> Result<()> {
    package(folder, name, "1.0.0", "Many small files", None)?;
    let manifests = folder.join("manifests");
    fs_err::create_dir_all(&manifests)?;
    for number in 0..count {
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: item-{number:05}, namespace: default}}\ndata: {{number: \"{number}\"}}\n"
        );
        fs_err::write(manifests.join(format!("item-{number:05}.yaml")), object)?;
    }
    Ok(())
}

/// Copies the bundle of this project, `webhook/deploy`: package file and manifests.
pub fn copy_deploy(folder: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../webhook/deploy");
    fs_err::create_dir_all(folder.join("manifests"))?;
    fs_err::copy(source.join("bundle.yaml"), folder.join("bundle.yaml"))?;
    for entry in fs_err::read_dir(source.join("manifests"))? {
        let entry = entry?;
        fs_err::copy(
            entry.path(),
            folder.join("manifests").join(entry.file_name()),
        )?;
    }
    Ok(())
}

pub(crate) fn package(
    folder: &Path,
    name: &str,
    version: &str,
    description: &str,
    kubernetes: Option<&str>,
) -> Result<()> {
    fs_err::create_dir_all(folder)?;
    let mut text = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1
kind: Package
name: {name}
version: {version}
format: plain+v0
description: {description}
"
    );
    if let Some(range) = kubernetes {
        writeln!(
            text,
            "kubernetes:\n  supported: \"{range}\"\n  unsupported: Reject"
        )?;
    }
    fs_err::write(folder.join("bundle.yaml"), text)?;
    Ok(())
}

/// Returns the ten objects of one service.
fn service_objects(service: &str, version: &str) -> String {
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {service}, namespace: shop}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {service}, namespace: shop}}
data:
  LOG_LEVEL: info
  VERSION: \"{version}\"
---
apiVersion: v1
kind: Secret
metadata: {{name: {service}, namespace: shop}}
type: Opaque
stringData: {{token: change-me-{service}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {service}, namespace: shop}}
rules:
- apiGroups: ['']
  resources: [configmaps]
  resourceNames: [{service}]
  verbs: [get, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {service}, namespace: shop}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {service}}}
subjects:
- {{kind: ServiceAccount, name: {service}, namespace: shop}}
---
apiVersion: v1
kind: Service
metadata: {{name: {service}, namespace: shop}}
spec:
  selector: {{app: {service}}}
  ports:
  - {{name: http, port: 80, targetPort: http}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {service}
  namespace: shop
  labels: {{app: {service}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: {service}}}}}
  template:
    metadata:
      labels: {{app: {service}}}
    spec:
      serviceAccountName: {service}
      containers:
      - name: {service}
        image: registry.example.com/shop/{service}:{version}
        ports:
        - {{name: http, containerPort: 8080}}
        envFrom:
        - configMapRef: {{name: {service}}}
        resources:
          requests: {{cpu: 10m, memory: 32Mi}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: {service}, namespace: shop}}
spec:
  podSelector: {{matchLabels: {{app: {service}}}}}
  policyTypes: [Ingress]
  ingress:
  - ports:
    - {{port: http}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {service}, namespace: shop}}
spec:
  minAvailable: 1
  selector: {{matchLabels: {{app: {service}}}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: {service}-report, namespace: shop}}
spec:
  schedule: '0 3 * * *'
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: report
            image: registry.example.com/shop/report:{version}
"
    )
}

const BASE: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels:
    pod-security.kubernetes.io/enforce: baseline
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: shop, namespace: shop}
spec:
  hard: {pods: '200'}
---
apiVersion: v1
kind: LimitRange
metadata: {name: shop, namespace: shop}
spec:
  limits:
  - type: Container
    default: {memory: 128Mi}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: shop-critical}
value: 1000
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop-features}
rules:
- apiGroups: [shop.example.com]
  resources: [features]
  verbs: [get, list, watch]
";

const CRDS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: queues.shop.example.com
spec:
  group: shop.example.com
  scope: Namespaced
  names: {kind: Queue, listKind: QueueList, plural: queues, singular: queue}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [service]
            properties:
              service: {type: string}
              depth: {type: integer, minimum: 1}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: features.shop.example.com
spec:
  group: shop.example.com
  scope: Cluster
  names: {kind: Feature, listKind: FeatureList, plural: features, singular: feature}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              enabled: {type: boolean}
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bundle_core::format::{self, Content, Files};

    use super::*;

    /// Returns the files that `write` creates in a folder, and their parsed content.
    fn content(write: impl Fn(&Path) -> Result<()>) -> (Files, Content) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let mut files = Files::new();
        for part in ["", "manifests"] {
            for entry in fs_err::read_dir(folder.path().join(part)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let name = path.strip_prefix(folder.path()).unwrap();
                    files.insert(name.display().to_string(), fs_err::read(&path).unwrap());
                }
            }
        }
        let content = format::read(&files).unwrap_or_else(|findings| panic!("{findings}"));
        assert!(content.warnings.is_empty(), "{}", content.warnings);
        (files, content)
    }

    fn identities(content: &Content) -> BTreeSet<String> {
        let objects = content.objects.iter();
        objects.map(|object| object.id.to_string()).collect()
    }

    #[test]
    fn shop_has_documented_number_of_objects_and_kinds() {
        let (files, first) = content(|folder| shop(folder, "1.0.0"));
        assert!(first.objects.len() > 200, "{}", first.objects.len());
        let kinds: BTreeSet<_> = first
            .objects
            .iter()
            .map(bundle_core::object::Manifest::gvk)
            .collect();
        assert_eq!(kinds.len(), 18, "{kinds:?}");
        assert_eq!(content(|folder| shop(folder, "1.0.0")).0, files);
    }

    #[test]
    fn next_shop_version_drops_adds_and_changes_objects() {
        let (_, first) = content(|folder| shop(folder, "1.0.0"));
        let (_, next) = content(|folder| shop(folder, "1.1.0"));
        let (before, after) = (identities(&first), identities(&next));
        assert!(
            before.contains("Deployment.apps/shop/tax")
                && !after.contains("Deployment.apps/shop/tax")
        );
        assert!(
            !before.contains("Deployment.apps/shop/wishlist")
                && after.contains("Deployment.apps/shop/wishlist")
        );
        let values: BTreeSet<_> = first
            .objects
            .iter()
            .map(|object| object.value.to_string())
            .collect();
        let same = next
            .objects
            .iter()
            .filter(|object| values.contains(&object.value.to_string()))
            .count();
        assert!(
            same > 100 && same < before.intersection(&after).count(),
            "{same}"
        );
    }

    #[test]
    fn other_example_bundles_are_valid() {
        let (_, items) = content(|folder| many(folder, "items", 1_000));
        assert_eq!(items.objects.len(), 1_001);
        let (_, hello) = content(|folder| greeting(folder, "1.0.0", Some("1.36.x")));
        assert_eq!(hello.objects.len(), 3);
        let (_, own) = content(copy_deploy);
        assert!(own.package.is_some());
    }
}
