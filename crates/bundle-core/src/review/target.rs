//! The namespace of objects of a content that name none, as admission and the reconciler check it.

/// A target namespace that is one of the webhook's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("content cannot be installed in namespace {0} of bundle-webhook")]
pub struct ReservedNamespace(String);

/// Checks that `target` is neither the `system` nor the `state` namespace of the webhook: a Pod
/// there could mount its keys and the pull secrets of all.
pub fn check_target(
    target: Option<&str>,
    system: &str,
    state: &str,
) -> Result<(), ReservedNamespace> {
    match target {
        Some(target) if target == system || target == state => {
            Err(ReservedNamespace(target.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns the state namespace of a webhook that was not given one.
pub fn default_state_namespace(system: &str) -> String {
    format!("{system}-state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_both_namespaces_of_the_webhook() {
        for (target, is_free) in [
            (None, true),
            (Some("team-a"), true),
            (Some("sys"), false),
            (Some("sys-state"), false),
            (Some("sys-stat"), true),
        ] {
            assert_eq!(
                check_target(target, "sys", "sys-state").is_ok(),
                is_free,
                "{target:?}"
            );
        }
    }
}
