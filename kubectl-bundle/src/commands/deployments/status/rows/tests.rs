use bundle_core::object::GroupKind;

use super::*;

fn live(key: &str, health: Option<Health>) -> LiveObject {
    LiveObject {
        key: key.to_owned(),
        api_version: "v1".to_owned(),
        created: Some(Time("2026-01-01T09:00:00Z".parse().unwrap())),
        uid: String::new(),
        owners: Vec::new(),
        health,
    }
}

fn unread(kind: &str, namespace: Option<&str>, cause: UnreadCause) -> UnreadList {
    UnreadList {
        kind: GroupKind::parse(kind),
        namespace: namespace.map(str::to_owned),
        cause,
    }
}

fn upgrading(applied: &[&str]) -> BundleDeploymentStatus {
    serde_json::from_value(json!({
        "installed": {"digest": "sha256:1", "version": "1.0.0", "objects": 4},
        "upgrade": {"bundle": "web-2", "digest": "sha256:2", "version": "2.0.0", "appliedObjects": applied},
        "drift": [{"object": "ConfigMap/team-a/gone"}, {"object": "Secret/team-a/key"}],
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T11:00:00Z".parse().unwrap()
}

fn half_upgraded() -> InstalledObjects {
    let not_up = Health::Waiting("0 of 1 replicas are available".to_owned());
    InstalledObjects {
        live: vec![
            live("ConfigMap/team-a/new", None),
            live("Deployment.apps/team-a/web", Some(not_up)),
            live("Namespace/team-a", Some(Health::Ready)),
        ],
        missing: ["ConfigMap/team-a/gone".to_owned()].into(),
        unread: vec![
            unread("Gone.example.com", None, UnreadCause::NotServed),
            unread(
                "Secret",
                Some("team-a"),
                UnreadCause::Forbidden("list", "secrets".to_owned()),
            ),
            unread(
                "Secret",
                Some("team-a"),
                UnreadCause::Forbidden("get", "secrets".to_owned()),
            ),
        ],
        ..InstalledObjects::default()
    }
}

fn half_upgraded_rows() -> Vec<ObjectRow> {
    let correction = Correction {
        at: "2026-01-01T10:58:00Z".parse().unwrap(),
        writer: Some("kubectl-edit".to_owned()),
    };
    let corrections = [("Deployment.apps/team-a/web".to_owned(), correction)].into();
    let named = ["ConfigMap/team-a/gone", "Secret/team-a/key"].map(str::to_owned);
    let status = upgrading(&["ConfigMap/team-a/new"]);
    rows(&half_upgraded(), &status, named, &corrections)
}

#[test]
fn table_shows_version_correction_and_health_of_each_object() {
    assert_eq!(
        table(&half_upgraded_rows(), true, false, now()),
        "\
KIND               NAMESPACE   NAME     VERSION   CORRECTED   BY             HEALTH
ConfigMap          team-a      gone     1.0.0     -           -              Missing
ConfigMap          team-a      new      2.0.0     -           -              -
Deployment.apps    team-a      web      1.0.0     2m ago      kubectl-edit   Waiting: 0 of 1 replicas are available
Namespace          <none>      team-a   1.0.0     -           -              Ready
Secret             team-a      key      1.0.0     -           -              ?
Gone.example.com   -           ?        -         -           -              ?: the API server does not serve this kind
Secret             team-a      ?        -         -           -              ?
"
    );
    let wide = table(&half_upgraded_rows()[1..2], false, true, now());
    assert_eq!(
        wide,
        "\
KIND        NAMESPACE   NAME   VERSION   CORRECTED   BY   APIVERSION   AGE   HEALTH
ConfigMap   team-a      new    2.0.0     ?           ?    v1           120m   -
"
        .replace("AGE   HEALTH", "AGE    HEALTH")
    );
}

#[test]
fn structured_rows_have_no_keys_for_unknown_values() {
    let rows = structured(&half_upgraded_rows());
    assert_eq!(
        rows[2],
        json!({
            "kind": "Deployment.apps", "namespace": "team-a", "name": "web", "apiVersion": "v1", "version": "1.0.0",
            "health": "Waiting", "message": "0 of 1 replicas are available",
            "lastCorrection": "2026-01-01T10:58:00Z", "lastWriter": "kubectl-edit",
        })
    );
    assert_eq!(rows[6], json!({"kind": "Secret", "namespace": "team-a"}));
}

#[test]
fn version_is_unknown_if_the_list_of_applied_objects_may_be_truncated() {
    let applied: Vec<String> = (0..MAX_APPLIED)
        .map(|number| format!("ConfigMap/team-a/item-{number}"))
        .collect();
    let applied: Vec<&str> = applied.iter().map(String::as_str).collect();
    let status = upgrading(&applied);
    assert_eq!(version(&status, applied[3]).as_deref(), Some("2.0.0"));
    assert_eq!(version(&status, "ConfigMap/team-a/other"), None);
    let status = upgrading(&applied[1..]);
    assert_eq!(version(&status, applied[0]).as_deref(), Some("1.0.0"));
    assert_eq!(
        version(&BundleDeploymentStatus::default(), "Namespace/a"),
        None
    );
}

#[test]
fn warning_names_each_missing_permission_once() {
    let warning = warning(&half_upgraded(), false).unwrap();
    assert_eq!(
        warning.message,
        "values shown as `?` could not be read: no permission to get secrets in namespace team-a; no permission to list events in namespace default; \
         no permission to list secrets in namespace team-a; Gone.example.com: not served"
    );
    assert_eq!(super::warning(&InstalledObjects::default(), true), None);
}

#[test]
fn count_includes_objects_that_are_not_listed() {
    // Only five rows have the name of an object.
    let rows = half_upgraded_rows();
    let mut status = upgrading(&[]);
    assert_eq!(count(&rows, false, &status), None);
    status.upgrade = None;
    assert_eq!(count(&rows, false, &status), None);
    assert_eq!(
        count(&rows[1..4], false, &status).as_deref(),
        Some("3 of 4 installed objects are listed (1 more)")
    );
    status.installed = None;
    let cut = count(&rows, true, &status).unwrap();
    assert!(
        cut.starts_with("5 objects are listed; there are more"),
        "{cut}"
    );
}
