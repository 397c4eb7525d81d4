//! The git program: child processes without any configuration of a user, a system or a repository.
//! Each process runs in its own folder, which has a size limit.

mod failure;
mod limits;
mod remote;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use tokio::sync::OnceCell;

pub(crate) use self::failure::GitFailure;
pub(crate) use self::limits::GitLimits;
use self::limits::PROCESS_MEMORY;
pub(crate) use self::remote::{GitCredentials, GitRemote, ServerVerification};
use crate::budget::{Budget, Pool, Share, ShareTooLarge, programs, wait_for_share};
use crate::clients::process::{
    self, ChildProcess, ProcessCommand, ProcessError, ProcessFolder, UsedByProcess, find_program,
};

/// Maximum number of git folders that exist at the same time. The cache volume must have space for
/// the cache and for these folders. The git processes in each folder use memory of the pod. One
/// requester can use half of the folders.
const FOLDERS: u64 = 2;
/// The oldest version of git that connects only to given addresses (`http.curloptResolve`). Older
/// versions ignore the setting.
const OLDEST: (u32, u32) = (2, 37);
/// Maximum number of bytes of the output of `git version`.
const VERSION_BYTES: usize = 1024;
/// Maximum length of the path of the programs of git, in bytes.
const EXEC_PATH_BYTES: usize = 4096;

/// The reason why git did not complete a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// A required program, such as git or ssh, does not exist.
    #[error("this pod has no `{0}` program, which sources of type git require")]
    Missing(&'static str),
    /// The program does not support a setting that protects the pod.
    #[error(
        "this pod has `{found}`, and sources of type git require git {}.{} or later",
        OLDEST.0,
        OLDEST.1
    )]
    Old { found: String },
    /// The process or its folder could not be created.
    #[error("cannot run git")]
    Io(#[source] io::Error),
    /// Git ended with an error.
    #[error("{0}")]
    Failed(GitFailure),
    /// The process did not end in time.
    #[error("git did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The folder exceeds its size limit.
    #[error("the revision needs more than {} MiB on disk", .0 >> 20)]
    TooLarge(u64),
    /// The processes exceed their memory limit.
    #[error("the revision needs more than {} MiB of memory", .0 >> 20)]
    OutOfMemory(u64),
    /// The memory limit of the pod is too small for git.
    #[error("git needs {} MiB of memory, but the pod has only {} MiB for git", .wanted >> 20, .capacity >> 20)]
    MemoryTooSmall { wanted: u64, capacity: u64 },
    /// Other git sources use all folders.
    #[error("other git sources use all working folders of git")]
    FoldersBusy,
    /// Other git commands use all memory that is reserved for git.
    #[error("other git sources use all memory that is reserved for git")]
    MemoryBusy,
    /// The output exceeds its size limit, or does not have the expected format.
    #[error("{0}")]
    Output(&'static str),
}

impl From<ProcessError> for GitError {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::NoShell => Self::Missing("sh"),
            ProcessError::Io(error) => Self::Io(error),
            ProcessError::Failed { stderr, .. } | ProcessError::Killed(stderr) => {
                if GitFailure::lacks_ssh(&stderr) {
                    Self::Missing("ssh")
                } else if GitFailure::exceeds_memory(&stderr) {
                    Self::OutOfMemory(PROCESS_MEMORY)
                } else {
                    Self::Failed(GitFailure::new(&stderr))
                }
            }
            ProcessError::TimedOut(limit) => Self::TimedOut(limit),
            ProcessError::FolderLimit(limit) => Self::TooLarge(limit),
            ProcessError::MemoryLimit(limit) => Self::OutOfMemory(limit),
            ProcessError::OutputLimit => {
                Self::Output("the revision has too many files, or its paths are too long")
            }
        }
    }
}

impl GitError {
    /// Returns `true` if the content is the cause of the error: the revision does not exist,
    /// exceeds a limit, or is not a bundle.
    pub(crate) fn is_about_content(&self) -> bool {
        match self {
            Self::TooLarge(_) | Self::OutOfMemory(_) | Self::Output(_) => true,
            Self::Failed(failure) => failure.is_missing_revision(),
            _ => false,
        }
    }

    /// Returns the finding for the requester of the content. `message` begins with the source.
    pub(crate) fn finding(&self, message: String) -> Finding {
        let (code, hint) = match self {
            Self::Missing(_) | Self::Old { .. } => (
                codes::install::GIT_MISSING,
                "ask an administrator to use the full image of bundle-webhook, whose tag ends with -full, or push the content as an image",
            ),
            Self::Io(_) => (
                codes::install::CACHE_FULL,
                "the operation is retried automatically",
            ),
            Self::TimedOut(_) => (
                codes::install::GIT_UNREACHABLE,
                "the request is retried automatically",
            ),
            Self::Failed(failure) => (failure.code(), failure.hint()),
            Self::MemoryTooSmall { .. } => (
                codes::install::CONTENT_TOO_LARGE,
                "ask an administrator to increase the memory of bundle-webhook",
            ),
            Self::FoldersBusy | Self::MemoryBusy => (
                codes::install::MEMORY_BUSY,
                "the operation is retried automatically",
            ),
            Self::TooLarge(_) | Self::OutOfMemory(_) | Self::Output(_) => (
                codes::install::GIT_CONTENT,
                "use a smaller repository, or push the content as an image",
            ),
        };
        Finding::error(code, message).hint(hint)
    }
}

/// The git program, and the folder in which it works.
#[derive(Debug)]
pub(crate) struct GitProgram {
    folder: PathBuf,
    search_path: OsString,
    authorities: Option<PathBuf>,
    slots: Pool,
    /// The memory that the pod keeps free for git.
    memory: Pool,
    limits: GitLimits,
    /// Git's exec path: the folder that contains the programs of git. The value is set after the
    /// version check.
    exec_path: OnceCell<PathBuf>,
}

impl GitProgram {
    /// Removes the files of earlier processes in `folder`. Git and ssh are looked up in
    /// `search_path`. Certificates of servers are verified with the authorities of the system and
    /// the authorities in `authorities` (PEM). Each command reserves a part of `memory`.
    pub(crate) fn new(
        folder: PathBuf,
        search_path: OsString,
        authorities: Option<PathBuf>,
        memory: Pool,
        limits: GitLimits,
    ) -> Self {
        process::remove_folders(&folder);
        Self {
            folder,
            search_path,
            authorities,
            slots: Pool::divided(FOLDERS),
            memory,
            limits,
            exec_path: OnceCell::new(),
        }
    }

    /// Returns the time limit of all commands for one content.
    pub(crate) fn content_timeout(&self) -> Duration {
        self.limits.content
    }

    /// Waits until `requester` can create a folder. The wait has no time limit.
    pub(crate) async fn reserve_folder(&self, requester: &str) -> Result<Share, ShareTooLarge> {
        let caps = Budget::part(&self.slots, requester, 1);
        self.slots.take(1, caps).await
    }

    /// Creates a folder with an empty repository for `requester`, as
    /// [`Self::repository_in_slot`] does. If the maximum number of folders exists, waits for a
    /// limited time until a folder is removed.
    pub(crate) async fn repository(
        &self,
        requester: &str,
        remote: GitRemote,
    ) -> Result<GitFolder, GitError> {
        let slot = wait_for_share(self.limits.wait, self.reserve_folder(requester)).await;
        // A request for one slot never exceeds the capacity.
        let slot = slot.and_then(Result::ok).ok_or(GitError::FoldersBusy)?;
        self.repository_in_slot(slot, requester, remote).await
    }

    /// Creates a folder with an empty repository for `requester`. Fails if the pod does not have
    /// the memory for two commands. With memory for only one command, a slow server would delay all
    /// requesters.
    pub(crate) async fn repository_in_slot(
        &self,
        slot: Share,
        requester: &str,
        remote: GitRemote,
    ) -> Result<GitFolder, GitError> {
        let git = find_program(&self.search_path, "git").ok_or(GitError::Missing("git"))?;
        let (wanted, capacity) = (
            self.limits.command_memory * programs::GIT_COMMANDS,
            self.memory.capacity(),
        );
        if capacity < wanted {
            return Err(GitError::MemoryTooSmall { wanted, capacity });
        }
        let folder = self.create_folder(slot).map_err(GitError::Io)?;
        let settings = remote
            .write(folder.path(), self.authorities.as_deref())
            .map_err(GitError::Io)?;
        let mut repository = GitFolder {
            git,
            programs: None,
            search_path: self.search_path.clone(),
            limits: self.limits,
            memory: self.memory.clone(),
            requester: requester.to_owned(),
            remote: settings,
            folder: Arc::new(folder),
        };
        let exec_path = || exec_path(&repository);
        let exec_path = self.exec_path.get_or_try_init(exec_path).await?;
        let programs = link_programs(exec_path, &repository).map_err(GitError::Io)?;
        repository.programs = Some(programs);
        let arguments = ["init", "--quiet", "--bare", "--template="];
        repository.read(&arguments, &[], 0).await?;
        Ok(repository)
    }

    fn create_folder(&self, slot: Share) -> io::Result<ProcessFolder> {
        let folder = ProcessFolder::create(&self.folder, "repository-", Some(slot))?;
        fs_err::create_dir(folder.path().join(HOME))?;
        fs_err::create_dir(folder.path().join(PROGRAMS))?;
        Ok(folder)
    }
}

/// Returns git's exec path: the folder that contains the programs of git. Fails if git is too old.
async fn exec_path(repository: &GitFolder) -> Result<PathBuf, GitError> {
    check_version(repository).await?;
    // The variable `GIT_EXEC_PATH` is not set yet. Therefore git prints the folder of its own
    // installation.
    let output = repository
        .read(&["--exec-path"], &[], EXEC_PATH_BYTES)
        .await?;
    let output = String::from_utf8_lossy(&output);
    Ok(PathBuf::from(output.trim_end_matches('\n')))
}

/// Creates and returns an exec path for git that contains only two programs: git itself, and its
/// client for https. With the exec path of the installation, a server could make git run other
/// programs, for example `http-fetch` for a pack at any URL. Git finds programs that are not part
/// of git, such as ssh, in `PATH`.
fn link_programs(exec_path: &Path, repository: &GitFolder) -> io::Result<PathBuf> {
    let programs = repository.path().join(PROGRAMS);
    fs_err::os::unix::fs::symlink(&repository.git, programs.join("git"))?;
    let https = "git-remote-https";
    fs_err::os::unix::fs::symlink(exec_path.join(https), programs.join(https))?;
    Ok(programs)
}

/// Fails if git is too old.
async fn check_version(repository: &GitFolder) -> Result<(), GitError> {
    let output = repository.read(&["version"], &[], VERSION_BYTES).await?;
    let output = String::from_utf8_lossy(&output);
    match version(&output) {
        Some(version) if version >= OLDEST => Ok(()),
        _ => {
            let found = output.trim().escape_debug().to_string();
            Err(GitError::Old { found })
        }
    }
}

/// Parses a text such as `git version 2.39.5`, which may contain further words.
fn version(output: &str) -> Option<(u32, u32)> {
    let numbers = output.strip_prefix("git version ")?;
    let mut numbers = numbers.trim().split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Name of the empty folder that git uses as home directory.
const HOME: &str = "home";
/// Name of the folder with links to the programs that git can run.
const PROGRAMS: &str = "programs";
/// Name of the repository in a folder of git.
const REPOSITORY: &str = "repository.git";

/// A folder with one repository. The folder is removed on drop.
#[derive(Debug)]
pub(crate) struct GitFolder {
    git: PathBuf,
    /// The folder with the programs that git can run. `None` until git's exec path is known.
    programs: Option<PathBuf>,
    search_path: OsString,
    limits: GitLimits,
    memory: Pool,
    requester: String,
    remote: remote::RemoteSettings,
    folder: Arc<ProcessFolder>,
}

impl GitFolder {
    /// Runs a command that contacts the server, which is the remote `origin`. Returns at most
    /// `longest` bytes of the output of the command.
    pub(crate) async fn contact(
        &self,
        arguments: &[&str],
        input: &[u8],
        longest: usize,
    ) -> Result<Vec<u8>, GitError> {
        let process = self.start(arguments, Some(&self.remote)).await?;
        let limit = self.limits.network;
        let output = process.output(self.path(), input, longest, limit).await;
        output.map_err(GitError::from)
    }

    /// Runs a command without network. Returns at most `longest` bytes of its output.
    pub(crate) async fn read(
        &self,
        arguments: &[&str],
        input: &[u8],
        longest: usize,
    ) -> Result<Vec<u8>, GitError> {
        let process = self.start(arguments, None).await?;
        let limit = self.limits.local;
        let output = process.output(self.path(), input, longest, limit).await;
        output.map_err(GitError::from)
    }

    /// Starts a command without network. The caller reads its output while it runs.
    pub(crate) async fn stream(&self, arguments: &[&str]) -> Result<ChildProcess, GitError> {
        self.start(arguments, None).await
    }

    /// Returns the time limit of a command without network.
    pub(crate) fn local_timeout(&self) -> Duration {
        self.limits.local
    }

    /// Reserves the memory of a command, and starts the command.
    async fn start(
        &self,
        arguments: &[&str],
        remote: Option<&remote::RemoteSettings>,
    ) -> Result<ChildProcess, GitError> {
        let wanted = self.limits.command_memory;
        let caps = Budget::half(&self.memory, &self.requester);
        let share = self.memory.take(wanted, caps);
        let memory = match wait_for_share(self.limits.wait, share).await {
            Some(Ok(memory)) => memory,
            Some(Err(error)) => {
                let capacity = error.capacity;
                return Err(GitError::MemoryTooSmall { wanted, capacity });
            }
            None => return Err(GitError::MemoryBusy),
        };
        let used = UsedByProcess {
            _shares: vec![Arc::new(memory)],
            folder: self.folder.clone(),
        };
        let command = ProcessCommand {
            program: self.git.clone(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: self.environment(remote),
            limits: self.limits.of_command(),
        };
        Ok(ChildProcess::start(command, used)?)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns all environment variables of a process. Git reads its configuration only from these
    /// variables.
    fn environment(&self, remote: Option<&remote::RemoteSettings>) -> Vec<(String, OsString)> {
        let home = self.path().join(HOME);
        let mut variables: Vec<(String, OsString)> = [
            ("PATH", self.search_path.clone()),
            ("HOME", home.clone().into()),
            ("XDG_CONFIG_HOME", home.into()),
            ("GIT_DIR", self.path().join(REPOSITORY).into()),
            // For a command without network, the empty value forbids all protocols.
            (
                "GIT_ALLOW_PROTOCOL",
                remote.map_or("", |it| it.protocol).into(),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(programs) = &self.programs {
            variables.push(("GIT_EXEC_PATH".to_owned(), programs.into()));
        }
        variables.extend(VARIABLES.map(|(name, value)| (name.to_owned(), value.into())));
        let mut settings: Vec<(&str, &str)> = SETTINGS.into();
        if let Some(remote) = remote {
            settings.extend(
                remote
                    .settings
                    .iter()
                    .map(|(name, value)| (*name, value.as_str())),
            );
            if let Some(ssh) = &remote.ssh_command {
                variables.push(("GIT_SSH_COMMAND".to_owned(), ssh.into()));
            }
        }
        variables.push((
            "GIT_CONFIG_COUNT".to_owned(),
            settings.len().to_string().into(),
        ));
        for (number, (name, value)) in settings.iter().enumerate() {
            variables.push((format!("GIT_CONFIG_KEY_{number}"), name.into()));
            variables.push((format!("GIT_CONFIG_VALUE_{number}"), value.into()));
        }
        variables
    }
}

const VARIABLES: [(&str, &str); 15] = [
    // More malloc arenas would increase the address space of git.
    ("MALLOC_ARENA_MAX", "1"),
    ("LC_ALL", "C"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_SSH_VARIANT", "ssh"),
];

/// Git settings of every command. The settings prevent git from running other programs, and make
/// git stream large objects.
const SETTINGS: [(&str, &str); 24] = [
    ("protocol.version", "2"),
    ("protocol.file.allow", "never"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.symlinks", "false"),
    ("core.bigFileThreshold", "512k"),
    ("core.packedGitWindowSize", "1m"),
    ("core.packedGitLimit", "16m"),
    ("core.deltaBaseCacheLimit", "8m"),
    ("pack.threads", "1"),
    ("index.threads", "1"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("fetch.unpackLimit", "1"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("submodule.recurse", "false"),
    ("credential.helper", ""),
    ("http.followRedirects", "false"),
    ("http.sslVerify", "true"),
    ("http.proxy", ""),
    ("http.lowSpeedLimit", "1024"),
    ("http.lowSpeedTime", "30"),
    (
        "http.userAgent",
        concat!("bundle-webhook/", env!("CARGO_PKG_VERSION")),
    ),
];

#[cfg(test)]
mod tests;
