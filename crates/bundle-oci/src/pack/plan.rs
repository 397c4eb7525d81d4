//! What an image is made of, and the making: a base's layers as they are, ours above them, and the documents around both.
//! Not here: the bytes of a layer (layer), and where a base comes from (store).

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::Files;
use bundle_core::reference::Digest;
use serde_json::{Value, json};

use super::base::Base;
use super::layer::{self, Layer};
use super::{Packed, Resource};
use crate::blob::Blob;
use crate::limits::Limits;
use crate::manifest::{Document, Manifest};
use crate::media;

/// When the image was made.
const CREATED: &str = "org.opencontainers.image.created";
/// The digest of the image that is below.
const BASE_DIGEST: &str = "org.opencontainers.image.base.digest";
/// The reference of the image that is below.
const BASE_NAME: &str = "org.opencontainers.image.base.name";
/// What the history says of our layers.
const CREATED_BY: &str = "kubectl bundle build";
/// The latest time that every reader of archives takes: eleven octal digits.
const LATEST: u64 = 0o777_7777_7777;

/// What goes into an image. The same plan is the same bytes, on every machine and in every run.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The content: one layer.
    pub files: Option<&'a Files>,
    /// What the manifest says about it.
    pub annotations: BTreeMap<String, String>,
    /// Further content: a layer each, in the order of their names.
    pub resources: Vec<Resource>,
    /// An image whose layers stay below.
    pub base: Option<Base>,
    /// The one time that is written; without it there is none.
    pub time: Option<SourceDate>,
}

/// The one time that a reproducible build may write: `SOURCE_DATE_EPOCH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDate {
    seconds: u64,
    written: String,
}

impl SourceDate {
    /// Reads seconds since 1970, as <https://reproducible-builds.org/specs/source-date-epoch/> has them.
    pub fn parse(text: &str) -> Result<Self, Finding> {
        let seconds = text
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse::<u64>().ok())
            .flatten()
            .filter(|seconds| *seconds <= LATEST);
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
                "give whole seconds since 1970, at most {LATEST}, or unset it: without it no time is written at all"
            )));
        };
        Ok(Self {
            seconds,
            written: time.to_string(),
        })
    }
}

impl Plan<'_> {
    /// Makes the image. Resources are read from disk now, and everything that is wrong with them is said at once.
    pub fn pack(mut self) -> Result<Packed, Findings> {
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
                    "the image would have {} layers, and a bundle has at most {most}",
                    below + own.len()
                ),
            )
            .hint("put several resources into one folder")
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
        let mut document = Document::new(config.descriptor.clone(), named);
        document.annotations = annotations;
        let manifest = Manifest::written(&document);
        Ok(Packed {
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
                findings.0.extend(more.0);
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
                    .hint("give each a name of its own: --resource NAME:TYPE@PATH"),
                );
            }
        }
        if findings.has_errors() {
            Err(findings)
        } else {
            Ok(())
        }
    }

    /// The configuration of an image that is never run. The specification asks for a platform, and tools that unpack images ask for theirs: it
    /// is the commonest one, or that of the base. Without a source date there is no `created`: it would make every build another digest.
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
            .ok_or_else(|| base.unusable("its configuration names no layers"))?;
        root.extend(diff_ids.iter().map(|id| Value::from(id.as_str())));
        // A history that is there has an entry for every layer.
        if let Some(history) = config.get_mut("history").and_then(Value::as_array_mut) {
            history.extend(own.iter().map(|_| match created {
                Some(created) => json!({ "created": created, "created_by": CREATED_BY }),
                None => json!({ "created_by": CREATED_BY }),
            }));
        }
        if let Some(created) = created {
            config["created"] = created.into();
        }
        // A feature of serde_json that any crate can switch on keeps the order of keys: the digest must not depend on it.
        config.sort_all_objects();
        Ok(config.to_string().into_bytes())
    }
}
