//! Targets of a TUF repository, from stored metadata or from a refresh. Each kind of failure has a
//! separate diagnostic.

use std::sync::Arc;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::root;
use jiff::Timestamp;
use sigstore_tuf::metadata::Role;
use sigstore_tuf::{Error, Repository, StoreRepository, Updater, UpdaterConfig};
use url::Url;

use super::fetch::{FetchError, Mirror};
use super::minimum_versions::MinimumVersions;
use super::store::{Instance, MetadataUpdate, StoredMetadata};
use crate::failure::{Failure, Outcome};
use crate::sigstore::http::HttpClients;

/// Timeout of a refresh.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the trust root target.
const ROOT: &str = "trusted_root.json";
/// Name of the signing config target, which is optional.
const CONFIG: &str = "signing_config.v0.2.json";

/// Targets of a repository.
pub(super) struct TufTargets {
    pub(super) root: String,
    pub(super) config: Option<Vec<u8>>,
    /// Version of the root metadata.
    pub(super) version: u64,
    /// Earliest expiry of the metadata.
    pub(super) expires: Timestamp,
}

/// A repository, its stored metadata, and the current time.
pub(super) struct TufRepository<'a> {
    pub(super) instance: &'a Instance,
    pub(super) metadata: StoredMetadata,
    pub(super) now: Timestamp,
}

impl TufRepository<'_> {
    /// Returns the stored targets if the targets are valid now.
    pub(super) async fn stored_targets(&self) -> Result<TufTargets, Error> {
        let draft = self.metadata.begin_update();
        self.read(StoreRepository::new(Arc::clone(&draft)), draft)
            .await
    }

    /// Refreshes the repository, stores the metadata, and returns the targets.
    pub(super) async fn refresh_from_mirror(&self, http: Arc<HttpClients>) -> Outcome<TufTargets> {
        let base = address(&self.instance.mirror)?;
        self.refresh(Mirror::new(http, base)).await
    }

    /// Reads the metadata and targets from `mirror`, stores the metadata, and returns the targets.
    pub(super) async fn refresh(&self, mirror: impl Repository + 'static) -> Outcome<TufTargets> {
        let draft = self.metadata.begin_update();
        let refresh =
            tokio::time::timeout(REFRESH_TIMEOUT, self.read(mirror, Arc::clone(&draft))).await;
        let is_complete = matches!(refresh, Ok(Ok(_)));
        if is_complete || draft.has_new_timestamp() {
            self.check_minimum_versions(&draft, is_complete)
                .map_err(|error| self.finding(&error))?;
        }
        let material = match refresh {
            Ok(Ok(material)) => material,
            Ok(Err(error)) => return Err(self.finding(&error)),
            Err(_) => {
                let seconds = REFRESH_TIMEOUT.as_secs();
                let why = format!("it did not respond completely within {seconds} s");
                return Err(self.unreachable_finding(&why).into());
            }
        };
        draft.store().map_err(|error| self.finding(&error))?;
        self.metadata.set_last_refresh(self.now)?;
        Ok(material)
    }

    /// Returns an error if a version is lower than a version that was seen before, even in a
    /// rejected refresh. If this refresh is rejected, its valid metadata is stored.
    fn check_minimum_versions(
        &self,
        draft: &MetadataUpdate,
        is_complete: bool,
    ) -> Result<(), Error> {
        let root = draft.root()?;
        let root = root.as_deref().unwrap_or(self.instance.root.as_bytes());
        let (floors, now) = (
            MinimumVersions::of_stored(root, draft),
            MinimumVersions::after(root, draft),
        );
        floors.check_timestamp(&now)?;
        let checked = floors.check_snapshot(&now);
        if checked.is_err() || !is_complete {
            draft.store_rejected(checked.is_ok())?;
        }
        checked
    }

    async fn read(
        &self,
        repository: impl Repository + 'static,
        draft: Arc<MetadataUpdate>,
    ) -> Result<TufTargets, Error> {
        let mut config = UpdaterConfig::default();
        config.snapshot_max_length = root::MAX_ROOT_BYTES as u64;
        config.targets_max_length = root::MAX_ROOT_BYTES as u64;
        config.target_max_length = root::MAX_ROOT_BYTES as u64;
        let mut updater = Updater::new(repository, self.instance.root.as_bytes())?
            .with_config(config)
            .with_store(draft);
        updater.refresh(self.now).await?;
        let text = updater.get_target(ROOT, self.now).await?;
        let text =
            String::from_utf8(text).map_err(|_| Error::Malformed(format!("{ROOT} is not text")))?;
        let config = match updater.get_target(CONFIG, self.now).await {
            Ok(config) => Some(config),
            Err(Error::TargetNotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let trusted = updater.trusted();
        let ends = [
            Some(trusted.root().expires()),
            trusted.timestamp().map(Role::expires),
            trusted.snapshot().map(Role::expires),
            trusted.targets_role("targets").map(Role::expires),
        ];
        Ok(TufTargets {
            root: text,
            config,
            version: trusted.root().version,
            expires: ends.into_iter().flatten().min().unwrap_or(self.now),
        })
    }

    /// Returns the failure of a refresh.
    fn finding(&self, error: &Error) -> Failure {
        let host = self.host();
        let finding = match error {
            Error::Expired { role, expires } => Finding::error(
                codes::trust::REPOSITORY_EXPIRED,
                format!("the {role} metadata of the TUF repository at {host} expired on {expires}"),
            )
            .hint("ask the operator of the repository for current metadata; if you use a mirror, check that it is up to date"),
            Error::Rollback { role, trusted, new } => Finding::error(
                codes::trust::REPOSITORY_ROLLED_BACK,
                format!("the {role} metadata of the TUF repository at {host} has version {new}, older than the trusted version {trusted}"),
            )
            .hint("the metadata is not used: it is an outdated copy, or an attack; ask the operator of the repository"),
            Error::BadRootVersion { trusted, new } => Finding::error(
                codes::trust::REPOSITORY_ROLLED_BACK,
                format!("the TUF repository at {host} has root version {new}, which does not follow the trusted version {trusted}"),
            )
            .hint("the metadata is not used: it is an outdated copy, or an attack; ask the operator of the repository"),
            Error::TargetNotFound(name) => Finding::error(
                codes::trust::REPOSITORY_FORGED,
                format!("the TUF repository at {host} has no {name}"),
            )
            .hint("check that this is the repository of a Sigstore instance"),
            Error::Io { .. } => Finding::error(
                codes::usage::FILE_UNWRITABLE,
                "cannot store the metadata of a TUF repository",
            ),
            Error::Transport { source, .. } => match missing_file(source.as_deref()) {
                Some(FetchError::TooLarge { .. }) => self.invalid_finding(),
                Some(_) => self.unreachable_finding("the request failed"),
                None => self.unreachable_finding("a file is missing"),
            },
            _ => self.invalid_finding(),
        };
        Failure::caused(finding, error)
    }

    fn invalid_finding(&self) -> Finding {
        let host = self.host();
        Finding::error(
            codes::trust::REPOSITORY_FORGED,
            format!("the metadata of the TUF repository at {host} is invalid"),
        )
        .hint("the metadata is not used; check that the --root of `trust init` belongs to this repository")
    }

    fn unreachable_finding(&self, why: &str) -> Finding {
        Finding::error(
            codes::trust::REPOSITORY_UNREACHABLE,
            format!("cannot read the TUF repository at {}: {why}", self.host()),
        )
        .hint("try again, or use a trust root in a file with --trusted-root FILE")
    }

    /// Returns the failure for stored metadata that is missing, invalid or expired.
    pub(super) fn unusable(&self, error: &Error) -> Failure {
        let finding = match error {
            Error::Expired { role, expires } => {
                let age = self.age().map_or_else(String::new, |age| {
                    format!("; the last refresh was {age} ago")
                });
                Finding::error(
                    codes::trust::REPOSITORY_EXPIRED,
                    format!("the stored metadata of the TUF repository at {} has expired: {role} expired on {expires}{age}", self.host()),
                )
                .hint("run `kubectl bundle trust update` with network access")
            }
            _ => Finding::error(
                codes::trust::REPOSITORY_NOT_KEPT,
                format!(
                    "no valid metadata of the TUF repository at {} is stored",
                    self.host()
                ),
            )
            .hint("run `kubectl bundle trust update` with network access"),
        };
        Failure::caused(finding, error)
    }

    /// Returns the warning that stored metadata is used because the repository is unreachable.
    pub(super) fn unreachable_warning(&self) -> Finding {
        let age = self.age().unwrap_or_else(|| "an unknown time".to_owned());
        Finding::warning(
            codes::trust::REPOSITORY_UNREACHABLE,
            format!(
                "the TUF repository at {} is unreachable; its metadata of {age} ago is used",
                self.host()
            ),
        )
    }

    /// Returns the time since the last refresh as text.
    fn age(&self) -> Option<String> {
        let seconds = (self.now - self.metadata.last_refresh()?)
            .get_seconds()
            .max(0);
        Some(match seconds {
            ..7200 => format!("{} min", seconds / 60),
            7200..172_800 => format!("{} h", seconds / 3600),
            _ => format!("{} d", seconds / 86_400),
        })
    }

    fn host(&self) -> String {
        Url::parse(&self.instance.mirror)
            .ok()
            .and_then(|url| url.host_str().map(ToOwned::to_owned))
            .unwrap_or_else(|| self.instance.mirror.clone())
    }
}

fn missing_file<'a>(
    source: Option<&'a (dyn std::error::Error + Send + Sync + 'static)>,
) -> Option<&'a FetchError> {
    source?.downcast_ref()
}

/// Returns the URL of a repository with a trailing slash. Its content is signed, so plain HTTP is
/// allowed.
pub(super) fn address(mirror: &str) -> Outcome<Url> {
    let url = Url::parse(&format!("{}/", mirror.trim_end_matches('/'))).ok();
    let Some(url) = url.filter(|url| matches!(url.scheme(), "https" | "http") && url.has_host())
    else {
        return Err(Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{mirror}` is not a valid URL of a TUF repository"),
        )
        .hint("write https://HOST/PATH")
        .into());
    };
    // The URL is stored and printed with the trust root, so credentials in the URL are rejected.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Finding::error(
            codes::usage::BAD_ARGUMENT,
            "the URL of a TUF repository must not contain a user or a password",
        )
        .hint("its content is signed and public: write https://HOST/PATH")
        .into());
    }
    Ok(url)
}
