//! The permissions that roles and bindings in content grant. The requester needs these permissions,
//! or verb `escalate` or `bind` on the role.

use std::collections::HashSet;

use bundle_core::rights::{self, AccessReview, AccessReviewBudget, Grant, RoleRef};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Client;
use kube::core::discovery::ApiResource;
use serde_json::Value;

use super::AccessReviewer;
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::rights::missing_rights::MissingRights;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Maximum number of entries in the rules of all evaluated roles. A role is evaluated again for
/// each namespace in which a binding grants the role.
const MAX_ENTRIES: usize = 10_000_000;

/// Roles that were already checked for the bindings in the content, and the remaining budget of
/// access reviews.
#[derive(Default)]
pub(super) struct CheckedGrants {
    budget: AccessReviewBudget,
    /// Roles whose rules were already checked, each with the namespace in which a binding grants
    /// the role. `None` means the whole cluster.
    checked: HashSet<(RoleRef, Option<String>)>,
    /// Number of entries in the rules of all evaluated roles.
    entries: usize,
}

impl CheckedGrants {
    /// Counts the entries in the rules of a role in the content and on the cluster. Returns false
    /// if all evaluated roles together then have more than [`MAX_ENTRIES`].
    fn count_entries(&mut self, content_role: Option<&Value>, live: Option<&Value>) -> bool {
        let roles = [content_role, live].into_iter().flatten();
        let entries: usize = roles.map(entries_of).sum();
        self.entries = self.entries.saturating_add(entries);
        self.entries <= MAX_ENTRIES
    }
}

/// Returns the number of entries in all lists of all rules, plus the numbers of rules and lists.
fn entries_of(role: &Value) -> usize {
    let rules = role["rules"].as_array().into_iter().flatten();
    let entries = rules.map(|rule| {
        let lists = rule
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::values);
        let entries = lists.map(|list| 1 + list.as_array().map_or(0, Vec::len));
        1 + entries.sum::<usize>()
    });
    entries.sum()
}

/// The result of reading a role on the cluster as the installer.
enum LiveRole {
    Found(Value),
    Missing,
    /// The installer has no permission to read the role, or the binding names no role.
    Unreadable,
}

impl AccessReviewer<'_> {
    /// Returns the `roleRef` of the existing binding on the cluster, if `item` is a binding without
    /// `roleRef`. Server-side apply keeps the existing `roleRef`.
    pub(super) async fn live_role_ref(
        &self,
        installer: &Client,
        item: &PreparedObject,
    ) -> Result<Option<Value>, kube::Error> {
        let is_binding = item.id.group == RBAC
            && matches!(item.id.kind.as_str(), "RoleBinding" | "ClusterRoleBinding");
        if !is_binding || item.value["roleRef"]["name"].is_string() {
            return Ok(None);
        }
        let namespace = item.id.namespace.as_deref();
        match object::read(installer, &item.kind, namespace, &item.id.name).await {
            Ok(Some(live)) => Ok(Some(live.data["roleRef"].clone())),
            Ok(None) => Ok(None),
            Err(error) if object::is_forbidden(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds those permissions to `missing` that `grant` grants in `namespace` and that the
    /// requester does not have.
    pub(super) async fn grant(
        &self,
        (installer, items): (&Client, &[PreparedObject]),
        (grant, namespace): (Grant, Option<&str>),
        grants: &mut CheckedGrants,
        missing: &mut MissingRights,
    ) -> Result<(), kube::Error> {
        let Grant { shortcut, role, .. } = grant;
        let key = (role, namespace.map(str::to_owned));
        if grants.checked.contains(&key) || self.is_allowed(&shortcut).await? {
            return Ok(());
        }
        let role = &key.0;
        let content_role = role_in_content(items, role).map(|item| &item.value);
        let live = self.live_role(installer, role).await?;
        let (is_known, live) = match &live {
            LiveRole::Found(live) => (true, Some(live)),
            LiveRole::Missing => (content_role.is_some(), None),
            LiveRole::Unreadable => (false, None),
        };
        let rules = (is_known && grants.count_entries(content_role, live))
            .then(|| rights::rules_after(content_role, live));
        let denied = match &rules {
            Some(rules) if grants.budget.take(rules) => {
                let questions = rules.iter().flat_map(|rule| rule.questions(namespace));
                self.denied(Box::new(questions)).await?.questions
            }
            // The rules of the role cannot be read, or are too many to check. Therefore the
            // requester needs the permission to bind the role.
            _ if content_role.is_some() => {
                missing.push(shortcut);
                return Ok(());
            }
            _ => vec![shortcut],
        };
        // The message contains the rules of a role on the cluster only if the requester has
        // permission to read this role.
        let stated = stated_permissions(content_role, namespace, &denied);
        let is_stated = |question: &AccessReview| stated.contains(question);
        let (stated, unstated): (Vec<_>, Vec<_>) = denied.into_iter().partition(is_stated);
        missing.extend(stated);
        if !unstated.is_empty() {
            let resource = format!("{}s", role.kind.to_lowercase());
            let of_role = role.namespace.as_deref();
            let read = AccessReview::resource("get", RBAC, &resource, of_role, Some(&role.name));
            if self.is_allowed(&read).await? {
                missing.extend(unstated);
            } else {
                let place = of_role.map(|namespace| format!("{namespace}/"));
                let place = place.unwrap_or_default();
                missing.push_unreadable_role(format!("{} {place}{}", role.kind, role.name));
            }
        }
        if is_known {
            grants.checked.insert(key);
        }
        Ok(())
    }

    /// Reads a Role or ClusterRole from the cluster, as the installer.
    async fn live_role(&self, installer: &Client, role: &RoleRef) -> Result<LiveRole, kube::Error> {
        if role.name.is_empty() {
            return Ok(LiveRole::Unreadable);
        }
        let kind = Kind {
            resource: if role.namespace.is_some() {
                ApiResource::erase::<Role>(&())
            } else {
                ApiResource::erase::<ClusterRole>(&())
            },
            namespaced: role.namespace.is_some(),
        };
        let namespace = role.namespace.as_deref();
        match object::read(installer, &kind, namespace, &role.name).await {
            Ok(Some(live)) => Ok(LiveRole::Found(live.data)),
            Ok(None) => Ok(LiveRole::Missing),
            Err(error) if object::is_forbidden(&error) => Ok(LiveRole::Unreadable),
            Err(error) => Err(error),
        }
    }
}

/// Returns those of the `denied` permissions that the role in the content grants in `namespace`.
/// The role can have many rules, so each of its permissions is looked up only once.
fn stated_permissions(
    content_role: Option<&Value>,
    namespace: Option<&str>,
    denied: &[AccessReview],
) -> HashSet<AccessReview> {
    let denied: HashSet<&AccessReview> = denied.iter().collect();
    if denied.is_empty() {
        return HashSet::new();
    }
    let rules = rights::rules_after(content_role, None);
    let questions = rules.iter().flat_map(|rule| rule.questions(namespace));
    questions
        .filter(|question| denied.contains(question))
        .collect()
}

/// Returns the object of this role among `items`. Returns `None` if the content does not contain
/// the role.
fn role_in_content<'a>(items: &'a [PreparedObject], role: &RoleRef) -> Option<&'a PreparedObject> {
    items.iter().find(|item| {
        item.id.group == RBAC
            && item.id.kind == role.kind
            && item.id.name == role.name
            && item.id.namespace == role.namespace
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_of_a_role_count_for_each_namespace_and_are_limited() {
        let texts = vec!["a"; 100_000];
        let role = json!({"rules": [{"verbs": texts, "apiGroups": texts}]});
        assert_eq!(entries_of(&role), 200_003);
        let mut grants = CheckedGrants::default();
        let evaluated = (0..5_000).filter(|_| {
            let is_evaluated = grants.count_entries(Some(&role), None);
            if is_evaluated {
                let rules = rights::rules_after(Some(&role), None);
                assert!(grants.budget.take(&rules));
            }
            is_evaluated
        });
        assert_eq!(evaluated.count(), MAX_ENTRIES / 200_003);
        assert!(!grants.count_entries(None, Some(&role)));
        // Ordinary roles are evaluated in thousands of namespaces.
        let role = json!({"rules": [{"verbs": vec!["a"; 500], "apiGroups": vec!["a"; 500]}]});
        let mut grants = CheckedGrants::default();
        assert!((0..5_000).all(|_| grants.count_entries(Some(&role), None)));
        for empty in [json!({}), json!({"rules": {}}), json!({"rules": "a"})] {
            assert_eq!(entries_of(&empty), 0);
        }
    }

    #[test]
    fn stated_permissions_are_the_denied_permissions_of_the_role_in_the_content() {
        let role = json!({"rules": [
            {},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a"]},
        ]});
        let pods = |verb: &str| AccessReview::resource(verb, "", "pods", Some("n"), None);
        let secret = |name| AccessReview::resource("get", "", "secrets", Some("n"), name);
        let denied = [pods("get"), pods("watch"), secret(Some("a")), secret(None)];
        let stated = stated_permissions(Some(&role), Some("n"), &denied);
        assert_eq!(stated, HashSet::from([pods("get"), secret(Some("a"))]));
        let unstated = stated_permissions(None, Some("n"), &denied);
        assert_eq!(unstated, HashSet::new());
    }
}
