//! `status.admission`: the sealed result of admission. `bundle_core::review::seal` verifies it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sealed result of admission for this generation of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionStatus {
    /// Requesters of each part of this generation, under a MAC with a key that only the pod has. An
    /// object without a valid seal is not reconciled. A copy is invalid on any other object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// Value for the annotation `core.rukpak.io/admit`. The user who sets this value becomes the
    /// requester of the whole spec, after a check of the whole spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit: Option<String>,
}
