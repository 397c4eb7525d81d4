//! Progress of a rollout by phase, for the condition `Progressing`.

use std::collections::BTreeMap;

use crate::object::GroupKind;
use crate::plan::health::has_health;
use crate::plan::phases::Phase;

/// Returns the number of ready objects of each phase that has unready objects, in the order of
/// installation: `1/2 services, 3/7 workloads ready`. `None` if all objects are ready. `keys` are
/// the keys of all objects. Kinds without health do not count.
pub fn progress<'k>(
    keys: impl IntoIterator<Item = &'k str>,
    unhealthy: &BTreeMap<String, String>,
) -> Option<String> {
    let mut phases = BTreeMap::<Phase, (usize, usize)>::new();
    for key in keys {
        let kind = GroupKind::parse(key.split('/').next().unwrap_or_default());
        let is_unhealthy = unhealthy.contains_key(key);
        if !is_unhealthy && !has_health(&kind.group, &kind.kind) {
            continue;
        }
        let phase = Phase::of(&kind.group, &kind.kind);
        let (ready, all) = phases.entry(phase).or_default();
        *ready += usize::from(!is_unhealthy);
        *all += 1;
    }
    let waiting: Vec<String> = phases
        .into_iter()
        .filter(|(_, (ready, all))| ready < all)
        .map(|(phase, (ready, all))| format!("{ready}/{all} {}", noun(phase)))
        .collect();
    (!waiting.is_empty()).then(|| format!("{} ready", waiting.join(", ")))
}

/// Returns the plural noun for the objects of a phase.
fn noun(phase: Phase) -> &'static str {
    match phase {
        Phase::Namespaces => "namespaces",
        Phase::Policies => "policies",
        Phase::Identity => "ServiceAccounts",
        Phase::Configuration => "ConfigMaps and Secrets",
        Phase::Storage => "volumes",
        Phase::Crds => "CustomResourceDefinitions",
        Phase::Roles => "roles",
        Phase::Bindings => "role bindings",
        Phase::Infrastructure => "services",
        Phase::Deploy => "workloads",
        Phase::Scaling => "autoscalers",
        Phase::Publish => "routes",
        Phase::Admission => "webhooks and APIs",
        Phase::AdmissionBindings => "policy bindings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(keys: &[&str], unhealthy: &[&str]) -> Option<String> {
        let unhealthy = unhealthy
            .iter()
            .map(|key| ((*key).to_owned(), "waiting".to_owned()))
            .collect();
        progress(keys.iter().copied(), &unhealthy)
    }

    #[test]
    fn unready_phases_are_listed_in_the_order_of_installation() {
        let keys = [
            "Deployment.apps/team-a/web",
            "Deployment.apps/team-a/db",
            "Widget.example.com/team-a/web",
            "Service/team-a/web",
            "ConfigMap/team-a/web",
            "CustomResourceDefinition.apiextensions.k8s.io//widgets.example.com",
        ];
        for (unhealthy, expected) in [
            (vec![], None),
            (vec![keys[0]], Some("2/3 workloads ready")),
            (
                vec![keys[3], keys[0], keys[2]],
                Some("0/1 services, 1/3 workloads ready"),
            ),
            (vec![keys[5]], Some("0/1 CustomResourceDefinitions ready")),
        ] {
            assert_eq!(shown(&keys, &unhealthy).as_deref(), expected);
        }
    }

    #[test]
    fn objects_without_health_do_not_count() {
        assert_eq!(shown(&["ConfigMap/team-a/web"], &[]), None);
        assert_eq!(shown(&[], &["ConfigMap/team-a/web"]), None);
    }
}
