//! Content from a commit of a git repository. A branch or tag is resolved to a commit. Only that
//! commit is fetched, and only the files of the bundle are read, without a checkout.

mod access;
mod credentials;
mod error;
mod files;
mod host;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bundle_core::content::ContentId;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::Digest;
use bundle_core::review::Source;
use bundle_core::review::source::{Auth, GitRef, git::GitUrl};
use bundle_oci::unpack::FileSink;
use tokio::sync::{Mutex, OnceCell};

pub(in crate::sources) use self::access::GitAccess;
pub(crate) use self::error::GitSourceError;
use self::files::{Blob, BlobReader, TreeListing};
use super::config_maps::NullSink;
use super::{ContentSource, FetchedFiles, SourceError};
use crate::clients::git::{GitError, GitFolder};
use crate::clients::process::write_all;

/// Local ref for the fetched commit, in the repository of the git folder.
const FETCHED: &str = "refs/bundle/content";
/// Maximum number of bytes of the output of a command about one ref.
const SMALL_OUTPUT: usize = 64 << 10;

/// A repository, and the settings to contact its server.
pub(crate) struct GitSource {
    source: Source,
    repository: GitUrl,
    directory: String,
    checkout: GitRef,
    access: GitAccess,
    /// Folder of git. The folder is created for the first command, because most reconciles need no
    /// command.
    folder: OnceCell<GitFolder>,
    /// The commit that was fetched last.
    fetched: Mutex<Option<Arc<FetchedCommit>>>,
}

/// A commit in the folder, and the files of its bundle.
struct FetchedCommit {
    commit: String,
    blobs: Vec<Blob>,
}

impl GitSource {
    /// Creates a git source with these settings for its server.
    pub(super) fn new(
        (repository, directory, checkout, auth): (&GitUrl, &str, &GitRef, &Auth),
        access: GitAccess,
    ) -> Self {
        Self {
            source: Source::Git {
                repository: repository.clone(),
                directory: directory.to_owned(),
                checkout: checkout.clone(),
                auth: auth.clone(),
            },
            repository: repository.clone(),
            directory: directory.to_owned(),
            checkout: checkout.clone(),
            access,
            folder: OnceCell::new(),
            fetched: Mutex::default(),
        }
    }

    /// Returns the folder. The first call reads the Secret and checks the addresses of the host.
    async fn folder(&self) -> Result<&GitFolder, GitSourceError> {
        let create = || self.access.folder(&self.repository, None);
        self.folder.get_or_try_init(create).await
    }

    /// Creates the folder. While the maximum number of folders exists, waits without a time limit.
    pub(super) async fn prepare(&self) -> Result<(), GitSourceError> {
        let slot = self.access.program.reserve_folder(&self.access.requester);
        // A request for one slot never exceeds the capacity.
        let slot = slot.await.ok();
        let create = || self.access.folder(&self.repository, slot);
        let create = Box::pin(async { self.folder.get_or_try_init(create).await.map(drop) });
        self.within_limit(create).await
    }

    /// Runs `work` within the time limit of all commands for one content.
    async fn within_limit<T>(
        &self,
        work: impl Future<Output = Result<T, GitSourceError>>,
    ) -> Result<T, GitSourceError> {
        let limit = self.access.program.content_timeout();
        let done = tokio::time::timeout(limit, work).await;
        done.unwrap_or_else(|_| Err(self.failed("cannot read", GitError::TimedOut(limit))))
    }

    fn failed(&self, doing: &str, error: GitError) -> GitSourceError {
        failed(doing, &self.repository, error)
    }

    fn invalid(&self, commit: &str, why: impl Into<String>) -> GitSourceError {
        GitSourceError::Content {
            commit: commit.to_owned(),
            repository: self.repository.as_str().to_owned(),
            why: why.into(),
        }
    }

    /// Returns the commit that `checkout` refers to now, with its files. If `checkout` is the
    /// commit that was fetched last, this commit is not fetched again.
    async fn fetch_commit(&self, checkout: &GitRef) -> Result<Arc<FetchedCommit>, GitSourceError> {
        let mut last = self.fetched.lock().await;
        if let (Some(known), GitRef::Commit(commit)) = (&*last, checkout)
            && known.commit == *commit
        {
            return Ok(known.clone());
        }
        let doing = format!("cannot fetch {}", describe(checkout));
        let refspec = format!("+{}:{FETCHED}", ref_of(checkout));
        let arguments = [
            "fetch",
            "--quiet",
            "--depth=1",
            "--filter=blob:none",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--recurse-submodules=no",
            "--",
            "origin",
            &refspec,
        ];
        let fetched = self
            .folder()
            .await?
            .contact(&arguments, &[], SMALL_OUTPUT)
            .await;
        fetched.map_err(|error| self.failed(&doing, error))?;
        let commit = self.commit(checkout).await?;
        let blobs = self.list(&commit).await?;
        self.fetch_blobs(&commit, &blobs).await?;
        let fetched = Arc::new(FetchedCommit { commit, blobs });
        *last = Some(fetched.clone());
        Ok(fetched)
    }

    /// Returns the commit of the fetched ref.
    async fn commit(&self, checkout: &GitRef) -> Result<String, GitSourceError> {
        let peeled = format!("{FETCHED}^{{commit}}");
        let arguments = ["rev-parse", "--verify", "--quiet", &peeled];
        let found = self
            .folder()
            .await?
            .read(&arguments, &[], SMALL_OUTPUT)
            .await;
        let found = found.ok().and_then(|text| String::from_utf8(text).ok());
        let found = found.map(|text| text.trim().to_owned());
        let is_named = |commit: &String| match checkout {
            // If the source names the hash of a tag object, `commit` is the commit that this tag
            // refers to, so the two hashes differ. This is an error.
            GitRef::Commit(named) => named == commit,
            GitRef::Branch(_) | GitRef::Tag(_) => true,
        };
        found.filter(is_named).ok_or_else(|| {
            let doing = format!("cannot use {}", describe(checkout));
            self.failed(&doing, GitError::Output("it does not name a commit"))
        })
    }

    /// Returns the files of the bundle in `commit`.
    async fn list(&self, commit: &str) -> Result<Vec<Blob>, GitSourceError> {
        let listing = TreeListing::of(&self.directory);
        let failed = |error| self.failed("cannot list the files of the commit in", error);
        let roots = if listing.needs_roots() {
            let arguments = ["ls-tree", "-z", "--name-only", "--full-tree", commit];
            let names = self
                .folder()
                .await?
                .read(&arguments, &[], files::LISTING_BYTES);
            names.await.map_err(failed)?
        } else {
            Vec::new()
        };
        let mut arguments = vec!["ls-tree", "-r", "-z", "--full-tree", commit, "--"];
        let paths = listing.paths(&roots);
        if paths.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        arguments.extend(paths.iter().flatten().map(String::as_str));
        let output = self
            .folder()
            .await?
            .read(&arguments, &[], files::LISTING_BYTES);
        let output = output.await.map_err(failed)?;
        listing
            .blobs(&output)
            .map_err(|why| self.invalid(commit, why))
    }

    /// Fetches the blobs that are missing in the folder, in one request.
    async fn fetch_blobs(&self, commit: &str, blobs: &[Blob]) -> Result<(), GitSourceError> {
        let failed = |error| self.failed("cannot fetch the files of the commit from", error);
        let arguments = [
            "rev-list",
            "--no-walk",
            "--objects",
            "--missing=print",
            "--no-object-names",
            commit,
        ];
        let wanted: BTreeSet<&str> = blobs.iter().map(|blob| blob.id.as_str()).collect();
        let folder = self.folder().await?;
        let process = folder.stream(&arguments).await.map_err(failed)?;
        let (_, stdout, end) = process.into_parts();
        let work = async {
            let missing = match stdout {
                Some(stdout) => files::missing(stdout, &wanted).await?,
                None => BTreeSet::new(),
            };
            end.wait().await?;
            Ok(missing)
        };
        let limit = folder.local_timeout();
        let done = tokio::time::timeout(limit, work).await;
        let missing = done.unwrap_or(Err(GitError::TimedOut(limit)));
        let missing = missing.map_err(failed)?;
        if missing.is_empty() {
            return Ok(());
        }
        let arguments = [
            "-c",
            "fetch.negotiationAlgorithm=noop",
            "fetch",
            "--quiet",
            // Only servers with the smart protocol support `--depth`. Servers without the smart
            // protocol could name further hosts.
            "--depth=1",
            "--filter=blob:none",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--recurse-submodules=no",
            "--stdin",
            "origin",
        ];
        let input: String = missing.iter().flat_map(|id| [id.as_str(), "\n"]).collect();
        let fetched = folder.contact(&arguments, input.as_bytes(), SMALL_OUTPUT);
        fetched.await.map(drop).map_err(failed)
    }

    /// Writes the files of a fetched commit into `sink`. Returns them with their digest.
    async fn read<S>(
        &self,
        fetched: &FetchedCommit,
        sink: S,
    ) -> Result<(Digest, FetchedFiles<S>), GitSourceError>
    where
        S: FileSink<File: Send> + Send,
    {
        let failed = |error| self.failed("cannot read the files of the commit from", error);
        let process = self
            .folder()
            .await?
            .stream(&["cat-file", "--batch", "--buffer"]);
        let (stdin, stdout, end) = process.await.map_err(failed)?.into_parts();
        let mut reader = BlobReader::new(sink);
        let names = fetched.blobs.iter().map(|blob| format!("{}\n", blob.id));
        let names: String = names.collect();
        let write = write_all(stdin, names.as_bytes());
        let read = async {
            if let Some(mut stdout) = stdout {
                for blob in &fetched.blobs {
                    reader.read(&mut stdout, blob).await?;
                }
            }
            Ok::<(), files::BlobError>(())
        };
        let limit = self.folder().await?.local_timeout();
        let work = async { tokio::join!(write, read).1 };
        let done = tokio::time::timeout(limit, work).await;
        match done.map_err(|_| failed(GitError::TimedOut(limit)))? {
            Ok(()) => {}
            Err(files::BlobError::Sink(error)) => return Err(GitSourceError::Unstorable(error)),
            Err(files::BlobError::Invalid(why)) => {
                return Err(self.invalid(&fetched.commit, why));
            }
            Err(files::BlobError::Pipe(error)) => {
                // If the process failed, its own error is returned, because this error contains the
                // reason.
                end.wait().await.map_err(GitError::from).map_err(failed)?;
                return Err(failed(GitError::Io(error)));
            }
        }
        end.wait().await.map_err(GitError::from).map_err(failed)?;
        Ok(reader.finish())
    }

    /// Returns the commit that the server currently reports for a branch or tag. For an annotated
    /// tag, this is the commit that the tag refers to. Returns `None` if the branch or tag does not
    /// exist.
    async fn current_commit(&self) -> Result<Option<String>, GitSourceError> {
        let name = ref_of(&self.checkout);
        let peeled = format!("{name}^{{}}");
        let arguments = ["ls-remote", "--quiet", "--", "origin", &name, &peeled];
        let output = self
            .folder()
            .await?
            .contact(&arguments, &[], SMALL_OUTPUT)
            .await;
        let output = output.map_err(|error| {
            let doing = format!("cannot look up {}", describe(&self.checkout));
            self.failed(&doing, error)
        })?;
        let output = String::from_utf8(output).unwrap_or_default();
        let refs = output.lines().filter_map(|line| line.split_once('\t'));
        let refs: BTreeMap<&str, &str> = refs.map(|(commit, name)| (name, commit)).collect();
        let found = refs
            .get(peeled.as_str())
            .or_else(|| refs.get(name.as_str()));
        Ok(found.map(|commit| (*commit).to_owned()))
    }
}

fn failed(doing: &str, repository: &GitUrl, error: GitError) -> GitSourceError {
    GitSourceError::Git {
        doing: doing.to_owned(),
        from: repository.as_str().to_owned(),
        error,
    }
}

/// Returns the name of a revision for git. A full name is never ambiguous.
fn ref_of(checkout: &GitRef) -> String {
    match checkout {
        GitRef::Branch(name) => format!("refs/heads/{name}"),
        GitRef::Tag(name) => format!("refs/tags/{name}"),
        GitRef::Commit(commit) => commit.clone(),
    }
}

fn describe(checkout: &GitRef) -> String {
    match checkout {
        GitRef::Branch(name) => format!("branch {name} of"),
        GitRef::Tag(name) => format!("tag {name} of"),
        GitRef::Commit(commit) => format!("commit {commit} of"),
    }
}

impl GitSource {
    /// Returns the content that the source refers to now.
    async fn current(&self) -> Result<ContentId, GitSourceError> {
        let fetched = self.fetch_commit(&self.checkout).await?;
        let (digest, _) = self.read(&fetched, NullSink).await?;
        Ok(ContentId::new(&self.source, digest).at_commit(&fetched.commit))
    }

    /// Writes exactly `content` into `sink`. Fails if the commit has other files than the recorded
    /// content.
    async fn fetch_content<S>(
        &self,
        content: &ContentId,
        sink: S,
    ) -> Result<FetchedFiles<S>, GitSourceError>
    where
        S: FileSink<File: Send> + Send,
    {
        let checkout = match content.commit() {
            Some(commit) => GitRef::Commit(commit.to_owned()),
            None => self.checkout.clone(),
        };
        let fetched = self.fetch_commit(&checkout).await?;
        let (found, files) = self.read(&fetched, sink).await?;
        if found == *content.digest() {
            return Ok(files);
        }
        Err(GitSourceError::Changed {
            commit: fetched.commit.clone(),
            repository: self.repository.as_str().to_owned(),
            expected: content.digest().clone(),
            found,
        })
    }
}

impl ContentSource for GitSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        Ok(self.within_limit(Box::pin(self.current())).await?)
    }

    async fn changed(&self, recorded: &ContentId) -> Result<Option<ContentId>, SourceError> {
        let current = Box::pin(async {
            let is_recorded = recorded.commit().is_some()
                && self.current_commit().await?.as_deref() == recorded.commit();
            Ok(if is_recorded {
                None
            } else {
                Some(self.current().await?)
            })
        });
        let now = self.within_limit(current).await?;
        Ok(now.filter(|now| now.digest() != recorded.digest()))
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let fetched = Box::pin(self.fetch_content(content, sink));
        Ok(self.within_limit(fetched).await?)
    }

    async fn signatures(&self, _: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
