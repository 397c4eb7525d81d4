//! Selects the trust root: from a file, from the TUF repository of `trust init`, or the built-in
//! trust root.

mod fetch;
mod minimum_versions;
mod repository;
mod store;

use std::path::PathBuf;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::root::Root;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::http::HttpClients;
use crate::failure::{self, Failure, Outcome};
use crate::system::files;
use crate::ui::Ui;

use repository::{TufRepository, TufTargets};

pub(crate) use store::{Folders, Instance};

/// Time after which a repository is refreshed again.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// Settings for the trust root.
#[derive(Debug, Clone)]
pub(crate) struct TrustRootSettings {
    /// File from a flag.
    pub(crate) file: Option<PathBuf>,
    /// `true` if the repository is not refreshed, and only its stored metadata is used.
    pub(crate) offline: bool,
    /// Folders for the selected repository and its metadata; `None` without a home folder.
    pub(crate) folders: Option<Folders>,
    /// Additional certificate authorities.
    pub(crate) ca_files: Vec<PathBuf>,
}

/// A trust root and its origin.
pub(crate) struct SelectedRoot {
    /// Text of the trust root.
    pub(crate) text: String,
    /// Parsed trust root.
    pub(crate) root: Arc<Root>,
    /// Origin.
    pub(crate) origin: RootOrigin,
    /// Signing config of the same instance.
    pub(crate) signing_config: Option<Vec<u8>>,
}

/// Origin of a trust root, as data.
#[derive(Debug, Clone, Serialize)]
#[serde(
    tag = "source",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum RootOrigin {
    /// Built-in trust root of the public instance.
    BuiltIn,
    /// A file.
    File {
        /// Path.
        file: String,
    },
    /// A TUF repository.
    Repository {
        /// URL.
        mirror: String,
        /// Version of the root metadata.
        version: u64,
        /// Time of the last refresh.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_refresh: Option<Timestamp>,
        /// Expiry of the metadata.
        expires: Timestamp,
    },
}

impl std::fmt::Display for RootOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File { file } => f.write_str(file),
            Self::Repository {
                mirror,
                last_refresh: asked,
                expires: until,
                ..
            } => {
                write!(f, "{mirror} (")?;
                if let Some(asked) = asked {
                    write!(f, "refreshed {asked:.0}, ")?;
                }
                write!(f, "valid until {until:.0})")
            }
        }
    }
}

impl SelectedRoot {
    async fn built_in() -> Outcome<Self> {
        let text = Root::public_text();
        Ok(Self {
            text: text.to_owned(),
            root: parse(text).await?,
            origin: RootOrigin::BuiltIn,
            signing_config: None,
        })
    }

    /// Returns the text of the trust root. `None` for the built-in trust root.
    pub(crate) fn custom_root_text(&self) -> Option<&str> {
        match self.origin {
            RootOrigin::BuiltIn => None,
            _ => Some(&self.text),
        }
    }
}

impl TrustRootSettings {
    /// Returns the trust root, and refreshes the repository if the last refresh is old.
    pub(crate) async fn open(&self, ui: &mut Ui) -> Outcome<SelectedRoot> {
        if let Some(path) = &self.file {
            let text = files::read_text(path)?;
            return Ok(SelectedRoot {
                root: parse(&text)
                    .await
                    .map_err(|finding| Failure::from(failure::in_file(finding, path)))?,
                text,
                origin: RootOrigin::File {
                    file: path.display().to_string(),
                },
                signing_config: None,
            });
        }
        let Some(folders) = &self.folders else {
            return SelectedRoot::built_in().await;
        };
        let Some(instance) = folders.instance()? else {
            return SelectedRoot::built_in().await;
        };
        let source = TufRepository {
            metadata: folders.metadata_of(&instance),
            instance: &instance,
            now: Timestamp::now(),
        };
        let kept = source.stored_targets().await;
        let material = if self.offline {
            kept.map_err(|error| source.unusable(&error))?
        } else {
            match kept {
                Ok(material) if source.is_fresh() => material,
                kept => {
                    let _progress = ui.progress("refreshing the TUF repository");
                    match (
                        Box::pin(source.refresh_from_mirror(self.http()?)).await,
                        kept,
                    ) {
                        (Ok(material), _) => material,
                        (Err(failure), Ok(material)) if is_unreachable(&failure) => {
                            ui.finding(&source.unreachable_warning());
                            material
                        }
                        (Err(failure), _) => return Err(failure),
                    }
                }
            }
        };
        source.chosen(material)
    }

    /// Returns a trust root that is only used for signing times. The repository is not refreshed.
    /// If the stored trust root is invalid, the built-in trust root is used.
    pub(crate) async fn open_for_times(mut self, ui: &mut Ui) -> Outcome<SelectedRoot> {
        self.offline = true;
        if self.file.is_some() {
            return self.open(ui).await;
        }
        if let Ok(chosen) = self.open(ui).await {
            return Ok(chosen);
        }
        ui.note("signing times are verified with the built-in trust root: the stored metadata of the TUF repository is invalid");
        SelectedRoot::built_in().await
    }

    /// Refreshes the repository, even if the last refresh is recent.
    pub(crate) async fn update(
        &self,
        instance: &Instance,
        folders: &Folders,
    ) -> Outcome<SelectedRoot> {
        let source = TufRepository {
            metadata: folders.metadata_of(instance),
            instance,
            now: Timestamp::now(),
        };
        let material = Box::pin(source.refresh_from_mirror(self.http()?)).await?;
        source.chosen(material)
    }

    /// Refreshes this repository. If its trust root is valid, stores the repository as trusted.
    pub(crate) async fn init(
        &self,
        instance: &Instance,
        folders: &Folders,
    ) -> Outcome<SelectedRoot> {
        let trusted = matches!(folders.instance(), Ok(Some(before)) if before == *instance);
        let refresh = self.update(instance, folders).await;
        if refresh.is_err() && !trusted {
            folders.metadata_of(instance).clear();
        }
        let chosen = refresh?;
        folders.store_instance(instance)?;
        Ok(chosen)
    }

    fn http(&self) -> Outcome<Arc<HttpClients>> {
        HttpClients::new(&self.ca_files).map(Arc::new)
    }
}

impl TufRepository<'_> {
    /// Returns `true` if the last refresh is recent, and the clock was not set back after the last
    /// refresh.
    fn is_fresh(&self) -> bool {
        self.metadata
            .last_refresh()
            .is_some_and(|at| at <= self.now && self.now.duration_since(at) < REFRESH_INTERVAL)
    }

    fn chosen(&self, material: TufTargets) -> Outcome<SelectedRoot> {
        Ok(SelectedRoot {
            root: Root::from_text(&material.root)?,
            text: material.root,
            origin: RootOrigin::Repository {
                mirror: self.instance.mirror.clone(),
                version: material.version,
                last_refresh: self.metadata.last_refresh(),
                expires: material.expires,
            },
            signing_config: material.config,
        })
    }
}

/// Parses a trust root on another thread. Meanwhile, requests in progress continue.
async fn parse(text: &str) -> Result<Arc<Root>, Finding> {
    let copy = text.to_owned();
    match tokio::task::spawn_blocking(move || Root::from_text(&copy)).await {
        Ok(parsed) => parsed,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Returns `true` if the only cause of the failure is an unreachable repository.
fn is_unreachable(failure: &Failure) -> bool {
    let Failure::Findings { findings, .. } = failure else {
        return false;
    };
    let mut codes = findings.iter().map(|finding| finding.code);
    codes.all(|code| code == codes::trust::REPOSITORY_UNREACHABLE)
}

#[cfg(test)]
mod rejection_tests;
