//! Summary of a preview: numbers of objects, and changes of permissions, images and
//! CustomResourceDefinitions.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::images;
use bundle_core::object::{GroupKind, Manifest, ObjectId};
use serde::Serialize;
use serde_json::Value;

use super::{ChangeKind, ObjectChange, Preview};

/// API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Maximum number of permissions that are compared for one role.
const MAX_PERMISSIONS: usize = 10_000;
/// Start of the key of every CustomResourceDefinition: kind and API group.
const DEFINITION: &str = "CustomResourceDefinition.apiextensions.k8s.io/";

/// Summary of a preview.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Number of created objects.
    pub(super) created: usize,
    /// Number of changed objects.
    pub(super) configured: usize,
    /// Number of objects that are deleted and created again.
    pub(super) replaced: usize,
    /// Number of deleted objects.
    pub(super) deleted: usize,
    /// Number of objects without a change.
    pub(super) unchanged: usize,
    /// Changes of roles and bindings, one line each.
    pub(super) rbac: Vec<String>,
    /// Changes of container images, one line each.
    pub(super) images: Vec<String>,
    /// Changes of CustomResourceDefinitions, one line each.
    pub(super) crds: Vec<String>,
}

impl Summary {
    /// Returns the summary of `preview`.
    pub(super) fn of(preview: &Preview) -> Self {
        let count = |kind| {
            let changes = preview.changes.iter();
            changes.filter(|change| change.kind == kind).count()
        };
        Self {
            created: count(ChangeKind::Created),
            configured: count(ChangeKind::Configured),
            replaced: count(ChangeKind::Replaced),
            deleted: count(ChangeKind::Deleted),
            unchanged: preview.unchanged + count(ChangeKind::Kept),
            rbac: preview.changes.iter().flat_map(rbac).collect(),
            images: image_changes(&preview.changes),
            crds: preview.changes.iter().filter_map(definition).collect(),
        }
    }

    /// Returns the numbers in one line: `1 created, 2 configured, 197 unchanged`.
    pub(super) fn counts(&self) -> String {
        let counts = [
            (self.created, "created"),
            (self.configured, "configured"),
            (self.replaced, "replaced"),
            (self.deleted, "deleted"),
            (self.unchanged, "unchanged"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if counts.is_empty() {
            "no objects".to_owned()
        } else {
            counts.join(", ")
        }
    }

    /// Returns the lines of all sections, each with the title of its section.
    pub(super) fn lines(&self) -> Vec<String> {
        let sections = [
            ("RBAC", &self.rbac),
            ("Images", &self.images),
            ("CRDs", &self.crds),
        ];
        let lines = sections
            .into_iter()
            .flat_map(|(title, lines)| lines.iter().map(move |line| format!("{title}: {line}")));
        lines.collect()
    }
}

/// For a role, pairs of resource and verb. For a binding, its role and its subjects, each with an
/// empty verb.
type Grants = BTreeSet<(String, String)>;

/// Returns the changed permissions of a role, or the changed role and subjects of a binding.
fn rbac(change: &ObjectChange) -> Vec<String> {
    let GroupKind { group, kind } = GroupKind::of_key(&change.key);
    if group != RBAC {
        return Vec::new();
    }
    let key = change.key.replacen(&format!(".{RBAC}"), "", 1);
    let grants = |object: Option<&Value>| -> Grants {
        let Some(object) = object else {
            return Grants::new();
        };
        match kind.as_str() {
            "Role" | "ClusterRole" => items(&object["rules"])
                .flat_map(permissions)
                .take(MAX_PERMISSIONS)
                .collect(),
            _ => {
                let role = &object["roleRef"];
                let role = format!("{}/{}", text(&role["kind"]), text(&role["name"]));
                let subjects = items(&object["subjects"]);
                subjects
                    .map(|one| (format!("{role} for {}", subject(one)), String::new()))
                    .collect()
            }
        }
    };
    let (before, after) = (
        grants(change.before.as_ref()),
        grants(change.after.as_ref()),
    );
    let lines = |word: &str, from: &Grants, to: &Grants| -> Vec<String> {
        let mut by_target = BTreeMap::<&str, Vec<&str>>::new();
        for (target, verb) in to.difference(from) {
            by_target.entry(target).or_default().push(verb);
        }
        let lines = by_target.into_iter().map(|(target, verbs)| {
            let granted = format!("{} {target}", verbs.join(","));
            format!("{key} {word} {}", granted.trim_start())
        });
        lines.collect()
    };
    [
        lines("gains", &before, &after),
        lines("loses", &after, &before),
    ]
    .concat()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the permissions of a rule.
fn permissions(rule: &Value) -> impl Iterator<Item = (String, String)> {
    let names: Vec<&str> = items(&rule["resourceNames"]).map(text).collect();
    let suffix = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(","))
    };
    let groups = items(&rule["apiGroups"]).map(text);
    let resources = groups.flat_map(move |group| {
        let suffix = suffix.clone();
        items(&rule["resources"])
            .map(text)
            .map(move |resource| match group {
                "" => format!("{resource}{suffix}"),
                group => format!("{resource}.{group}{suffix}"),
            })
    });
    let paths = items(&rule["nonResourceURLs"]).map(text).map(str::to_owned);
    resources.chain(paths).flat_map(|target| {
        items(&rule["verbs"])
            .map(text)
            .map(move |verb| (target.clone(), verb.to_owned()))
    })
}

fn subject(subject: &Value) -> String {
    let (kind, name) = (text(&subject["kind"]), text(&subject["name"]));
    match subject["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Returns the images that were added or removed. Only fields that certainly contain images are
/// compared.
fn image_changes(changes: &[ObjectChange]) -> Vec<String> {
    let images = |side: fn(&ObjectChange) -> Option<&Value>| -> BTreeSet<String> {
        let objects: Vec<Manifest> = changes
            .iter()
            .filter_map(|change| Some(manifest(change, side(change)?)))
            .collect();
        let found = images::find(&objects, None).unwrap_or_default();
        let certain = found.into_iter().filter(|image| !image.is_probable());
        certain.map(|image| image.image).collect()
    };
    let before = images(|change| change.before.as_ref());
    let after = images(|change| change.after.as_ref());
    let added = after.difference(&before).map(|image| format!("+ {image}"));
    let removed = before.difference(&after).map(|image| format!("- {image}"));
    added.chain(removed).collect()
}

fn manifest(change: &ObjectChange, value: &Value) -> Manifest {
    let (group, version) = match change.api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", change.api_version.as_str()),
    };
    Manifest {
        id: ObjectId {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(&value["kind"]).to_owned(),
            namespace: None,
            name: text(&value["metadata"]["name"]).to_owned(),
        },
        value: value.clone(),
        file: String::new(),
        line: 0,
    }
}

/// Returns the change of a CustomResourceDefinition with its versions.
fn definition(change: &ObjectChange) -> Option<String> {
    let name = change.key.strip_prefix(DEFINITION)?;
    if change.kind == ChangeKind::Kept {
        return None;
    }
    let versions = |object: Option<&Value>| {
        let versions = object.map(|object| items(&object["spec"]["versions"]));
        let versions = versions.into_iter().flatten().map(|version| {
            let name = text(&version["name"]);
            let mut marks = Vec::new();
            if version["served"] == false {
                marks.push("not served");
            }
            if version["storage"] == true {
                marks.push("stored");
            }
            if marks.is_empty() {
                name.to_owned()
            } else {
                format!("{name} ({})", marks.join(", "))
            }
        });
        versions.collect::<Vec<_>>().join(", ")
    };
    let (before, after) = (
        versions(change.before.as_ref()),
        versions(change.after.as_ref()),
    );
    let word = change.kind.word();
    Some(match (&change.before, &change.after) {
        (Some(_), Some(_)) if before != after => format!("{name} {word}: {before} -> {after}"),
        (Some(_), None) => format!("{name} {word} with all of its custom resources: {before}"),
        _ => format!("{name} {word}: {after}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(
        key: &str,
        api_version: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> ObjectChange {
        ObjectChange {
            key: key.to_owned(),
            api_version: api_version.to_owned(),
            kind: match (&before, &after) {
                (None, _) => ChangeKind::Created,
                (_, None) => ChangeKind::Deleted,
                _ => ChangeKind::Configured,
            },
            before,
            after,
            note: None,
            origin: None,
        }
    }

    #[test]
    fn changes_of_permissions_images_and_definitions_are_listed() {
        let role = |rules: Value| Some(json!({"kind": "ClusterRole", "rules": rules}));
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        let secrets = json!({"apiGroups": ["", "apps"], "resources": ["x"], "resourceNames": ["a"], "verbs": ["get", "list"]});
        let binding = json!({
            "kind": "RoleBinding", "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "a", "name": "b"}, {"kind": "User", "name": "u"}],
        });
        let workload = |image: &str| {
            Some(
                json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"image": image}]}}}}),
            )
        };
        let crd = |versions: Value| {
            Some(json!({"kind": "CustomResourceDefinition", "spec": {"versions": versions}}))
        };
        let v1 = json!({"name": "v1", "served": true, "storage": true});
        let old = json!({"name": "v1", "served": false, "storage": false});
        let v2 = json!({"name": "v2", "served": true, "storage": true});
        let preview = Preview {
            unchanged: 7,
            changes: vec![
                change(
                    "ClusterRole.rbac.authorization.k8s.io/web",
                    "rbac.authorization.k8s.io/v1",
                    role(json!([pods])),
                    role(json!([secrets])),
                ),
                change(
                    "RoleBinding.rbac.authorization.k8s.io/team-a/web",
                    "rbac.authorization.k8s.io/v1",
                    None,
                    Some(binding),
                ),
                change(
                    "Deployment.apps/team-a/web",
                    "apps/v1",
                    workload("example.com/web:1"),
                    workload("example.com/web:2"),
                ),
                change(
                    "CustomResourceDefinition.apiextensions.k8s.io/ws.example.com",
                    "apiextensions.k8s.io/v1",
                    crd(json!([v1])),
                    crd(json!([old, v2])),
                ),
                change(
                    "CustomResourceDefinition.apiextensions.k8s.io/xs.example.com",
                    "apiextensions.k8s.io/v1",
                    crd(json!([v1])),
                    None,
                ),
            ],
            ..Preview::default()
        };
        let summary = Summary::of(&preview);
        assert_eq!(
            summary.counts(),
            "1 created, 3 configured, 1 deleted, 7 unchanged"
        );
        assert_eq!(
            summary.lines(),
            [
                "RBAC: ClusterRole/web gains get,list x (a)",
                "RBAC: ClusterRole/web gains get,list x.apps (a)",
                "RBAC: ClusterRole/web loses get pods",
                "RBAC: RoleBinding/team-a/web gains Role/r for ServiceAccount a/b",
                "RBAC: RoleBinding/team-a/web gains Role/r for User u",
                "Images: + example.com/web:2",
                "Images: - example.com/web:1",
                "CRDs: ws.example.com configured: v1 (stored) -> v1 (not served), v2 (stored)",
                "CRDs: xs.example.com deleted with all of its custom resources: v1 (stored)",
            ]
        );
    }
}
