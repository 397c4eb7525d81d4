//! Last correction of each object, from the Events of bundle-webhook.
//!
//! API servers keep Events for an hour by default. Users with permission to create Events can forge
//! Events of bundle-webhook, so no decision depends on Events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

use crate::commands::deployments::listing::last_seen;

/// Last correction of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Correction {
    /// Time of the last Event about the object.
    pub(super) at: Timestamp,
    /// Field manager that had changed the object, or `<deleted>` if the object had been deleted.
    /// `None` if the Event names no field manager.
    pub(super) writer: Option<String>,
}

/// Returns the last correction of each object by its key. Only Events about the BundleDeployment
/// with this uid are used.
pub(super) fn by_object(events: &[Event], uid: Option<&str>) -> BTreeMap<String, Correction> {
    let mut corrections: BTreeMap<String, Correction> = BTreeMap::new();
    for event in events {
        // Skips Events about an earlier BundleDeployment with the same name.
        let other = event.involved_object.uid.as_deref();
        if other.is_some() && other != uid {
            continue;
        }
        let Some((key, correction)) = read(event) else {
            continue;
        };
        let last = corrections.get(&key);
        if last.is_none_or(|last| last.at < correction.at) {
            corrections.insert(key, correction);
        }
    }
    corrections
}

/// Parses `restored KEY (field manager "NAME" had written it)`. Messages about several objects have
/// no key.
fn read(event: &Event) -> Option<(String, Correction)> {
    event.related.as_ref()?;
    let text = event.message.as_deref()?.strip_prefix("restored ")?;
    let (key, cause) = match text.split_once(' ') {
        Some((key, cause)) => (key, cause),
        None => (text, ""),
    };
    let cause = cause
        .strip_prefix('(')
        .and_then(|cause| cause.strip_suffix(')'));
    let writer = match cause {
        Some("it had been deleted") => Some("<deleted>".to_owned()),
        Some(cause) => cause
            .strip_prefix("field manager \"")
            .and_then(|cause| cause.strip_suffix("\" had written it"))
            .map(str::to_owned),
        None => None,
    };
    let at = last_seen(event)?;
    Some((key.to_owned(), Correction { at, writer }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(uid: &str, message: &str, at: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {"name": "web", "uid": uid}, "related": {"name": "x"},
            "message": message, "eventTime": at,
        }))
        .unwrap()
    }

    #[test]
    fn last_event_of_an_object_counts_with_its_field_manager() {
        let events = [
            event(
                "a",
                "restored ConfigMap/t/one (field manager \"new\" had written it)",
                "2026-01-01T10:30:00.000000Z",
            ),
            event(
                "a",
                "restored ConfigMap/t/one (field manager \"old\" had written it)",
                "2026-01-01T10:20:00.000000Z",
            ),
            event(
                "a",
                "restored ConfigMap/t/two (it had been deleted)",
                "2026-01-01T10:20:00.000000Z",
            ),
            event(
                "a",
                "restored ConfigMap/t/three",
                "2026-01-01T10:20:00.000000Z",
            ),
            event(
                "b",
                "restored ConfigMap/t/four",
                "2026-01-01T10:20:00.000000Z",
            ),
        ];
        let found = by_object(&events, Some("a"));
        let writer = |name: &str| found[&format!("ConfigMap/t/{name}")].writer.as_deref();
        assert_eq!(writer("one"), Some("new"));
        assert_eq!(writer("two"), Some("<deleted>"));
        assert_eq!(writer("three"), None);
        assert_eq!(found.len(), 3);
    }
}
