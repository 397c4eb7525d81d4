//! Records the time of an update in `metadata.managedFields` if the API server does not record it.
//! The API server does not record the time for a manager that owns no fields, and for an object
//! whose `managedFields` were cleared. `bundle_core::review::seal` compares this time with the time
//! of the stamp, to detect a stamp that was copied from another request.

use bundle_api::names::{ANNOTATION_STAMP, API_VERSION};
use bundle_core::review::{Stamp, is_written_with};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stored_object;

/// The field manager of the entry that this module adds.
const MANAGER: &str = "bundle-webhook-admission";

/// Returns the JSON patch operation that records the time of the update that sets `stamp` on
/// `object`. Returns `None` for the creation of an object, and if an entry already contains this
/// time.
///
/// Users who write the object can forge entries. Therefore a stamp is only valid if the webhook
/// registrations have been intact since the time of the stamp.
pub(in crate::admission) fn patch(object: &Value, stamp: &Stamp) -> Option<Value> {
    stamp.target.as_ref()?;
    let metadata = &object["metadata"];
    let written = stored_object::written_in_review(metadata, stamp.time);
    if written.is_some_and(|written| is_written_with(stamp, written)) {
        return None;
    }
    let second = Timestamp::from_second(stamp.time.div_euclid(1000)).ok()?;
    let entry = json!({
        "manager": MANAGER,
        "operation": "Update",
        "apiVersion": API_VERSION,
        "time": second.to_string(),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {format!("f:{ANNOTATION_STAMP}"): {}}}},
    });
    let path = "/metadata/managedFields";
    let Some(entries) = metadata["managedFields"].as_array() else {
        return Some(json!({"op": "add", "path": path, "value": [entry]}));
    };
    let earlier = entries.iter().position(|entry| {
        entry["manager"] == MANAGER
            && entry["operation"] == "Update"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    });
    Some(match earlier {
        Some(index) => {
            json!({"op": "replace", "path": format!("{path}/{index}"), "value": entry})
        }
        None => json!({"op": "add", "path": format!("{path}/-"), "value": entry}),
    })
}

#[cfg(test)]
mod tests {
    use bundle_core::review::{PartRequesters, Requester, StampTarget, written_digest};

    use super::*;

    const NOON: i64 = 1_800_000_000_000;

    fn stamp() -> Stamp {
        Stamp {
            time: NOON + 300,
            kind: "BundleDeployment".into(),
            name: "web".into(),
            target: Some(StampTarget {
                uid: "u".into(),
                generation: 2,
            }),
            spec: written_digest(&json!({})),
            parts: PartRequesters::all(&Requester::default()),
            approves: None,
            generated_for: None,
            owners: None,
            admitted_at: None,
        }
    }

    fn entry(manager: &str, milliseconds: i64) -> Value {
        let time = Timestamp::from_millisecond(milliseconds).unwrap();
        json!({"manager": manager, "operation": "Update", "time": time.to_string()})
    }

    fn with(entries: &Value) -> Value {
        json!({"metadata": {"managedFields": entries}})
    }

    #[test]
    fn update_without_managed_fields_entry_gets_one() {
        let patched = patch(&json!({"metadata": {}}), &stamp()).unwrap();
        assert_eq!(patched["path"], "/metadata/managedFields");
        let noted = &patched["value"][0];
        assert_eq!(
            stored_object::written_in_review(&with(&json!([noted]))["metadata"], NOON),
            Some(NOON)
        );
        assert_eq!(patch(&with(&json!([noted])), &stamp()), None);

        let old = entry("kubectl", NOON - 60_000);
        let mut status = entry("seal", NOON);
        status["subresource"] = "status".into();
        let patched = patch(&with(&json!([old, status])), &stamp()).unwrap();
        assert_eq!(patched["path"], "/metadata/managedFields/-");
        assert_eq!(patched["value"]["manager"], MANAGER);
        let patched = patch(
            &with(&json!([old, entry(MANAGER, NOON - 60_000)])),
            &stamp(),
        );
        assert_eq!(patched.unwrap()["path"], "/metadata/managedFields/1");
    }

    #[test]
    fn creation_and_update_with_managed_fields_entry_get_no_patch() {
        let create = Stamp {
            target: None,
            ..stamp()
        };
        assert_eq!(patch(&json!({"metadata": {}}), &create), None);
        let shown = with(&json!([entry("kubectl", NOON)]));
        assert_eq!(patch(&shown, &stamp()), None);
    }
}
