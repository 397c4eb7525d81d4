//! Git origin of a folder, from the `git` command. Only this module runs that command.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::system::process::{self, ProcessError, ProcessGroup, ProcessLimits};

/// Limits of a git command: time, and bytes of stdout and stderr. Even the largest checkouts stay
/// far below the limits.
const LIMITS: ProcessLimits = ProcessLimits {
    time: Duration::from_secs(600),
    output: 256 << 20,
    stderr: 4096,
};

/// Origin of a checkout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GitOrigin {
    /// URL of the remote `origin`, without credentials.
    pub(crate) source: Option<String>,
    /// Commit. `None` if files are modified.
    pub(crate) revision: Option<String>,
    /// Messages for the user: the values that are missing, and the reasons.
    pub(crate) notes: Vec<String>,
}

/// Returns the origin of the checkout that contains `folder`, if `folder` is in a checkout. The
/// commit is included only if `paths` within the folder are unmodified.
pub(crate) fn origin(folder: &Path, paths: &[String]) -> GitOrigin {
    let Ok(folder) = fs_err::canonicalize(folder) else {
        return GitOrigin::default();
    };
    // git is not run for a folder without a checkout, which is the most common case.
    if !folder.ancestors().any(|above| above.join(".git").exists()) {
        return GitOrigin::default();
    }
    let mut origin = GitOrigin::default();
    let revision = match safe_revision(&folder) {
        Ok(revision) => revision,
        Err(why) => {
            let note = format!("{why}: neither origin nor commit is recorded");
            origin.notes.push(note);
            return origin;
        }
    };
    // `git remote get-url` is not used, because this command applies the rewrite rules
    // (`url.*.insteadOf`) of this machine to the URL.
    if let Ok(Some(url)) = run(
        &folder,
        &["config", "--local", "--get", "remote.origin.url"],
    ) {
        origin.source = public(&url);
        if origin.source.is_none() {
            origin.notes.push(
                "the origin of the git checkout is not a public URL, so the URL is not recorded"
                    .to_owned(),
            );
        }
    }
    let mut status = vec![
        "status",
        "--porcelain",
        "--ignored",
        "--untracked-files=all",
        "--ignore-submodules=all",
        "--",
    ];
    status.extend(paths.iter().map(String::as_str));
    match run(&folder, &status) {
        Ok(Some(changes)) if changes.is_empty() => origin.revision = Some(revision),
        Ok(Some(_)) => origin.notes.push(
            "files differ from the commit of the git checkout, so the commit is not recorded"
                .to_owned(),
        ),
        _ => origin.notes.push(
            "git cannot compare the files with the commit, so the commit is not recorded"
                .to_owned(),
        ),
    }
    origin
}

/// Returns the commit of the checkout. The error is the reason why git cannot read the checkout, or
/// why it is unsafe to run git in the checkout.
fn safe_revision(folder: &Path) -> Result<String, String> {
    let settings = required(
        folder,
        &[
            "config",
            "--includes",
            "--show-scope",
            "--name-only",
            "--list",
        ],
        "git cannot read the settings of the checkout of the folder",
    )?;
    if settings.lines().any(runs_programs) {
        let why = "the settings of the git checkout run programs, so git is not used";
        return Err(why.to_owned());
    }
    required(
        folder,
        &["rev-parse", "--verify", "--quiet", "HEAD"],
        "git cannot read the checkout of the folder, or it has no commit",
    )
}

/// Returns git's output. The error is `failure` if git fails, or the reason why git cannot run.
fn required(folder: &Path, arguments: &[&str], failure: &str) -> Result<String, String> {
    match run(folder, arguments) {
        Ok(Some(output)) => Ok(output),
        Ok(None) => Err(failure.to_owned()),
        Err(error) => Err(format!("cannot run git ({error})")),
    }
}

/// Returns `true` if `setting` (`SCOPE<tab>NAME`) of the untrusted checkout is unsafe. With an
/// unsafe setting, git runs a program, or fetches from a remote, when git reads files.
fn runs_programs(setting: &str) -> bool {
    let Some((scope, name)) = setting.split_once('\t') else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let remote = name.starts_with("remote.")
        && [".promisor", ".partialclonefilter", ".uploadpack"]
            .iter()
            .any(|ending| name.ends_with(ending));
    matches!(scope, "local" | "worktree")
        && (name.starts_with("filter.") || name == "extensions.partialclone" || remote)
}

/// Returns git's output; `None` if git fails.
fn run(folder: &Path, arguments: &[&str]) -> io::Result<Option<String>> {
    let mut command = Command::new("git");
    // These settings disable the pager, hooks, helpers and prompts, and the quoting of paths.
    for setting in [
        "core.pager=cat",
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.quotePath=true",
        "credential.helper=",
        "core.sshCommand=false",
        // The untrusted checkout can contain a bare repository whose configuration runs programs.
        // With this setting, git rejects the bare repository.
        "safe.bareRepository=explicit",
    ] {
        command.args(["-c", setting]);
    }
    // Removes the environment variables that can make git use another repository.
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("GIT_") {
            command.env_remove(&name);
        }
    }
    crate::system::secrets::remove_secrets(&mut command);
    command
        .args(["--no-optional-locks", "--literal-pathspecs"])
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_SSH_COMMAND", "false")
        .env("LC_ALL", "C");
    let finished = match process::run(command, None, ProcessGroup::Shared, LIMITS) {
        Ok(finished) => finished,
        Err(ProcessError::Io(error)) => return Err(error),
        Err(ProcessError::Timeout) => return Err(io::Error::other("it exceeded the timeout")),
        Err(ProcessError::OutputLimit) => return Err(io::Error::other("its output is too long")),
    };
    if !finished.status.success() {
        return Ok(None);
    }
    Ok(String::from_utf8(finished.output)
        .ok()
        .map(|text| text.trim_end().to_owned()))
}

/// Converts the address of a remote to a public URL without credentials and query. An ssh address
/// with the default port becomes an `https` URL, so that clones with both protocols record the same
/// URL. Returns `None` if the address has no public form.
fn public(address: &str) -> Option<String> {
    let plain = |text: &str| !text.chars().any(|c| c.is_control() || c.is_whitespace());
    if !plain(address) {
        return None;
    }
    if let Some((scheme, rest)) = address.split_once("://") {
        let (authority, path) = rest.split_once('/')?;
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        // The query may contain tokens, so the query is removed.
        let path = path.split(['?', '#']).next().unwrap_or_default();
        if host.is_empty() || path.is_empty() {
            return None;
        }
        return match scheme {
            "ssh" | "git+ssh" if !host.contains(':') => Some(format!("https://{host}/{path}")),
            "https" | "http" | "git" | "ssh" | "git+ssh" => {
                Some(format!("{scheme}://{host}/{path}"))
            }
            _ => None,
        };
    }
    // scp syntax: USER@HOST:PATH.
    let (authority, path) = address.split_once(':')?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let path = path.trim_start_matches('/');
    let fine = host.contains('.') && !host.contains('/') && !path.is_empty();
    fine.then(|| format!("https://{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_not_run_in_a_checkout_whose_settings_run_programs() {
        for setting in [
            "local\tfilter.x.clean",
            "worktree\tfilter.LFS.process",
            "local\textensions.partialClone",
            "local\tremote.origin.promisor",
        ] {
            assert!(runs_programs(setting), "{setting}");
        }
        for setting in [
            "global\tfilter.lfs.clean",
            "local\tremote.origin.url",
            "local\tcore.bare",
            "",
        ] {
            assert!(!runs_programs(setting), "{setting}");
        }
    }

    #[test]
    fn origin_urls_have_no_credentials_and_one_form() {
        let web = Some("https://git.example.com/team/web.git".to_owned());
        for address in [
            "https://git.example.com/team/web.git",
            "https://user:token@git.example.com/team/web.git?private_token=x",
            "git@git.example.com:team/web.git",
            "git@git.example.com:/team/web.git",
            "ssh://git@git.example.com/team/web.git",
        ] {
            assert_eq!(public(address), web, "{address}");
        }
        assert_eq!(
            public("ssh://git@git.example.com:2222/a").as_deref(),
            Some("ssh://git.example.com:2222/a")
        );
        for address in [
            "/srv/git/web",
            "../web",
            "C:\\web",
            "file:///srv/web",
            "",
            "https://a b/c",
        ] {
            assert_eq!(public(address), None, "{address}");
        }
    }

    #[test]
    fn folder_outside_of_a_checkout_has_no_origin() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(origin(folder.path(), &[]), GitOrigin::default());
    }
}
