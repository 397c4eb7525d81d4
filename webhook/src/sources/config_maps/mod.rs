//! Content from ConfigMaps of the system namespace. Each entry of a ConfigMap is a file. ConfigMaps
//! have no digest, so they are read twice: once to resolve the source, and once to fetch the
//! content.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bundle_cluster::ByName;
use bundle_core::content::ContentId;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::plan::retry::source::SourceFailure;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::Digest;
use bundle_core::review::Source;
use bundle_core::review::source::ConfigMapFiles;
use bundle_oci::Limits;
use bundle_oci::unpack::FileSink;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::files::CollectedFiles;
pub(super) use self::files::NullSink;
use super::{ContentSource, FetchedFiles, SourceError};
use crate::blocking;
use crate::shared::Shared;

/// Maximum size of all files, in bytes. The size is limited because each check of the source reads
/// all files from the API server.
const MAX_BYTES: u64 = 1 << 20;

/// Limits the number of ConfigMaps in memory at the same time. One ConfigMap can have a size of 1
/// MiB, and one spec can name hundreds of ConfigMaps. Only reconciles use these permits. Reviews
/// read ConfigMaps without their data, so reviews and reconciles do not wait for each other.
static CONFIG_MAP_SLOTS: Semaphore = Semaphore::const_new(2);

/// The reason why ConfigMaps are not valid content. The messages begin like the messages of RukPak.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigMapsError {
    /// The ConfigMap does not exist.
    #[error(
        "source bundle content: get configmap {namespace}/{name}: ConfigMap {name:?} not found"
    )]
    Missing { namespace: String, name: String },
    /// The request to the API server failed.
    #[error("source bundle content: get configmap {namespace}/{name}")]
    Unreadable {
        namespace: String,
        name: String,
        source: kube::Error,
    },
    /// The ConfigMap is not immutable.
    #[error("source bundle content: configmap {name:?} is not immutable")]
    Mutable { namespace: String, name: String },
    /// Several ConfigMaps have a file with the same path.
    #[error("source bundle content: {0}")]
    Duplicates(String),
    /// The path is not allowed in a bundle.
    #[error("source bundle content: the file {path:?} of configmap {name:?} {why}")]
    UnsafePath {
        name: String,
        path: String,
        why: &'static str,
    },
    /// The files exceed a limit of bundles.
    #[error("source bundle content: the configmaps have {0}")]
    TooLarge(String),
    /// The files differ from the recorded content.
    #[error(
        "source bundle content: the ConfigMaps now have content {found}, but content {expected} was recorded: only the recorded content is accepted"
    )]
    Changed { expected: Digest, found: Digest },
    /// The sink could not store a file.
    #[error("cannot store the content in the cache")]
    Unstorable(#[source] io::Error),
}

impl ConfigMapsError {
    /// Returns the finding for the requester of the content.
    pub(crate) fn finding(&self) -> Finding {
        let (code, hint) = match self {
            Self::Missing { namespace, .. } => (
                codes::install::CONFIGMAP_MISSING,
                format!("create it in namespace {namespace}, with immutable: true"),
            ),
            Self::Unreadable { .. } => (
                codes::cluster::UNREACHABLE,
                "the request is retried automatically".to_owned(),
            ),
            Self::Mutable { namespace, name } => (
                codes::review::CONFIGMAP_MUTABLE,
                format!("kubectl patch configmap -n {namespace} {name} -p '{{\"immutable\":true}}'"),
            ),
            Self::Duplicates(_) | Self::UnsafePath { .. } => (
                codes::install::SOURCE_FILES,
                "create other ConfigMaps, and a Bundle that names the new ConfigMaps".to_owned(),
            ),
            Self::TooLarge(_) => (
                codes::install::SOURCE_FILES,
                "push larger content as an image".to_owned(),
            ),
            Self::Changed { .. } => (
                codes::install::CONTENT_CHANGED,
                "create another Bundle, or change the template of the BundleDeployment, to install the current data of the ConfigMaps".to_owned(),
            ),
            Self::Unstorable(_) => (
                codes::install::CACHE_FULL,
                "the operation is retried automatically".to_owned(),
            ),
        };
        Finding::error(code, crate::chain(self)).hint(hint)
    }
}

impl ConfigMapsError {
    /// Returns the kind of the failure. Invalid data is a failure of the content, because the data
    /// of immutable ConfigMaps cannot change.
    pub(crate) fn failure(&self) -> SourceFailure {
        match self {
            Self::Unreadable { .. } => SourceFailure::Unavailable,
            Self::Duplicates(_) | Self::UnsafePath { .. } | Self::TooLarge(_) => {
                SourceFailure::Content
            }
            Self::Missing { .. }
            | Self::Mutable { .. }
            | Self::Changed { .. }
            | Self::Unstorable(_) => SourceFailure::Other,
        }
    }
}

/// A ConfigMap in memory, with its permit of [`CONFIG_MAP_SLOTS`].
struct HeldConfigMap {
    map: ConfigMap,
    _turn: SemaphorePermit<'static>,
}

impl HeldConfigMap {
    /// Reads a ConfigMap of the system namespace. Waits before the read while the maximum number of
    /// ConfigMaps is in memory. Returns `None` if the ConfigMap does not exist.
    async fn read(api: &Api<ConfigMap>, name: &KubeName) -> Result<Option<Self>, kube::Error> {
        let turn = CONFIG_MAP_SLOTS.acquire().await;
        let turn = turn.map_err(|closed| kube::Error::Service(closed.into()))?;
        let map = ByName(api).get_opt(name).await?;
        Ok(map.map(|map| Self { map, _turn: turn }))
    }

    /// Returns true if the data of the ConfigMap cannot be changed. The ConfigMap can still be
    /// deleted and created again.
    fn is_immutable(&self) -> bool {
        self.map.immutable == Some(true)
    }
}

/// The ConfigMaps of one source.
pub(crate) struct ConfigMapsSource {
    api: Api<ConfigMap>,
    namespace: String,
    parts: Vec<ConfigMapFiles>,
}

/// Returns the limits of content from ConfigMaps.
fn limits() -> Limits {
    Limits {
        total: MAX_BYTES,
        ..Limits::default()
    }
}

impl ConfigMapsSource {
    pub(super) fn open(shared: &Shared, parts: &[ConfigMapFiles]) -> Self {
        let namespace = shared.settings.namespace.clone();
        Self {
            api: Api::namespaced(shared.client(), &namespace),
            namespace,
            parts: parts.to_vec(),
        }
    }

    /// Reads each ConfigMap once, one after another, and writes its files into `sink`.
    async fn read<S: FileSink + Send>(
        &self,
        sink: S,
        limits: Limits,
    ) -> Result<CollectedFiles<S>, ConfigMapsError>
    where
        S::File: Send,
    {
        let mut folders = BTreeMap::<&KubeName, BTreeSet<&str>>::new();
        for part in &self.parts {
            folders.entry(&part.name).or_default().insert(&part.path);
        }
        let mut collected = CollectedFiles::new(sink, limits);
        for (name, folders) in folders {
            let namespace = self.namespace.clone();
            let held = HeldConfigMap::read(&self.api, name).await;
            let held = held.map_err(|error| ConfigMapsError::Unreadable {
                namespace: namespace.clone(),
                name: name.to_string(),
                source: error,
            })?;
            let name = name.to_string();
            let Some(held) = held else {
                return Err(ConfigMapsError::Missing { namespace, name });
            };
            if !held.is_immutable() {
                return Err(ConfigMapsError::Mutable { namespace, name });
            }
            blocking::run(|| collected.add(&name, &folders, &held.map))?;
        }
        collected.check()?;
        Ok(collected)
    }
}

impl ContentSource for ConfigMapsSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        let digest = self.read(NullSink, limits()).await?.index.digest();
        Ok(ContentId::new(
            &Source::ConfigMaps(self.parts.clone()),
            digest,
        ))
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        // The limit `MAX_BYTES` was checked when the content was resolved.
        let collected = self.read(sink, Limits::default()).await?;
        let found = collected.index.digest();
        if found != *content.digest() {
            let expected = content.digest().clone();
            return Err(ConfigMapsError::Changed { expected, found }.into());
        }
        Ok((collected.files, collected.sink))
    }

    async fn signatures(&self, _: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
