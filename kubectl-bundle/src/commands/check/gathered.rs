//! The answers to the questions about one object.
//! Not here: asking (lookup), and the form that the judge reads (facts).

use std::collections::BTreeMap;

use bundle_core::review::{Answer, ClassFact, ConfigMapFact, DeploymentFact};

/// What was found out for one object.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) classes: BTreeMap<String, ClassFact>,
    pub(super) may_use: BTreeMap<String, Answer>,
    pub(super) may_impersonate: Option<Answer>,
    pub(super) may_approve: Option<Answer>,
    pub(super) deployment: Option<DeploymentFact>,
    pub(super) may_read: BTreeMap<String, Answer>,
    pub(super) config_maps: BTreeMap<String, ConfigMapFact>,
}
