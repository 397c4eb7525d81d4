//! The responses to AdmissionReviews.

use bundle_core::review::text::Refusal;
use serde_json::{Value, json};

/// Returns an allowing response.
pub(in crate::admission) fn allowed(uid: &str, warnings: &[String], patch: &[Value]) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    if !patch.is_empty() {
        use base64::Engine as _;
        let patch = Value::from(patch.to_vec()).to_string();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64::engine::general_purpose::STANDARD
            .encode(patch)
            .into();
    }
    answer(&response)
}

/// Returns a denying response.
pub(in crate::admission) fn denied(uid: &str, refusal: &Refusal, warnings: &[String]) -> Value {
    let causes: Vec<Value> = refusal
        .causes
        .iter()
        .map(|cause| {
            let mut detail = json!({"reason": cause.code.id, "message": cause.message});
            if let Some(field) = &cause.field {
                detail["field"] = field.as_str().into();
            }
            detail
        })
        .collect();
    let codes: Vec<&str> = refusal.causes.iter().map(|cause| cause.code.id).collect();
    let mut response = json!({
        "uid": uid,
        "allowed": false,
        "status": {
            "status": "Failure",
            "code": refusal.status,
            "reason": refusal.reason,
            "message": refusal.message,
            "details": {"causes": causes},
        },
        "auditAnnotations": {"codes": codes.join(",")},
    });
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    answer(&response)
}

fn answer(response: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
