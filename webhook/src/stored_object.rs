//! Reads the parts of a stored object on which its seal and stamp depend. The object is either the
//! JSON in a review, or an object that the reconciler has read.

use bundle_api::names::ANNOTATION_STAMP;
use bundle_core::review::{Kind, StoredObject, last_written};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

/// Reads an object of a review. `name` is the name in the request, because the object can be
/// without a name. `now` is in milliseconds since 1970.
pub(crate) fn from_review<'a>(
    kind: Kind,
    name: &'a str,
    object: &'a Value,
    now: i64,
) -> StoredObject<'a> {
    let metadata = &object["metadata"];
    StoredObject {
        kind,
        name,
        uid: metadata["uid"].as_str().unwrap_or_default(),
        generation: metadata["generation"].as_i64().unwrap_or_default(),
        created: milliseconds(&metadata["creationTimestamp"]),
        written: written_in_review(metadata, now),
        deleting: metadata["deletionTimestamp"].is_string(),
        spec: &object["spec"],
        stamp: stamp_in_review(object),
        seal: object["status"]["admission"]["seal"].as_str(),
    }
}

/// Reads an object of the Kubernetes client. `now` is in milliseconds since 1970.
pub(crate) fn from_client(kind: Kind, object: &DynamicObject, now: i64) -> StoredObject<'_> {
    let metadata = &object.metadata;
    let entries = metadata.managed_fields.iter().flatten();
    let times = entries
        .filter(|entry| entry.subresource.as_deref() != Some("status"))
        .filter_map(|entry| Some(entry.time.as_ref()?.0.as_millisecond()));
    let created = metadata.creation_timestamp.as_ref();
    StoredObject {
        kind,
        name: metadata.name.as_deref().unwrap_or_default(),
        uid: metadata.uid.as_deref().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        created: created.map(|time| time.0.as_millisecond()),
        written: last_written(times, now),
        deleting: metadata.deletion_timestamp.is_some(),
        spec: &object.data["spec"],
        stamp: object
            .annotations()
            .get(ANNOTATION_STAMP)
            .map(String::as_str),
        seal: object.data["status"]["admission"]["seal"].as_str(),
    }
}

/// Returns the time of the last write, except writes of the status, according to `managedFields`.
/// The result is in milliseconds since 1970.
pub(crate) fn written_in_review(metadata: &Value, now: i64) -> Option<i64> {
    let entries = metadata["managedFields"].as_array()?.iter();
    let times = entries
        .filter(|entry| entry["subresource"] != "status")
        .filter_map(|entry| milliseconds(&entry["time"]));
    last_written(times, now)
}

/// Returns the times of all entries of `managedFields`, in milliseconds since 1970.
pub(crate) fn written_times(object: &Value) -> impl Iterator<Item = i64> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten();
    entries.filter_map(|entry| milliseconds(&entry["time"]))
}

/// Returns the text of the stamp annotation.
pub(crate) fn stamp_in_review(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_STAMP].as_str()
}

fn milliseconds(time: &Value) -> Option<i64> {
    let time: Timestamp = time.as_str()?.parse().ok()?;
    Some(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn review_and_client_read_the_same_from_an_object() {
        let now: Timestamp = "2026-01-02T00:00:10Z".parse().unwrap();
        let entry = |time: &str, subresource: &str| json!({"manager": "a", "operation": "Update", "time": time, "subresource": subresource});
        let whole = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "Bundle",
            "metadata": {
                "name": "web",
                "uid": "u",
                "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "annotations": {ANNOTATION_STAMP: "stamp"},
                "managedFields": [
                    entry("2026-01-01T00:00:01Z", ""),
                    entry("2026-01-01T00:00:02Z", "scale"),
                    // The first entry is a write of the status. The second entry is in the future.
                    // Both entries are ignored.
                    entry("2026-01-01T00:00:03Z", "status"),
                    entry("2027-01-01T00:00:00Z", ""),
                ],
            },
            "spec": {"source": {"type": "image"}},
            "status": {"admission": {"seal": "seal"}},
        });
        let empty = json!({"apiVersion": "v1", "kind": "Bundle", "metadata": {"name": "web"}});
        for object in [whole, empty] {
            let read: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let reviewed = from_review(Kind::Bundle, "web", &object, now.as_millisecond());
            let received = from_client(Kind::Bundle, &read, now.as_millisecond());
            assert_eq!(format!("{reviewed:?}"), format!("{received:?}"));
            let written = reviewed.written.map(Timestamp::from_millisecond);
            let expected = reviewed.stamp.map(|_| "2026-01-01T00:00:02Z".parse());
            assert_eq!(written.transpose().unwrap(), expected.transpose().unwrap());
        }
    }
}
