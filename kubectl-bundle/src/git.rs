//! Where a folder comes from, asked of the `git` on this machine: the only place that runs it.
//! Not here: what is done with the answer (packing).

use std::path::Path;
use std::process::{Command, Stdio};

/// What a checkout says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The remote `origin`, as a URL without credentials.
    pub(crate) source: Option<String>,
    /// The commit, if the files are those of it.
    pub(crate) revision: Option<String>,
    /// What is missing and why, as notes.
    pub(crate) notes: Vec<String>,
}

/// What the checkout around `folder` says, if there is one. `paths` within the folder are what must be as the commit has them.
pub(crate) fn origin(folder: &Path, paths: &[String]) -> Origin {
    let Ok(folder) = fs_err::canonicalize(folder) else {
        return Origin::default();
    };
    // Most folders are in no checkout, and then nothing needs to run.
    if !folder.ancestors().any(|above| above.join(".git").exists()) {
        return Origin::default();
    }
    let mut origin = Origin::default();
    let revision = match run(&folder, &["rev-parse", "--verify", "--quiet", "HEAD"]) {
        Ok(Some(revision)) => revision,
        Ok(None) => {
            origin.notes.push("the folder is in a git checkout that git cannot read or that has no commit yet: neither origin nor commit is recorded".to_owned());
            return origin;
        }
        Err(error) => {
            origin.notes.push(format!(
                "git cannot be run ({error}): neither origin nor commit is recorded"
            ));
            return origin;
        }
    };
    // Not `remote get-url`: it rewrites addresses as this machine is configured.
    if let Ok(Some(url)) = run(
        &folder,
        &["config", "--local", "--get", "remote.origin.url"],
    ) {
        origin.source = public(&url);
        if origin.source.is_none() {
            origin.notes.push(
                "the checkout's origin is no address for others: it is not recorded".to_owned(),
            );
        }
    }
    let mut status = vec![
        "status",
        "--porcelain",
        "--ignored",
        "--untracked-files=all",
        "--ignore-submodules=none",
        "--",
    ];
    status.extend(paths.iter().map(String::as_str));
    match run(&folder, &status) {
        Ok(Some(changes)) if changes.is_empty() => origin.revision = Some(revision),
        Ok(Some(_)) => origin.notes.push(
            "files differ from the commit that is checked out: it is not recorded".to_owned(),
        ),
        _ => origin.notes.push(
            "git does not say whether the files are those of the commit: it is not recorded"
                .to_owned(),
        ),
    }
    origin
}

/// What git answers; `None` if it says no.
fn run(folder: &Path, arguments: &[&str]) -> std::io::Result<Option<String>> {
    let mut command = Command::new("git");
    // No pager, no hook, no helper of the checkout, no question, and paths as they are.
    for setting in [
        "core.pager=cat",
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.quotePath=true",
        "credential.helper=",
    ] {
        command.args(["-c", setting]);
    }
    // Variables that point git somewhere else.
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("GIT_") {
            command.env_remove(&name);
        }
    }
    let output = command
        .args(["--no-optional-locks", "--literal-pathspecs"])
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Ok(None);
    }
    Ok(String::from_utf8(output.stdout)
        .ok()
        .map(|text| text.trim_end().to_owned()))
}

/// An address that others can use, the same however the checkout was made: no credentials, and `https` for what ssh reaches on its usual port.
fn public(address: &str) -> Option<String> {
    let plain = |text: &str| !text.chars().any(|c| c.is_control() || c.is_whitespace());
    if !plain(address) {
        return None;
    }
    if let Some((scheme, rest)) = address.split_once("://") {
        let (place, path) = rest.split_once('/')?;
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        // Tokens hide there too.
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
    // The form of scp: USER@HOST:PATH.
    let (place, path) = address.split_once(':')?;
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    let path = path.trim_start_matches('/');
    let fine = host.contains('.') && !host.contains('/') && !path.is_empty();
    fine.then(|| format!("https://{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_credentials_and_are_the_same_for_everybody() {
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
    fn a_folder_outside_of_any_checkout_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(origin(folder.path(), &[]), Origin::default());
    }
}
