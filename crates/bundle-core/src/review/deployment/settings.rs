//! Settings of a BundleDeployment that the plans of `plan::ignore` and `plan::replace` use.

use crate::object::GroupKind;

/// One rule of `spec.drift.ignore`. An absent property matches all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IgnoreRule {
    /// Kind of the objects.
    pub kind: Option<GroupKind>,
    /// Namespace of the objects.
    pub namespace: Option<String>,
    /// Name of the objects.
    pub name: Option<String>,
    /// Fields that keep their value on the cluster, as JSON pointers.
    pub fields: Vec<String>,
    /// Field manager that keeps all fields that it owns.
    pub manager: Option<String>,
}

/// Policy for the replacement of objects with immutable fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplacePolicy {
    /// Replace whenever such a field changes.
    Always,
    /// Replace only Jobs that have completed or failed.
    #[default]
    IfCompleted,
    /// Never replace.
    Never,
}
