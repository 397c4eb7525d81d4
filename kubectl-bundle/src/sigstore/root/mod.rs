//! Which trust root counts: the one in a file that is named, that of the TUF repository that `trust init` was told of, or the one that is built in.

mod fetch;
mod floors;
mod repository;
mod store;

use std::path::PathBuf;
use std::sync::Arc;

use bundle_core::diagnostic::codes;
use bundle_trust::root::Root;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::http::Http;
use crate::failure::{self, Failure, Outcome};
use crate::files;
use crate::ui::Ui;

use repository::{Material, Source};

pub(crate) use store::{Folders, Instance};

/// For how long what a repository said is taken without asking again.
const FRESH: SignedDuration = SignedDuration::from_hours(24);

/// Which trust root is wanted.
#[derive(Debug, Clone)]
pub(crate) struct WantedRoot {
    /// That of this file.
    pub(crate) file: Option<PathBuf>,
    /// Nobody is asked.
    pub(crate) offline: bool,
    /// Where it is kept which repository is trusted; without a home folder, nowhere.
    pub(crate) folders: Option<Folders>,
    /// Authorities to trust beside the system's.
    pub(crate) ca_files: Vec<PathBuf>,
}

/// A trust root, and where it comes from.
pub(crate) struct Chosen {
    /// Its text.
    pub(crate) text: String,
    /// Itself.
    pub(crate) root: Arc<Root>,
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// The signing config beside it.
    pub(crate) signing_config: Option<Vec<u8>>,
}

/// Where a trust root comes from, as data.
#[derive(Debug, Clone, Serialize)]
#[serde(
    tag = "source",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum Origin {
    /// It is built in.
    BuiltIn,
    /// A file.
    File {
        /// Which.
        file: String,
    },
    /// A TUF repository.
    Repository {
        /// Its address.
        mirror: String,
        /// The version of its own root.
        version: u64,
        /// When it was last asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        asked: Option<Timestamp>,
        /// Until when what it said is good.
        until: Timestamp,
    },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File { file } => f.write_str(file),
            Self::Repository {
                mirror,
                asked,
                until,
                ..
            } => {
                write!(f, "{mirror} (")?;
                if let Some(asked) = asked {
                    write!(f, "asked {asked:.0}, ")?;
                }
                write!(f, "good until {until:.0})")
            }
        }
    }
}

impl Chosen {
    fn built_in() -> Outcome<Self> {
        Ok(Self {
            text: Root::public_text().to_owned(),
            root: Root::public()?,
            origin: Origin::BuiltIn,
            signing_config: None,
        })
    }

    /// Its text, where it is another one than what is built in.
    pub(crate) fn given(&self) -> Option<&str> {
        match self.origin {
            Origin::BuiltIn => None,
            _ => Some(&self.text),
        }
    }
}

impl WantedRoot {
    /// Reads it, asking the repository if that was long ago.
    pub(crate) async fn open(&self, ui: &mut Ui) -> Outcome<Chosen> {
        if let Some(path) = &self.file {
            let text = files::read_text(path)?;
            return Ok(Chosen {
                root: Root::from_text(&text)
                    .map_err(|finding| Failure::from(failure::in_file(finding, path)))?,
                text,
                origin: Origin::File {
                    file: path.display().to_string(),
                },
                signing_config: None,
            });
        }
        let Some(folders) = &self.folders else {
            return Chosen::built_in();
        };
        let Some(instance) = folders.instance()? else {
            return Chosen::built_in();
        };
        let source = Source {
            kept: folders.kept(&instance),
            instance: &instance,
            now: Timestamp::now(),
        };
        let kept = source.what_is_kept().await;
        let material = if self.offline {
            kept.map_err(|error| source.unusable(&error))?
        } else {
            match kept {
                Ok(material) if source.is_fresh() => material,
                kept => {
                    let _progress = ui.progress("asking the TUF repository");
                    match (Box::pin(source.ask(self.http()?)).await, kept) {
                        (Ok(material), _) => material,
                        (Err(failure), Ok(material)) if is_silence(&failure) => {
                            ui.finding(&source.told());
                            material
                        }
                        (Err(failure), _) => return Err(failure),
                    }
                }
            }
        };
        source.chosen(material)
    }

    /// Where nothing hinges on the root but when something was signed: nobody is asked, and what is built in will do where the kept one does not.
    pub(crate) async fn open_for_times(mut self, ui: &mut Ui) -> Outcome<Chosen> {
        self.offline = true;
        if self.file.is_some() {
            return self.open(ui).await;
        }
        if let Ok(chosen) = self.open(ui).await {
            return Ok(chosen);
        }
        ui.note("the trust root that is built in says when it was signed: what is kept of the TUF repository cannot be used");
        Chosen::built_in()
    }

    /// Asks the repository now.
    pub(crate) async fn update(&self, instance: &Instance, folders: &Folders) -> Outcome<Chosen> {
        let source = Source {
            kept: folders.kept(instance),
            instance,
            now: Timestamp::now(),
        };
        let material = Box::pin(source.ask(self.http()?)).await?;
        source.chosen(material)
    }

    /// From now on, this repository: it has answered, and its root can be read.
    pub(crate) async fn init(&self, instance: &Instance, folders: &Folders) -> Outcome<Chosen> {
        let trusted = matches!(folders.instance(), Ok(Some(before)) if before == *instance);
        let asked = self.update(instance, folders).await;
        if asked.is_err() && !trusted {
            folders.kept(instance).clear();
        }
        let chosen = asked?;
        folders.keep(instance)?;
        Ok(chosen)
    }

    fn http(&self) -> Outcome<Arc<Http>> {
        Http::new(&self.ca_files).map(Arc::new)
    }
}

impl Source<'_> {
    /// Returns `true` if the repository was asked not long ago, by a clock that has not gone back since.
    fn is_fresh(&self) -> bool {
        self.kept
            .asked()
            .is_some_and(|at| at <= self.now && self.now.duration_since(at) < FRESH)
    }

    fn chosen(&self, material: Material) -> Outcome<Chosen> {
        Ok(Chosen {
            root: Root::from_text(&material.root)?,
            text: material.root,
            origin: Origin::Repository {
                mirror: self.instance.mirror.clone(),
                version: material.version,
                asked: self.kept.asked(),
                until: material.until,
            },
            signing_config: material.config,
        })
    }
}

/// Returns `true` if it only says that nobody answered.
fn is_silence(failure: &Failure) -> bool {
    let Failure::Findings { findings, .. } = failure else {
        return false;
    };
    let mut codes = findings.0.iter().map(|finding| finding.code);
    codes.all(|code| code == codes::trust::REPOSITORY_UNREACHABLE)
}

#[cfg(test)]
mod refused_tests;
