//! Plan of an image: the unchanged layers of a base, new layers above them, and the configuration
//! and manifest.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::Files;
use bundle_core::reference::Digest;
use serde_json::{Value, json};

use super::base::BaseImage;
use super::layer::{self, Layer};
use super::{PackedImage, Resource};
use crate::blob::Blob;
use crate::limits::Limits;
use crate::manifest::{Manifest, ManifestDocument};
use crate::media;

/// Annotation with the creation time.
const CREATED: &str = "org.opencontainers.image.created";
/// Annotation with the digest of the base image.
const BASE_DIGEST: &str = "org.opencontainers.image.base.digest";
/// Annotation with the reference of the base image.
const BASE_NAME: &str = "org.opencontainers.image.base.name";
/// `created_by` of the layers in the image's history.
const CREATED_BY: &str = "kubectl bundle build";
/// Latest timestamp that every reader of tar accepts: eleven octal digits.
const LATEST_TIMESTAMP: u64 = 0o777_7777_7777;

/// Input of an image. The same plan produces the same bytes on every machine.
#[derive(Debug, Default)]
pub struct ImagePlan<'a> {
    /// Files of the content, which are packed into one layer.
    pub files: Option<&'a Files>,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
    /// Additional content. Each resource has its own layer. The layers are sorted by the names of
    /// the resources.
    pub resources: Vec<Resource>,
    /// Base image. Its layers are below the new layers.
    pub base: Option<BaseImage>,
    /// Timestamp of all entries, annotations and the configuration. With `None`, no timestamp is
    /// written.
    pub time: Option<SourceDate>,
}

/// Timestamp of a reproducible build: `SOURCE_DATE_EPOCH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDate {
    seconds: u64,
    written: String,
}

impl SourceDate {
    /// Parses seconds since 1970, as <https://reproducible-builds.org/specs/source-date-epoch/>
    /// defines.
    pub fn parse(text: &str) -> Result<Self, Finding> {
        let seconds = text
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse::<u64>().ok())
            .flatten()
            .filter(|seconds| *seconds <= LATEST_TIMESTAMP);
        let time = seconds.and_then(|seconds| {
            let time = jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
            Some((seconds, time))
        });
        let Some((seconds, time)) = time else {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("`{}` is not a time", text.escape_debug()),
            )
            .at_field("SOURCE_DATE_EPOCH")
            .hint(format!(
                "set it to whole seconds since 1970, at most {LATEST_TIMESTAMP}, or unset it to write no timestamps"
            )));
        };
        Ok(Self {
            seconds,
            written: time.to_string(),
        })
    }
}

impl ImagePlan<'_> {
    /// Builds the image. Resources are read from disk. The errors of all resources are returned
    /// together.
    pub fn pack(mut self) -> Result<PackedImage, Findings> {
        let time = self.time.as_ref().map_or(0, |time| time.seconds);
        self.resources
            .sort_by(|one, other| one.name.cmp(&other.name));
        self.check_resources()?;
        let mut own: Vec<Layer> = Vec::new();
        if let Some(files) = self.files {
            own.push(layer::of_files(files, time)?);
        }
        for resource in &self.resources {
            own.push(resource.pack(time)?);
        }
        let below = self.base.as_ref().map_or(0, |base| base.layers.len());
        let most = Limits::default().layers;
        if below + own.len() > most {
            return Err(Finding::error(
                codes::registry::TOO_LARGE,
                format!(
                    "the image would have {} layers, and the limit is {most}",
                    below + own.len()
                ),
            )
            .hint("combine several resources in one folder")
            .into());
        }
        let config = self.config(&own)?;
        let mut annotations = self.annotations;
        if let Some(time) = &self.time {
            annotations.insert(CREATED.to_owned(), time.written.clone());
        }
        let mut layers = Vec::new();
        if let Some(base) = self.base {
            annotations.insert(BASE_DIGEST.to_owned(), base.digest.to_string());
            annotations.extend(base.name.map(|name| (BASE_NAME.to_owned(), name)));
            layers.extend(base.layers);
        }
        layers.extend(own.into_iter().map(|layer| layer.blob));
        let config = Blob::new(media::CONFIG, config);
        let named = layers
            .iter()
            .map(|layer| layer.descriptor.clone())
            .collect();
        let mut document = ManifestDocument::new(config.descriptor.clone(), named);
        document.annotations = annotations;
        let manifest = Manifest::from_document(&document);
        Ok(PackedImage {
            digest: manifest.digest.clone(),
            manifest,
            config,
            layers,
        })
    }

    fn check_resources(&self) -> Result<(), Findings> {
        let mut findings = Findings::default();
        for resource in &self.resources {
            if let Err(more) = resource.check() {
                findings.extend(more);
            }
        }
        for pair in self.resources.windows(2) {
            if let [one, other] = pair
                && one.name == other.name
            {
                findings.push(
                    Finding::error(
                        codes::usage::BAD_ARGUMENT,
                        format!("two resources have the name `{}`", one.name),
                    )
                    .in_file(other.path.display().to_string())
                    .hint("use unique names: --resource NAME:TYPE@PATH"),
                );
            }
        }
        if findings.has_errors() {
            Err(findings)
        } else {
            Ok(())
        }
    }

    /// Returns the image configuration. The image is never run.
    ///
    /// The specification requires a platform, and tools that unpack images select the image of
    /// their own platform. The platform is the platform of the base image, or `linux/amd64` without
    /// a base image, because `linux/amd64` is the most common platform. Without a source date the
    /// field `created` is absent, because the current time would change the digest of each build.
    fn config(&self, own: &[Layer]) -> Result<Vec<u8>, Finding> {
        let diff_ids: Vec<&Digest> = own.iter().map(|layer| &layer.diff_id).collect();
        let created = self.time.as_ref().map(|time| time.written.as_str());
        let Some(base) = &self.base else {
            let ids: Vec<_> = diff_ids.iter().map(|id| format!("\"{id}\"")).collect();
            let created =
                created.map_or_else(String::new, |time| format!(r#""created":"{time}","#));
            return Ok(format!(
                r#"{{{created}"architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
                ids.join(",")
            )
            .into_bytes());
        };
        let mut config = base.config.clone();
        let root = config
            .pointer_mut("/rootfs/diff_ids")
            .and_then(Value::as_array_mut)
            .ok_or_else(|| base.unusable("its configuration has no layers"))?;
        root.extend(diff_ids.iter().map(|id| Value::from(id.as_str())));
        // The history must have an entry for every layer.
        if let Some(history) = config.get_mut("history").and_then(Value::as_array_mut) {
            history.extend(own.iter().map(|_| match created {
                Some(created) => json!({ "created": created, "created_by": CREATED_BY }),
                None => json!({ "created_by": CREATED_BY }),
            }));
        }
        if let Some(created) = created {
            config["created"] = created.into();
        }
        // Sorts the keys, so that the digest does not depend on the feature `preserve_order` of
        // serde_json. Another crate can enable this feature.
        config.sort_all_objects();
        Ok(config.to_string().into_bytes())
    }
}
