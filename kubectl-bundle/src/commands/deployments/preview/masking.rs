//! Masks the values of Secrets, as `kubectl diff` does: different values get different masks.

use serde_json::{Map, Value};

use super::ObjectChange;

/// Mask of a value that does not change.
const MASK_UNCHANGED: &str = "***";
/// Mask of a value before its change.
const MASK_BEFORE: &str = "*** (before)";
/// Mask of a value after its change.
const MASK_AFTER: &str = "*** (after)";
/// Fields of a Secret with secret values.
const FIELDS: [&str; 2] = ["data", "stringData"];

/// Masks the values of a Secret.
pub(super) fn mask(change: &mut ObjectChange) {
    if !change.key.starts_with("Secret/") {
        return;
    }
    for field in FIELDS {
        let mut before = values(&mut change.before, field);
        let mut after = values(&mut change.after, field);
        if let (Some(before), Some(after)) = (&mut before, &mut after) {
            for (key, value) in before.iter_mut() {
                let Some(other) = after.get_mut(key) else {
                    continue;
                };
                let (mask_before, mask_after) = if value == other {
                    (MASK_UNCHANGED, MASK_UNCHANGED)
                } else {
                    (MASK_BEFORE, MASK_AFTER)
                };
                *value = mask_before.into();
                *other = mask_after.into();
            }
        }
        for value in [before, after]
            .into_iter()
            .flatten()
            .flat_map(Map::values_mut)
        {
            if ![MASK_UNCHANGED, MASK_BEFORE, MASK_AFTER]
                .iter()
                .any(|mask| value == mask)
            {
                *value = MASK_UNCHANGED.into();
            }
        }
    }
}

fn values<'o>(object: &'o mut Option<Value>, field: &str) -> Option<&'o mut Map<String, Value>> {
    object.as_mut()?.get_mut(field)?.as_object_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ChangeKind;
    use super::*;

    fn masked(key: &str, before: Value, after: Value) -> (Value, Value) {
        let mut change = ObjectChange {
            key: key.to_owned(),
            api_version: "v1".to_owned(),
            kind: ChangeKind::Configured,
            before: Some(before),
            after: Some(after),
            note: None,
            origin: None,
        };
        mask(&mut change);
        (change.before.unwrap(), change.after.unwrap())
    }

    #[test]
    fn values_of_secrets_are_masked_and_their_changes_stay_visible() {
        let before = json!({"data": {"same": "YQ==", "changed": "Yg==", "removed": "Yw=="}});
        let after = json!({"data": {"same": "YQ==", "changed": "ZA==", "added": "ZQ=="}, "stringData": {"s": "x"}});
        let (before, after) = masked("Secret/team-a/web", before, after);
        assert_eq!(
            before,
            json!({"data": {"same": "***", "changed": "*** (before)", "removed": "***"}})
        );
        assert_eq!(
            after,
            json!({
                "data": {"same": "***", "changed": "*** (after)", "added": "***"},
                "stringData": {"s": "***"},
            })
        );
    }

    #[test]
    fn other_kinds_are_not_masked() {
        let object = json!({"data": {"a": "b"}});
        for key in ["ConfigMap/team-a/web", "Secret.example.com/team-a/web"] {
            assert_eq!(masked(key, object.clone(), object.clone()).0, object);
        }
    }
}
