//! SignaturePolicy objects. Each field is parsed separately, so that an invalid field does not
//! disable the other fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    authority::{self, Authority, AuthorityKind, KeySource, ReferencedText, RootSource},
    glob,
    reader::{Reader, subject, unreadable},
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    names::KubeName,
    reference::Reference,
};

/// Maximum number of authorities of one policy.
const MOST_AUTHORITIES: usize = 64;

/// Effect of an unsatisfied policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The content is rejected.
    #[default]
    Enforce,
    /// The content is admitted with a warning.
    Warn,
}

/// Parsed SignaturePolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(super) name: String,
    /// Patterns of the images that the policy applies to. `None` if the patterns are invalid: such
    /// a policy matches every reference.
    globs: Option<Vec<String>>,
    mode: Mode,
    pub(super) threshold: usize,
    pub(super) authorities: Vec<Authority>,
    allow_downgrade: bool,
    pub(super) problems: Findings,
    pub(super) unavailable: Vec<Finding>,
}

impl Policy {
    /// Parses the `spec` of the SignaturePolicy `name`. Never fails: a policy with
    /// [`problems`](Self::problems) rejects every reference that it matches, and a policy with
    /// invalid images matches every reference.
    pub fn read(name: &str, spec: &Value) -> Self {
        let mut reader = Reader::new(name);
        let mut policy = Self {
            name: name.to_owned(),
            globs: None,
            mode: Mode::Enforce,
            threshold: 1,
            authorities: Vec::new(),
            allow_downgrade: true,
            problems: Findings::default(),
            unavailable: Vec::new(),
        };
        let known = ["images", "mode", "threshold", "authorities", "versions"];
        if let Some(spec) = reader.object("spec", spec, &known) {
            policy.globs = read_globs(&mut reader, spec);
            policy.mode = read_mode(&mut reader, spec);
            policy.authorities = read_authorities(&mut reader, spec);
            policy.threshold = read_threshold(&mut reader, spec, policy.authorities.len());
            policy.allow_downgrade = read_versions(&mut reader, spec);
        }
        policy.problems = reader.problems;
        policy
    }

    /// Like [`read`](Self::read), but returns an error if the policy has any problem. `policy test`
    /// and the admission of SignaturePolicies use this function.
    pub fn parse(name: &str, spec: &Value) -> Result<Self, Findings> {
        let policy = Self::read(name, spec);
        if policy.problems.is_empty() {
            Ok(policy)
        } else {
            Err(policy.problems)
        }
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the effect of an unsatisfied policy; `Enforce` if the field is invalid.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the number of distinct authorities that must have signed.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Returns the accepted signers.
    pub fn authorities(&self) -> &[Authority] {
        &self.authorities
    }

    /// Returns `true` if a BundleDeployment can install a lower version than the installed version.
    /// Also returns `true` if the policy has no `versions`.
    pub fn allows_downgrade(&self) -> bool {
        self.allow_downgrade
    }

    /// Returns the reasons why the policy is not ready. The list is empty if the policy is ready.
    /// Keys are only checked by [`with_keys`](Self::with_keys).
    pub fn problems(&self) -> &Findings {
        &self.problems
    }

    /// Returns `true` if the policy applies to `reference`. A policy with invalid patterns applies
    /// to every reference.
    pub fn matches(&self, reference: &Reference) -> bool {
        let name = reference.name();
        self.globs
            .as_ref()
            .is_none_or(|globs| globs.iter().any(|pattern| glob::matches(pattern, &name)))
    }

    /// Returns the names of the Secrets with keys of the policy, in the namespace of the pod.
    pub fn secrets(&self) -> BTreeSet<&KubeName> {
        self.authorities
            .iter()
            .filter_map(|authority| match &authority.kind {
                Some(AuthorityKind::Key(KeySource::Secret(name))) => Some(name),
                _ => None,
            })
            .collect()
    }

    /// Returns the names of the ConfigMaps with trust roots of the policy, in the namespace of the
    /// pod.
    pub fn config_maps(&self) -> BTreeSet<&KubeName> {
        self.authorities
            .iter()
            .filter_map(|authority| match &authority.kind {
                Some(AuthorityKind::Keyless(keyless)) => match &keyless.root {
                    RootSource::ConfigMap(name) => Some(name),
                    RootSource::Public | RootSource::Inline(_) => None,
                },
                _ => None,
            })
            .collect()
    }

    /// Sets the keys that were read from Secrets. A Secret that is not in `found` counts as
    /// missing.
    #[must_use]
    pub fn with_secrets(mut self, found: &BTreeMap<String, ReferencedText>) -> Self {
        let mut replaced = Vec::new();
        for (index, authority) in self.authorities.iter().enumerate() {
            if let Some(AuthorityKind::Key(KeySource::Secret(name))) = &authority.kind {
                let path = format!("spec.authorities[{index}].key.secretRef");
                replaced.push((
                    index,
                    path,
                    format!("Secret {name}"),
                    found.get(name.as_str()),
                ));
            }
        }
        for (index, path, what, named) in replaced {
            if let Some(pem) = self.take(&path, &what, named) {
                self.authorities[index].kind = Some(AuthorityKind::Key(KeySource::Inline(pem)));
            }
        }
        self
    }

    /// Sets the trust roots that were read from ConfigMaps. A ConfigMap that is not in `found`
    /// counts as missing.
    #[must_use]
    pub fn with_config_maps(mut self, found: &BTreeMap<String, ReferencedText>) -> Self {
        let mut replaced = Vec::new();
        for (index, authority) in self.authorities.iter().enumerate() {
            if let Some(AuthorityKind::Keyless(keyless)) = &authority.kind
                && let RootSource::ConfigMap(name) = &keyless.root
            {
                let path = format!("spec.authorities[{index}].keyless.trustRoot.configMapRef");
                replaced.push((
                    index,
                    path,
                    format!("ConfigMap {name}"),
                    found.get(name.as_str()),
                ));
            }
        }
        for (index, path, what, named) in replaced {
            if let Some(text) = self.take(&path, &what, named)
                && let Some(AuthorityKind::Keyless(keyless)) = &mut self.authorities[index].kind
            {
                keyless.root = RootSource::Inline(text);
            }
        }
        self
    }

    /// Sets the trust root of all authorities that name no trust root (`--trusted-root`). The
    /// default is the public root.
    #[must_use]
    pub fn with_default_root(mut self, text: &str) -> Self {
        for authority in &mut self.authorities {
            if let Some(AuthorityKind::Keyless(keyless)) = &mut authority.kind
                && keyless.root == RootSource::Public
            {
                keyless.root = RootSource::Inline(text.to_owned());
            }
        }
        self
    }

    /// Returns the text in `named`. If the text is missing, adds the reason and returns `None`.
    fn take(&mut self, path: &str, what: &str, named: Option<&ReferencedText>) -> Option<String> {
        match named {
            Some(ReferencedText::Found(text)) => return Some(text.clone()),
            Some(ReferencedText::Missing(why)) => {
                self.problems.push(unreadable(&self.name, path, why));
            }
            None => {
                let why = format!("{what} was not found");
                self.problems.push(unreadable(&self.name, path, &why));
            }
            Some(ReferencedText::Unavailable(why)) => self.unavailable.push(
                Finding::error(
                    codes::trust::CANNOT_TELL,
                    format!("{what} could not be read: {why}"),
                )
                .about(subject(&self.name))
                .at_field(path)
                .hint(why.hint.as_deref().unwrap_or("try again")),
            ),
        }
        None
    }
}

fn read_globs(reader: &mut Reader, spec: &Map<String, Value>) -> Option<Vec<String>> {
    let path = "spec.images";
    let Some(images) = spec.get("images").and_then(Value::as_array) else {
        reader.problem(
            path,
            "it is missing or not a list, so the policy matches every reference",
        );
        return None;
    };
    if images.is_empty() {
        reader.problem(path, "it is empty, so the policy matches every reference");
        return None;
    }
    let mut globs = Some(Vec::new());
    for (index, image) in images.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let pattern = reader
            .object(&path, image, &["glob"])
            .and_then(|map| reader.text(&path, map, "glob"));
        let why = match pattern {
            None => Some("it has no `glob`".to_owned()),
            Some(pattern) => glob::problem(pattern),
        };
        match (why, pattern, &mut globs) {
            (Some(why), ..) => {
                let why =
                    format!("{why}; a policy with an invalid pattern matches every reference");
                reader.problem(&format!("{path}.glob"), &why);
                globs = None;
            }
            (None, Some(pattern), Some(globs)) => globs.push(pattern.to_owned()),
            _ => {}
        }
    }
    globs
}

fn read_mode(reader: &mut Reader, spec: &Map<String, Value>) -> Mode {
    match reader.text("spec", spec, "mode") {
        None | Some("enforce") => Mode::Enforce,
        Some("warn") => Mode::Warn,
        Some(_) => {
            reader.problem("spec.mode", "it is neither `enforce` nor `warn`");
            Mode::Enforce
        }
    }
}

fn read_authorities(reader: &mut Reader, spec: &Map<String, Value>) -> Vec<Authority> {
    let path = "spec.authorities";
    let list = match spec.get("authorities").filter(|value| !value.is_null()) {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => {
            reader.problem(path, "it is not a list");
            return Vec::new();
        }
    };
    if list.is_empty() {
        reader.problem(path, "it is empty, so no signature satisfies the policy");
    }
    if list.len() > MOST_AUTHORITIES {
        let why = format!(
            "it has {} authorities, more than the limit of {MOST_AUTHORITIES}",
            list.len()
        );
        reader.problem(path, &why);
    }
    let authorities: Vec<_> = list
        .iter()
        .take(MOST_AUTHORITIES)
        .enumerate()
        .map(|(index, value)| authority::read(reader, index, value))
        .collect();
    let mut seen = BTreeSet::new();
    for (index, authority) in authorities.iter().enumerate() {
        if !seen.insert(&authority.name) {
            reader.problem(
                &format!("{path}[{index}].name"),
                "another authority has the same name",
            );
        }
    }
    authorities
}

fn read_threshold(reader: &mut Reader, spec: &Map<String, Value>, authorities: usize) -> usize {
    let path = "spec.threshold";
    let Some(value) = spec.get("threshold").filter(|value| !value.is_null()) else {
        return 1;
    };
    let threshold = value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    match threshold {
        None | Some(0) => reader.problem(path, "it is not a whole number of at least 1"),
        Some(threshold) if threshold > authorities => reader.problem(
            path,
            &format!("it requires {threshold} authorities, but there are {authorities}"),
        ),
        Some(_) => {}
    }
    threshold.unwrap_or(1).max(1)
}

fn read_versions(reader: &mut Reader, spec: &Map<String, Value>) -> bool {
    let path = "spec.versions";
    let Some(value) = spec.get("versions").filter(|value| !value.is_null()) else {
        return true;
    };
    let Some(map) = reader.object(path, value, &["allowDowngrade"]) else {
        return false;
    };
    match map.get("allowDowngrade").filter(|value| !value.is_null()) {
        None => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(_) => {
            reader.problem(&format!("{path}.allowDowngrade"), "it is not true or false");
            false
        }
    }
}

#[cfg(test)]
mod tests;
