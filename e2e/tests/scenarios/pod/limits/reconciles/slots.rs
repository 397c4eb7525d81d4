//! Reconciles that tenants delay. A CRD with the names of another CRD is never established.
//! Therefore the installation of the second CRD waits for 30 s.

use serde_json::{Value, json};

use bundle_testkit::registry::Registry;
use e2e::wait;

use super::*;
use crate::scenarios::objects::apply_as;

/// Number of installations of each tenant: more than the number of concurrent reconciles.
const INSTALLATIONS_PER_TENANT: usize = 12;
/// Maximum number of concurrent reconciles of the first and of the second requester: half of the
/// slots, and half of the remaining slots (`RECONCILE_SLOTS` in webhook/src/reconcile/slots.rs).
const PER_REQUESTER: [usize; 2] = [4, 2];
/// Time limit for the other tenant's installation. The limit is well below the 30 s after which the
/// first waiting installation releases its slot.
const OTHER_TENANT_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a CRD with this plural name and the kind `Slot`, which another CRD already defines.
fn definition(plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.slots.example.com")},
        "spec": {
            "group": "slots.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Slot", "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

fn publish_object(registry: &Registry, name: &str, object: &Value) -> String {
    let file = (
        format!("manifests/{name}.yaml"),
        object.to_string().into_bytes(),
    );
    publish(registry, name, &tar([file])).0
}

/// Returns the number of CRDs that installations of this user have created. These CRDs are never
/// established.
async fn begun(cluster: &Cluster, user: &str) -> usize {
    let found = kubectl(cluster, "get crd -o name").await;
    found.matches(&format!("/{user}held")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_installations_of_two_tenants_leave_reconciles_to_another() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    for user in ["slots-ana", "slots-eve", "slots-ben"] {
        let line =
            format!("create clusterrolebinding {user} --clusterrole=cluster-admin --user={user}");
        kubectl(&cluster, &line).await;
    }
    apply(&cluster, &definition("slots")).await;
    wait::until_true(LONG, "the kind `Slot` is taken", || async {
        let found = get(&cluster, "crd slots.slots.example.com").await;
        let conditions = found.map(|crd| crd["status"]["conditions"].to_string());
        Ok(conditions.is_some_and(|text| text.contains("Established")))
    })
    .await
    .unwrap();

    let probe = LivenessProbe::start(&webhook);
    for (user, most) in ["ana", "eve"].into_iter().zip(PER_REQUESTER) {
        let held = (0..INSTALLATIONS_PER_TENANT).map(|number| {
            let plural = format!("{user}held{number}");
            let reference = publish_object(&registry, &plural, &definition(&plural));
            deployment(&plural, &reference)
        });
        let held = json!({"apiVersion": "v1", "kind": "List", "items": held.collect::<Vec<_>>()});
        let requester = format!("slots-{user}");
        let written = apply_as(&cluster, &held, Some(&requester)).await;
        written.success().unwrap();
        wait::until_true(LONG, "the first of them are held", || async {
            Ok(begun(&cluster, user).await >= most)
        })
        .await
        .unwrap();
    }

    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "slots-ben", "namespace": "default"},
    });
    let reference = publish_object(&registry, "slots-ben", &config);
    let asked = Instant::now();
    let object = deployment("slots-ben", &reference);
    let written = apply_as(&cluster, &object, Some("slots-ben")).await;
    written.success().unwrap();
    wait::until_true(
        OTHER_TENANT_TIMEOUT,
        "the other tenant's content is installed",
        || async {
            let found = get(&cluster, "configmap slots-ben -n default").await;
            Ok(found.is_some())
        },
    )
    .await
    .unwrap();
    record(&format!(
        "installed after {:?} beside {} and {} held installations",
        asked.elapsed(),
        begun(&cluster, "ana").await,
        begun(&cluster, "eve").await
    ));
    survived(
        "12 held installations of each of two tenants",
        &mut webhook,
        probe,
    )
    .await;
}
