//! Parser of `spec` of a BundleDeployment. `source` parses the Bundle in its template.

mod settings;

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

pub use settings::{AllowedUpgrades, CrdCheck, CrdException, IgnoreRule, ReplacePolicy};

use super::{
    canonical,
    fields::Field,
    source::{CheckedBundleSpec, class_name},
};
use crate::{
    diagnostic::Findings,
    names::{KubeName, NameKind},
    object::GroupKind,
    reference::Digest,
    service_account::ServiceAccount,
    version::Range,
};

/// Validated spec of a BundleDeployment, with defaults.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each field is a separate setting of the API"
)]
pub struct CheckedDeploymentSpec {
    /// Name of the ProvisionerClass that installs the content.
    pub class: KubeName,
    /// Template of the Bundle.
    pub template: Template,
    /// ServiceAccount that replaces the ServiceAccount of the class; `None` if the spec names no
    /// ServiceAccount.
    pub service_account: Option<ServiceAccount>,
    /// Namespace for objects without a namespace; `None` if the spec sets no target namespace.
    pub target_namespace: Option<KubeName>,
    /// `true` if a missing target namespace is created.
    pub create_namespace: bool,
    /// `true` if the reconciler changes no objects (`spec.paused`).
    pub paused: bool,
    /// `true` if existing objects without owner are adopted.
    pub adopt: bool,
    /// `true` if drifted objects are restored; `false` if drift is only reported.
    pub correct_drift: bool,
    /// Fields whose drift is ignored.
    pub drift_ignore: Vec<IgnoreRule>,
    /// Settings for upgrades, in which new content replaces installed content.
    pub rollout: Rollout,
    /// Handling of installed objects on deletion.
    pub deletion: Deletion,
    /// `true` if content is installed although its Kubernetes range excludes this server.
    pub accept_unsupported: bool,
    /// Exceptions from the checks of CRD upgrades.
    pub crd_exceptions: Vec<CrdException>,
    /// Digest of the meaning of the spec without `paused`. Therefore pausing a BundleDeployment
    /// does not change the digest.
    pub digest: Digest,
}

/// Template of the Bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Parsed spec of the Bundle.
    pub bundle: CheckedBundleSpec,
    /// Hash of the whole template, six hexadecimal digits.
    pub hash: String,
}

/// Settings for upgrades, in which new content replaces installed content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Maximum time until new content must be healthy.
    pub deadline: Duration,
    /// `true` if the previous content is installed again after the deadline.
    pub roll_back: bool,
    /// `true` if each phase waits until the objects of the previous phase are healthy.
    pub wait_for_ready: bool,
    /// Number of earlier revisions that are kept.
    pub history: usize,
    /// Upgrades that are allowed in spite of the rules for packages.
    pub allowed: AllowedUpgrades,
    /// Range of versions that may be installed; `None` if every version is allowed.
    pub versions: Option<Range>,
    /// Policy that selects the objects to delete and recreate if an immutable field changes.
    pub replace: ReplacePolicy,
}

/// Handling of installed objects on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// `true` if installed objects are kept.
    pub orphan: bool,
    /// Handling of CRDs that still have custom resources.
    pub custom_resources: CustomResources,
}

/// Handling of CRDs that still have custom resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CustomResources {
    /// The deletion waits until the custom resources are deleted.
    Refuse,
    /// The CRD is kept.
    Orphan,
    /// The CRD and its custom resources are deleted.
    Delete,
}

/// Maximum number of fields in all rules of `drift.ignore` together.
const IGNORED_FIELDS: usize = 4096;

impl Template {
    /// Returns labels and annotations of the Bundle from the template in this `spec` of a
    /// BundleDeployment.
    pub fn metadata(spec: &Value) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let metadata = Field::new(&spec["template"]["metadata"], "spec.template.metadata");
        let map = |name: &str| metadata.get(name).map(&mut Findings::default());
        (map("labels"), map("annotations"))
    }
}

impl CheckedDeploymentSpec {
    /// Parses `spec` of a BundleDeployment.
    pub fn parse(spec: &Value) -> Result<Self, Findings> {
        let mut findings = Findings::default();
        let field = Field::new(spec, "spec");
        if !field.is_set() {
            field.missing(&mut findings);
        }
        let class = class_name(&field.get("provisionerClassName"), &mut findings);
        let written = &spec["template"]["spec"];
        let template = template(&field.get("template"), written, &mut findings);
        let rest = OptionalFieldReader {
            f: &field,
            findings: &mut findings,
            ignored_fields: 0,
        }
        .read();
        match (class, template) {
            (Some(class), Some(template)) if !findings.has_errors() => Ok(Self {
                class,
                template,
                service_account: rest.service_account,
                target_namespace: rest.target_namespace,
                create_namespace: rest.create_namespace,
                paused: rest.paused,
                adopt: rest.adopt,
                correct_drift: rest.correct_drift,
                drift_ignore: rest.drift_ignore,
                rollout: rest.rollout,
                deletion: rest.deletion,
                accept_unsupported: rest.accept_unsupported,
                crd_exceptions: rest.crd_exceptions,
                digest: canonical::digest_without_pause(spec),
            }),
            _ => Err(findings),
        }
    }
}

fn template(field: &Field<'_>, written: &Value, findings: &mut Findings) -> Option<Template> {
    let Some(value) = field.value() else {
        field.missing(findings);
        return None;
    };
    if !field.object(findings) {
        return None;
    }
    let metadata = field.get("metadata");
    for map in ["labels", "annotations"] {
        metadata.get(map).members(findings).for_each(drop);
    }
    let spec = field.get("spec");
    match CheckedBundleSpec::parse_at(written, "bundledeployment", &spec.path) {
        Ok(bundle) => Some(Template {
            bundle,
            hash: canonical::template_hash(value),
        }),
        Err(more) => {
            findings.extend(more);
            None
        }
    }
}

/// Optional fields of the spec. Absent fields have their default.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each field is a separate setting of the API"
)]
struct Optional {
    service_account: Option<ServiceAccount>,
    target_namespace: Option<KubeName>,
    create_namespace: bool,
    paused: bool,
    adopt: bool,
    correct_drift: bool,
    drift_ignore: Vec<IgnoreRule>,
    rollout: Rollout,
    deletion: Deletion,
    accept_unsupported: bool,
    crd_exceptions: Vec<CrdException>,
}

struct OptionalFieldReader<'a, 'v> {
    f: &'a Field<'v>,
    findings: &'a mut Findings,
    /// Number of fields in all rules of `drift.ignore` that were parsed so far.
    ignored_fields: usize,
}

impl OptionalFieldReader<'_, '_> {
    fn read(mut self) -> Optional {
        let drift = self.f.get("drift");
        drift.object(self.findings);
        let ignore = drift.get("ignore").items(self.findings);
        Optional {
            service_account: service_account(&self.f.get("serviceAccount"), self.findings),
            target_namespace: self
                .f
                .get("targetNamespace")
                .name(NameKind::Label, self.findings),
            create_namespace: self.f.get("createNamespace").flag(self.findings),
            paused: self.f.get("paused").flag(self.findings),
            adopt: self.f.get("collision").choice(
                self.findings,
                false,
                &[("Prevent", false), ("Adopt", true)],
            ),
            correct_drift: drift.get("mode").choice(
                self.findings,
                true,
                &[("Correct", true), ("Report", false)],
            ),
            drift_ignore: ignore.filter_map(|item| self.rule(&item)).collect(),
            rollout: self.rollout(),
            deletion: self.deletion(),
            accept_unsupported: self.f.get("kubernetes").get("unsupported").choice(
                self.findings,
                false,
                &[("Accept", true)],
            ),
            crd_exceptions: self.crd_exceptions(),
        }
    }

    /// Parses a rule; `None` if the item is invalid.
    fn rule(&mut self, item: &Field<'_>) -> Option<IgnoreRule> {
        let mut text = |name: &str| item.get(name).text(self.findings).map(str::to_owned);
        let kind = text("kind").map(|kind| GroupKind::parse(&kind));
        let (namespace, name, manager) = (text("namespace"), text("name"), text("manager"));
        let pointers = item.get("fields");
        let fields = pointers.texts(self.findings).unwrap_or_default();
        self.ignored_fields += fields.len();
        if self.ignored_fields > IGNORED_FIELDS {
            pointers.bad(
                self.findings,
                format_args!("Too many: all rules together may name {IGNORED_FIELDS} fields"),
            );
            return None;
        }
        for pointer in fields.iter().filter(|pointer| !pointer.starts_with('/')) {
            pointers.bad(
                self.findings,
                format_args!("`{pointer}` is not a JSON pointer such as /spec/replicas"),
            );
        }
        if fields.is_empty() && manager.is_none() {
            item.bad(self.findings, "must name `fields` or a `manager`");
        }
        item.object(self.findings).then_some(IgnoreRule {
            kind,
            namespace,
            name,
            fields,
            manager,
        })
    }

    fn rollout(&mut self) -> Rollout {
        let field = self.f.get("rollout");
        field.object(self.findings);
        let deadline = field.get("deadline");
        let duration = match deadline.text(self.findings) {
            None => Duration::from_secs(600),
            Some(text) => duration(text).unwrap_or_else(|| {
                deadline.bad(
                    self.findings,
                    format_args!("`{text}` is not a duration such as 10m or 1h30m"),
                );
                Duration::from_secs(600)
            }),
        };
        let history = field.get("history");
        let count = match history.value() {
            None => 5,
            Some(value) => {
                let count = value.as_u64().filter(|count| *count <= 100);
                if count.is_none() {
                    history.bad(self.findings, "must be a number from 0 to 100");
                }
                count
                    .and_then(|count| usize::try_from(count).ok())
                    .unwrap_or(5)
            }
        };
        let versions = field.get("versions");
        let range = match versions.text(self.findings).map(Range::parse) {
            None => None,
            Some(Ok(range)) => Some(range),
            Some(Err(invalid)) => {
                versions.bad(self.findings, invalid.message);
                None
            }
        };
        Rollout {
            deadline: duration,
            roll_back: field.get("onFailure").choice(
                self.findings,
                false,
                &[("Hold", false), ("RollBack", true)],
            ),
            wait_for_ready: field.get("waitFor").choice(
                self.findings,
                false,
                &[("Applied", false), ("Ready", true)],
            ),
            history: count,
            allowed: AllowedUpgrades {
                lower_version: field.get("allowDowngrade").flag(self.findings),
                other_package: field.get("allowOtherPackage").flag(self.findings),
            },
            versions: range,
            replace: field.get("replace").choice(
                self.findings,
                ReplacePolicy::default(),
                &[
                    ("Always", ReplacePolicy::Always),
                    ("IfCompleted", ReplacePolicy::IfCompleted),
                    ("Never", ReplacePolicy::Never),
                ],
            ),
        }
    }

    fn deletion(&mut self) -> Deletion {
        let field = self.f.get("deletion");
        field.object(self.findings);
        Deletion {
            orphan: field.get("objects").choice(
                self.findings,
                false,
                &[("Delete", false), ("Orphan", true)],
            ),
            custom_resources: field.get("customResources").choice(
                self.findings,
                CustomResources::Refuse,
                &[
                    ("Refuse", CustomResources::Refuse),
                    ("Orphan", CustomResources::Orphan),
                    ("Delete", CustomResources::Delete),
                ],
            ),
        }
    }

    fn crd_exceptions(&mut self) -> Vec<CrdException> {
        let items = self
            .f
            .get("crdUpgrades")
            .get("exceptions")
            .items(self.findings);
        items
            .filter_map(|item| {
                let mut text = |name: &str| item.get(name).required(self.findings);
                let (crd, name, reason) = (text("crd"), text("check"), text("reason"));
                let check = name.and_then(CrdCheck::parse);
                if let (Some(name), None) = (name, check) {
                    let names = CrdCheck::NAMES.map(|(name, _)| name).join(", ");
                    item.get("check").bad(
                        self.findings,
                        format_args!("`{name}` is not a check; the checks are {names}"),
                    );
                }
                Some(CrdException {
                    crd: crd?.to_owned(),
                    check: check?,
                    reason: reason?.to_owned(),
                })
            })
            .collect()
    }
}

/// Parses a ServiceAccount. Namespace and name are required. Returns `None` if the field is absent
/// or invalid.
pub(super) fn service_account(
    field: &Field<'_>,
    findings: &mut Findings,
) -> Option<ServiceAccount> {
    if !field.object(findings) {
        return None;
    }
    // The names must be valid, because they are used in URLs, headers, and commands for
    // administrators.
    let mut part = |name: &str, kind| field.get(name).required_name(kind, findings);
    let namespace = part("namespace", NameKind::Label);
    let name = part("name", NameKind::Subdomain);
    Some(ServiceAccount {
        namespace: namespace?,
        name: name?,
    })
}

/// Parses a duration as allowed by the schema: `10m`, `1h30m`, `500ms`. Returns `None` for a text
/// in another format.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let (unit, left) = if let Some(left) = rest.strip_prefix("ms") {
            (Duration::from_millis(1), left)
        } else if let Some(left) = rest.strip_prefix('s') {
            (Duration::from_secs(1), left)
        } else if let Some(left) = rest.strip_prefix('m') {
            (Duration::from_secs(60), left)
        } else {
            (Duration::from_secs(3600), rest.strip_prefix('h')?)
        };
        let part = unit.checked_mul(u32::try_from(number).ok()?)?;
        total = total.checked_add(part)?;
        rest = left;
    }
    (!total.is_zero()).then_some(total)
}

#[cfg(test)]
mod tests;
