//! Permissions that an installation grants, as lines for the user.

use serde_json::Value;

use super::manifests::EmbeddedManifest;

/// Returns a heading, followed by one line for each subject of each role binding.
pub(super) fn of(manifests: &[EmbeddedManifest]) -> Vec<String> {
    let mut lines = vec!["the installation grants these permissions:".to_owned()];
    for manifest in manifests {
        let object = &manifest.object;
        let scope = match manifest.kind() {
            "ClusterRoleBinding" => "in the whole cluster".to_owned(),
            "RoleBinding" => format!("in namespace {}", manifest.namespace().unwrap_or_default()),
            _ => continue,
        };
        let role = &object["roleRef"];
        for subject in items(&object["subjects"]) {
            lines.push(format!(
                "  {} {}/{}: {} {} {scope}{}",
                text(&subject["kind"]),
                text(&subject["namespace"]),
                text(&subject["name"]),
                text(&role["kind"]),
                text(&role["name"]),
                risk(role, manifests),
            ));
        }
    }
    lines
}

/// Returns a remark about the risk of the role cluster-admin, or of a role with impersonation. The
/// text is empty for other roles.
fn risk(role: &Value, manifests: &[EmbeddedManifest]) -> &'static str {
    if role["kind"] == "ClusterRole" && role["name"] == "cluster-admin" {
        return "; by default, the pod uses this role only within the permissions of the requester";
    }
    let impersonates = manifests
        .iter()
        .filter(|manifest| role["kind"] == manifest.kind() && role["name"] == manifest.name())
        .flat_map(|manifest| items(&manifest.object["rules"]))
        .any(|rule| {
            items(&rule["verbs"]).any(|verb| verb == "impersonate")
                && items(&rule["resources"]).any(|resource| resource == "users")
        });
    if impersonates {
        ", with impersonation of users for dry runs: a user with its token is as powerful as cluster-admin"
    } else {
        ""
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_admin_and_impersonation_are_named() {
        let lines =
            of(&crate::commands::webhook::install::manifests::all("bundle-system").unwrap())
                .join("\n");
        for expected in [
            "ServiceAccount bundle-system/installer: ClusterRole cluster-admin in the whole cluster",
            "ServiceAccount bundle-system/bundle-webhook: ClusterRole bundle-webhook in the whole cluster, with impersonation",
            "ServiceAccount bundle-system/bundle-webhook: Role bundle-webhook in namespace bundle-system-state",
        ] {
            assert!(lines.contains(expected), "{lines}");
        }
    }
}
