//! `status.admission`: the result of admission with its seal. `bundle_core::review::seal` verifies
//! the seal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Result of admission for this generation of the object. The seal records who requested this
/// generation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionStatus {
    /// Requester of each part of the spec, with a MAC. Only the pod has the key of the MAC. The pod
    /// does not reconcile an object without a valid seal. A copy of the seal is invalid on any
    /// other object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// Value for the annotation `core.rukpak.io/admit`. The webhook checks the whole spec for the
    /// user who sets this value. If the webhook admits the spec, this user becomes the requester of
    /// the whole spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit: Option<String>,
}
