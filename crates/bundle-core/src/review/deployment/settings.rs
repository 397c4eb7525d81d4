//! Settings of a BundleDeployment that the plans of `plan::ignore`, `plan::replace`,
//! `plan::package_rules` and `plan::crd_upgrade` use.

use crate::object::GroupKind;

/// Exceptions from the rules for upgrades of packages, as set in `spec.rollout`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllowedUpgrades {
    /// `true` if a lower version may replace a higher version of the same package.
    pub lower_version: bool,
    /// `true` if another package may replace the installed package.
    pub other_package: bool,
}

impl AllowedUpgrades {
    /// Allows every upgrade. Used for content that the BundleDeployment has already installed.
    pub const ALL: Self = Self {
        lower_version: true,
        other_package: true,
    };
}

/// One rule of `spec.drift.ignore`. An absent property matches all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IgnoreRule {
    /// Kind of the objects; `None` matches all kinds.
    pub kind: Option<GroupKind>,
    /// Namespace of the objects; `None` matches all namespaces and cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name of the objects; `None` matches all names.
    pub name: Option<String>,
    /// Fields that keep their value on the cluster, as JSON pointers.
    pub fields: Vec<String>,
    /// Field manager whose fields keep their value on the cluster; `None` if the rule names no
    /// manager.
    pub manager: Option<String>,
}

/// Policy for replacing objects whose immutable fields change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplacePolicy {
    /// Replace whenever an immutable field changes.
    Always,
    /// Replace only Jobs that have completed or failed.
    #[default]
    IfCompleted,
    /// Never replace.
    Never,
}

/// Check of an upgrade of a CustomResourceDefinition. `spec.crdUpgrades.exceptions` refers to a
/// check by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrdCheck {
    /// The scope is unchanged.
    NoScopeChange,
    /// Each version in which objects are stored still exists.
    NoStoredVersionRemoved,
    /// The conversion between several versions is not removed.
    NoConversionRemoved,
    /// No field is removed from a version.
    NoExistingFieldRemoved,
    /// Group of the checks of changed fields: [`Self::Enum`] to [`Self::UnknownChange`].
    ChangeValidator,
    /// No value is removed from an enumeration, and no enumeration is added to an existing field.
    Enum,
    /// No field becomes required.
    Required,
    /// `maximum` does not decrease.
    Maximum,
    /// `maxItems` does not decrease.
    MaxItems,
    /// `maxLength` does not decrease.
    MaxLength,
    /// `maxProperties` does not decrease.
    MaxProperties,
    /// `minimum` does not increase.
    Minimum,
    /// `minItems` does not increase.
    MinItems,
    /// `minLength` does not increase.
    MinLength,
    /// `minProperties` does not increase.
    MinProperties,
    /// The default value is unchanged.
    Default,
    /// The type is unchanged.
    Type,
    /// No other keyword changes.
    UnknownChange,
    /// A newly served version accepts the objects of the other versions.
    ServedVersionValidator,
    /// The custom resources on the cluster are valid under the new definition.
    ExistingCustomResources,
}

impl CrdCheck {
    /// All checks with their names.
    pub const NAMES: [(&'static str, Self); 20] = [
        ("NoScopeChange", Self::NoScopeChange),
        ("NoStoredVersionRemoved", Self::NoStoredVersionRemoved),
        ("NoConversionRemoved", Self::NoConversionRemoved),
        ("NoExistingFieldRemoved", Self::NoExistingFieldRemoved),
        ("ChangeValidator", Self::ChangeValidator),
        ("Enum", Self::Enum),
        ("Required", Self::Required),
        ("Maximum", Self::Maximum),
        ("MaxItems", Self::MaxItems),
        ("MaxLength", Self::MaxLength),
        ("MaxProperties", Self::MaxProperties),
        ("Minimum", Self::Minimum),
        ("MinItems", Self::MinItems),
        ("MinLength", Self::MinLength),
        ("MinProperties", Self::MinProperties),
        ("Default", Self::Default),
        ("Type", Self::Type),
        ("UnknownChange", Self::UnknownChange),
        ("ServedVersionValidator", Self::ServedVersionValidator),
        ("ExistingCustomResources", Self::ExistingCustomResources),
    ];

    /// Parses the name of a check; `None` for an unknown name.
    pub fn parse(name: &str) -> Option<Self> {
        let named = Self::NAMES.iter().find(|(known, _)| *known == name);
        named.map(|(_, check)| *check)
    }

    /// Returns the name of the check.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, check)| *check == self);
        named.map_or("", |(name, _)| name)
    }

    /// Returns the check whose name is in messages: [`Self::ChangeValidator`] for the checks of
    /// changed fields, otherwise the check itself. An exception for [`Self::ChangeValidator`]
    /// covers all checks of changed fields.
    #[must_use]
    pub fn group(self) -> Self {
        match self {
            Self::NoScopeChange
            | Self::NoStoredVersionRemoved
            | Self::NoConversionRemoved
            | Self::NoExistingFieldRemoved
            | Self::ServedVersionValidator
            | Self::ExistingCustomResources => self,
            _ => Self::ChangeValidator,
        }
    }
}

impl std::fmt::Display for CrdCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Exception from one check for one CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdException {
    /// Name of the definition.
    pub crd: String,
    /// Check that is skipped for this definition.
    pub check: CrdCheck,
    /// Reason for the exception.
    pub reason: String,
}
