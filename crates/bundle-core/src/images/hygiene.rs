//! Mutable image references (tags without digest): rejected at build, with every location.

use super::{Evidence, FoundImage, ImageLocation, ImageReference};
use crate::{
    diagnostic::{Code, Finding, Findings, Severity, codes},
    policy::glob,
};

/// Tags that are mutable by convention. Other tags are assumed to be stable.
const MUTABLE: &[&str] = &[
    "latest", "main", "master", "head", "trunk", "dev", "devel", "develop", "edge", "nightly",
    "canary", "snapshot", "stable", "unstable",
];
/// Maximum number of locations that a finding names.
const PLACES: usize = 5;

/// Images for which mutable tags are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MutableTagAllowlist {
    /// Patterns for `registry/repository`, as in signature policies.
    pub patterns: Vec<String>,
}

impl MutableTagAllowlist {
    fn allows(&self, image: &ImageReference) -> bool {
        let name = image.reference().name();
        self.patterns
            .iter()
            .any(|pattern| glob::matches(pattern, &name))
    }
}

/// Returns errors for invalid and mutable image references. For a text that is only probably an
/// image, the finding is a warning.
pub fn check_references(found: &[FoundImage], allowed: &MutableTagAllowlist) -> Findings {
    let mut findings = Findings::default();
    for one in found {
        let image = match ImageReference::parse(&one.image) {
            Ok(image) => image,
            Err(finding) => {
                findings.push(one.at(finding));
                continue;
            }
        };
        let Some((code, why)) = mutable(&image, &one.image) else {
            continue;
        };
        if allowed.allows(&image) {
            continue;
        }
        let certain = one
            .places
            .iter()
            .any(|place| place.evidence != Evidence::Look);
        let mut finding = Finding::error(code, why).hint(format!(
            "write the tag of a version or a digest, or allow this tag with --allow-mutable-tags={}",
            image.reference().name()
        ));
        if !certain {
            finding.severity = Severity::Warning;
        }
        findings.push(one.at(finding));
    }
    findings
}

fn mutable(image: &ImageReference, written: &str) -> Option<(Code, String)> {
    let tag = image.effective_tag()?;
    if image.tag().is_none() {
        return Some((
            codes::images::NO_TAG,
            format!(
                "image `{written}` is missing a tag: no tag or digest found, so the kubelet pulls `latest`"
            ),
        ));
    }
    MUTABLE
        .contains(&tag.to_ascii_lowercase().as_str())
        .then(|| {
            (
                codes::images::MUTABLE_TAG,
                format!("image tag is disallowed ({tag}): `{written}` changes over time"),
            )
        })
}

/// Sets the first location on the finding, and names the other locations in the message.
pub(super) fn placed(mut finding: Finding, places: &[ImageLocation]) -> Finding {
    let Some(first) = places.first() else {
        return finding;
    };
    let others: Vec<String> = places
        .iter()
        .skip(1)
        .take(PLACES)
        .map(|place| match &place.object {
            Some(object) => format!("{object}: {}", place.field),
            None => format!("{}: {}", place.file, place.field),
        })
        .collect();
    if !others.is_empty() {
        let more = match places.len() - 1 - others.len() {
            0 => String::new(),
            more => format!(" and {more} more places"),
        };
        finding.message = format!("{}; also in {}{more}", finding.message, others.join(", "));
    }
    finding = finding
        .in_file(&first.file)
        .at_field(first.field.to_string());
    if first.object.is_some() {
        finding = finding.at_line(first.line);
    }
    finding.place.subject.clone_from(&first.object);
    finding
}
