//! Error responses with bounded size. Users and admission webhooks choose the values that the API
//! server repeats in its messages, and callers keep the messages of many objects at the same time.

use std::fmt;

use bundle_core::text::bounded;
use bytes::Bytes;
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

/// Longest message of a `Status`, and longest text of a response that is not a `Status`, in bytes.
pub(super) const MESSAGE_LIMIT: usize = 4 << 10;
/// Largest number of causes that are kept. One more entry counts the omitted causes.
const MAX_CAUSES: usize = 32;
/// Largest size of the texts of all causes together, in bytes.
const CAUSES_LIMIT: usize = 8 << 10;
/// Longest field of a cause, in bytes.
const FIELD_LIMIT: usize = 1 << 10;
/// Longest message of a cause, in bytes.
const CAUSE_MESSAGE_LIMIT: usize = 1 << 10;
/// Size of the end of a long message of a cause that is kept, in bytes.
/// [`bundle_core::plan::replace::immutable_fields`] compares the end.
const CAUSE_END: usize = 128;
/// Longest reason, name, group, kind or uid, in bytes. Kubernetes allows 253 for a name.
const NAME_LIMIT: usize = 256;
/// Reason of the cause that counts the omitted causes. No rule accepts a cause with this reason.
const OMITTED: &str = "CausesOmitted";

/// Returns the body of an error response with bounded texts. A body that is not a `Status` is
/// returned unchanged up to [`MESSAGE_LIMIT`].
pub(super) fn shortened(body: Bytes) -> Bytes {
    let status = serde_json::from_slice::<ReceivedStatus>(&body).map(ReceivedStatus::bounded);
    // A `Status` consists of texts and numbers, so it can always be written.
    if let Ok(status) = status.and_then(|status| serde_json::to_vec(&status)) {
        return status.into();
    }
    if body.len() <= MESSAGE_LIMIT {
        return body;
    }
    let text = bounded(&String::from_utf8_lossy(&body), MESSAGE_LIMIT);
    text.into_bytes().into()
}

/// `Status` as the API server sends it, with bounded causes.
#[derive(Deserialize)]
struct ReceivedStatus {
    #[serde(default)]
    status: Option<StatusSummary>,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    details: Option<ReceivedDetails>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceivedDetails {
    #[serde(default)]
    name: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    causes: FirstCauses,
    #[serde(default)]
    retry_after_seconds: u32,
}

impl ReceivedStatus {
    fn bounded(self) -> Status {
        Status {
            status: self.status,
            code: self.code,
            message: bounded(&self.message, MESSAGE_LIMIT),
            metadata: None,
            reason: bounded(&self.reason, NAME_LIMIT),
            details: self.details.map(ReceivedDetails::bounded),
        }
    }
}

impl ReceivedDetails {
    fn bounded(self) -> StatusDetails {
        StatusDetails {
            name: bounded(&self.name, NAME_LIMIT),
            group: bounded(&self.group, NAME_LIMIT),
            kind: bounded(&self.kind, NAME_LIMIT),
            uid: bounded(&self.uid, NAME_LIMIT),
            causes: self.causes.0,
            retry_after_seconds: self.retry_after_seconds,
        }
    }
}

/// First causes of a `Status`, shortened. If causes were omitted, the last entry counts them.
#[derive(Default)]
struct FirstCauses(Vec<StatusCause>);

impl<'de> Deserialize<'de> for FirstCauses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstCausesVisitor)
    }
}

struct FirstCausesVisitor;

impl<'de> Visitor<'de> for FirstCausesVisitor {
    type Value = FirstCauses;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of causes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut received: A) -> Result<FirstCauses, A::Error> {
        let mut first = Vec::new();
        let mut bytes = 0;
        let mut omitted = OmittedCauses::default();
        while let Some(cause) = received.next_element::<StatusCause>()? {
            let cause = shortened_cause(&cause);
            bytes += cause.reason.len() + cause.message.len() + cause.field.len();
            if first.len() < MAX_CAUSES && bytes <= CAUSES_LIMIT {
                first.push(cause);
            } else {
                omitted.add(cause.field);
            }
        }
        first.extend(omitted.into_cause());
        Ok(FirstCauses(first))
    }
}

/// Omitted causes of a `Status`. Only their number and one field are kept.
#[derive(Default)]
struct OmittedCauses {
    count: usize,
    /// Field of the first omitted cause, or empty if one of the omitted causes names no field.
    /// [`bundle_core::object::rejection::invalid`] requires that each cause names a field.
    field: String,
}

impl OmittedCauses {
    fn add(&mut self, field: String) {
        if self.count == 0 || field.is_empty() {
            self.field = field;
        }
        self.count += 1;
    }

    fn into_cause(self) -> Option<StatusCause> {
        (self.count > 0).then(|| StatusCause {
            reason: OMITTED.to_owned(),
            message: format!("and {} more", self.count),
            field: self.field,
        })
    }
}

fn shortened_cause(cause: &StatusCause) -> StatusCause {
    StatusCause {
        reason: bounded(&cause.reason, NAME_LIMIT),
        message: with_both_ends(&cause.message),
        field: shortened_field(&cause.field),
    }
}

/// Returns the message of a cause, without its middle if it is longer than
/// [`CAUSE_MESSAGE_LIMIT`].
fn with_both_ends(message: &str) -> String {
    if message.len() <= CAUSE_MESSAGE_LIMIT {
        return message.to_owned();
    }
    let end = message.ceil_char_boundary(message.len() - CAUSE_END);
    let start = bounded(message, CAUSE_MESSAGE_LIMIT - CAUSE_END - 1);
    format!("{start} {}", &message[end..])
}

/// Returns a field path of at most [`FIELD_LIMIT`] bytes. A shortened path ends with an open
/// bracket, because [`bundle_core::plan::ownership::contested_lists`] would read the beginning of a
/// path as the path of another list.
fn shortened_field(field: &str) -> String {
    const OPEN: &str = "[…";
    if field.len() <= FIELD_LIMIT {
        return field.to_owned();
    }
    format!("{}{OPEN}", bounded(field, FIELD_LIMIT - OPEN.len()))
}

#[cfg(test)]
mod tests {
    use bundle_core::object::ObjectId;
    use bundle_core::object::rejection::{Rejection, invalid};
    use bundle_core::plan::ownership::contested_lists;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::immutable;

    fn parsed(body: &Value) -> Status {
        let body = shortened(body.to_string().into_bytes().into());
        serde_json::from_slice(&body).unwrap()
    }

    fn with_causes(causes: &[Value]) -> Value {
        json!({"kind": "Status", "code": 422, "reason": "Invalid", "status": "Failure", "details": {"causes": causes}})
    }

    fn causes(status: &Status) -> &[StatusCause] {
        let details = status.details.as_ref();
        details.map_or(&[][..], |details| details.causes.as_slice())
    }

    #[test]
    fn normal_error_responses_are_unchanged() {
        let cause = json!({"reason": "FieldManagerConflict", "message": "conflict with \"helm\" using apps/v1", "field": ".spec.replicas"});
        let details = json!({"name": "web", "group": "apps", "kind": "deployments", "uid": "7", "causes": [cause], "retryAfterSeconds": 2});
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Apply failed with 1 conflict", "reason": "Conflict", "details": details, "code": 409});
        let expected: Status = serde_json::from_value(body.clone()).unwrap();
        let found = parsed(&body);
        let without_metadata = Status {
            metadata: None,
            ..expected
        };
        assert_eq!(found, without_metadata);
        let page = Bytes::from_static(b"404 page not found\n");
        assert_eq!(shortened(page.clone()), page);
    }

    #[test]
    fn long_error_responses_have_bounded_size() {
        let long = "ü".repeat(200_000);
        let cause = json!({"reason": long, "message": long, "field": long});
        let details = json!({"name": long, "group": long, "kind": long, "uid": long, "causes": vec![cause; 2]});
        let body = json!({"code": 403, "reason": long, "message": long, "details": details, "metadata": {"continue": long}});
        let shown = shortened(body.to_string().into_bytes().into());
        assert!(shown.len() < 16 << 10, "{}", shown.len());
        let status: Status = serde_json::from_slice(&shown).unwrap();
        assert!(status.message.len() <= MESSAGE_LIMIT && status.message.ends_with('…'));
        assert_eq!(status.code, 403);
        let page = shortened(long.into_bytes().into());
        assert!(page.len() <= MESSAGE_LIMIT, "{}", page.len());
        assert!(std::str::from_utf8(&page).unwrap().ends_with('…'));
    }

    #[test]
    fn messages_of_many_rejections_have_bounded_size() {
        let message = "x".repeat(400 << 10);
        let kept: usize = (0..300)
            .map(|_| {
                parsed(&json!({"code": 422, "message": message}))
                    .message
                    .len()
            })
            .sum();
        assert!(kept <= 300 * MESSAGE_LIMIT, "{kept}");
    }

    #[test]
    fn further_causes_are_counted() {
        let conflict = |number: usize| json!({"reason": "FieldManagerConflict", "message": "conflict with \"helm\"", "field": format!(".data.{number}")});
        let all: Vec<Value> = (0..300).map(conflict).collect();
        let status = parsed(&with_causes(&all));
        let found = causes(&status);
        assert_eq!(found.len(), MAX_CAUSES + 1);
        assert_eq!(found[MAX_CAUSES - 1].field, ".data.31");
        assert_eq!(found[MAX_CAUSES].message, "and 268 more");
        let status = parsed(&with_causes(&all[..MAX_CAUSES]));
        assert_eq!(causes(&status).len(), MAX_CAUSES);
        // Many empty causes need little text and much memory.
        let status = parsed(&with_causes(&vec![json!({}); 300_000]));
        assert_eq!(causes(&status).len(), MAX_CAUSES + 1);
    }

    #[test]
    fn long_message_of_an_immutable_field_keeps_its_meaning() {
        let value = "x".repeat(1 << 20);
        let cause = json!({"reason": "FieldValueInvalid", "message": format!("Invalid value: {value}: field is immutable"), "field": "spec.template"});
        let status = parsed(&with_causes(std::slice::from_ref(&cause)));
        assert_eq!(immutable(&status).unwrap(), ["spec.template"]);
        let found = &causes(&status)[0].message;
        assert!(found.len() <= CAUSE_MESSAGE_LIMIT, "{}", found.len());
        // An omitted cause may name a field that is not immutable.
        let cause = json!({"reason": "FieldValueInvalid", "message": "field is immutable", "field": "spec.a"});
        let mut all = vec![cause; MAX_CAUSES];
        all.push(
            json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec.b"}),
        );
        assert_eq!(immutable(&parsed(&with_causes(&all))), None);
    }

    #[test]
    fn omitted_causes_without_a_field_keep_their_meaning() {
        let cause =
            |field: &str| json!({"reason": "FieldValueInvalid", "message": "no", "field": field});
        for (last, is_invalid) in [("spec.b", true), ("", false)] {
            let mut all = vec![cause("spec.a"); MAX_CAUSES + 1];
            all.push(cause(last));
            let status = parsed(&with_causes(&all));
            let fields: Vec<&str> = causes(&status)
                .iter()
                .map(|cause| cause.field.as_str())
                .collect();
            let rejection = Rejection {
                code: status.code,
                reason: &status.reason,
                message: &status.message,
                fields: &fields,
            };
            assert_eq!(invalid(rejection).is_some(), is_invalid, "{last}");
        }
    }

    #[test]
    fn long_field_names_no_other_list() {
        let id = ObjectId {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            kind: "Widget".to_owned(),
            namespace: None,
            name: "web".to_owned(),
        };
        let nested = |name: &str| format!("spec.ports[1].{name}.rules[2].name");
        for (field, count) in [(nested("a"), 1), (nested(&"a".repeat(2000)), 0)] {
            let cause = json!({"reason": "FieldValueDuplicate", "message": "Duplicate value", "field": field});
            let status = parsed(&with_causes(&[cause]));
            let found = causes(&status);
            assert!(
                found[0].field.len() <= FIELD_LIMIT,
                "{}",
                found[0].field.len()
            );
            let found = found
                .iter()
                .map(|cause| (cause.reason.as_str(), cause.field.as_str()));
            assert_eq!(contested_lists(&id, found).len(), count, "{field}");
        }
    }
}
