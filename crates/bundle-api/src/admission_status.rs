//! What the pod writes down about the admission of an object: `status.admission`.
//! Not here: what it means (bundle_core::review::seal).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the pod wrote down about the admission of this generation of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionStatus {
    /// Who asked for which part of this generation of this object, under a MAC with a key that only the pod has. Nothing is done with an object without a
    /// valid one. Copies count nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The value of annotation `core.rukpak.io/admit` with which somebody becomes the requester of all of this spec, and is checked for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit: Option<String>,
}
