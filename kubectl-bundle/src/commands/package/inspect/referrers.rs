//! Referrers of a digest: signatures by kind, attestations, and other referrers. The referrers are
//! counted from lists, and not verified.

use std::collections::BTreeMap;

use bundle_core::diagnostic::Finding;
use bundle_core::reference::Digest;
use bundle_oci::manifest::{Descriptor, ParsedManifest};
use bundle_oci::media;
use bundle_oci::store::ImageSource;
use futures::{StreamExt as _, stream};
use serde::Serialize;

/// Maximum number of referrer manifests that are read because the referrers list does not contain
/// the type of the referrer.
const MAX_READ: usize = 16;
/// Maximum number of concurrent requests.
const MAX_CONCURRENT: usize = 8;
/// Annotation of Sigstore bundles with the predicate type.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";
/// Predicate type of a signature.
const SIGNATURE_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
/// Artifact type of notation signatures.
const NOTATION: &str = "application/vnd.cncf.notary.signature";

/// Referrers of an artifact.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReferrerSummary {
    /// Signatures, not verified.
    pub(super) signatures: Signatures,
    /// Attestations by predicate type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attestations: BTreeMap<String, usize>,
    /// Other referrers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) referrers: Vec<Referrer>,
}

/// Number of signatures, in total and by kind.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Signatures {
    /// Total number.
    pub(super) count: usize,
    /// Number by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) kinds: BTreeMap<&'static str, usize>,
}

/// A referrer.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Referrer {
    /// Artifact type.
    pub(super) artifact_type: String,
    /// Digest of the referrer.
    pub(super) digest: Digest,
    /// Size of the manifest of the referrer in bytes.
    pub(super) bytes: u64,
}

impl Signatures {
    fn add(&mut self, kind: &'static str, count: usize) {
        if count > 0 {
            self.count += count;
            *self.kinds.entry(kind).or_default() += count;
        }
    }
}

/// Reads the list of referrers, and the tag under which cosign 2 stores signatures.
pub(super) async fn of(source: &ImageSource, subject: &Digest) -> Result<ReferrerSummary, Finding> {
    let tag = format!("sha256-{}.sig", subject.hex());
    let (listed, tagged) = futures::join!(source.referrers(subject), source.tagged(&tag));
    let mut summary = ReferrerSummary::default();
    if let Some(raw) = tagged? {
        let count = match raw.parse() {
            Ok(ParsedManifest::Image(manifest)) => manifest.layers.len(),
            _ => 1,
        };
        summary.signatures.add("cosign tag", count);
    }
    let (typed, untyped): (Vec<_>, Vec<_>) = listed?.into_iter().partition(has_type);
    for entry in typed {
        summary.add(entry);
    }
    let read: Vec<_> = stream::iter(untyped.into_iter().enumerate())
        .map(|(index, entry)| async move {
            if index < MAX_READ {
                read_entry(source, entry).await
            } else {
                Ok(Some(entry))
            }
        })
        .buffered(MAX_CONCURRENT)
        .collect()
        .await;
    for entry in read {
        if let Some(entry) = entry? {
            summary.add(entry);
        }
    }
    Ok(summary)
}

/// Returns `true` if this entry of a referrers list contains the type of the referrer. If it does
/// not, the manifest must be read. For artifacts of cosign 3, `artifactType` is only the media type
/// of the empty configuration. A Sigstore bundle also needs a predicate type.
fn has_type(entry: &Descriptor) -> bool {
    entry
        .artifact_type
        .as_deref()
        .is_some_and(|kind| kind != media::EMPTY && !kind.is_empty())
        && !is_untyped_bundle(entry)
}

/// Returns `true` for a Sigstore bundle whose descriptor in the referrers list has no predicate
/// type.
fn is_untyped_bundle(entry: &Descriptor) -> bool {
    is_bundle(entry) && !entry.annotations.contains_key(PREDICATE)
}

fn is_bundle(entry: &Descriptor) -> bool {
    let kind = entry.artifact_type.as_deref().unwrap_or_default();
    kind.starts_with(media::SIGSTORE_BUNDLE_PREFIX)
}

/// Returns the entry with the artifact type and the annotations of its manifest; `None` if the
/// manifest was deleted.
async fn read_entry(
    source: &ImageSource,
    mut entry: Descriptor,
) -> Result<Option<Descriptor>, Finding> {
    let Some(raw) = source.manifest(&entry).await? else {
        return Ok(None);
    };
    if let Ok(parsed) = raw.parse() {
        let layer = match &parsed {
            ParsedManifest::Image(manifest) => {
                manifest.layers.first().map(|layer| &layer.media_type)
            }
            ParsedManifest::Index(_) => None,
        };
        let named = parsed
            .artifact_type()
            .filter(|named| *named != media::EMPTY)
            .or(layer.map(String::as_str));
        entry.artifact_type = named.map(str::to_owned);
        entry.annotations.extend(parsed.annotations().clone());
    }
    Ok(Some(entry))
}

impl ReferrerSummary {
    fn add(&mut self, entry: Descriptor) {
        if is_bundle(&entry) {
            match entry.annotations.get(PREDICATE) {
                Some(predicate_type) if predicate_type == SIGNATURE_PREDICATE => {
                    self.signatures.add("sigstore bundle", 1);
                }
                Some(predicate_type) => {
                    *self.attestations.entry(predicate_type.clone()).or_default() += 1;
                }
                None => self.signatures.add("sigstore bundle of unknown type", 1),
            }
        } else if entry.artifact_type.as_deref() == Some(NOTATION) {
            self.signatures.add("notation", 1);
        } else {
            self.referrers.push(Referrer {
                artifact_type: entry.artifact_type.unwrap_or(entry.media_type),
                digest: entry.digest,
                bytes: entry.size,
            });
        }
    }
}
