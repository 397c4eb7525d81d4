//! Tests of the messages of git sources.

use bundle_core::diagnostic::rendered;

use super::*;
use crate::clients::git::GitFailure;
use crate::sources::git::credentials::GitSecretError;
use crate::sources::git::host::HostError;

#[test]
fn messages_of_git_sources_are_recorded() {
    let repository = GitUrl::parse("https://git.example.com/team/web.git").unwrap();
    let fetch = |error| failed("cannot fetch branch main of", &repository, error);
    let commit = "0123456789abcdef0123456789abcdef01234567".to_owned();
    let failure = |text: &str| fetch(GitError::Failed(GitFailure::new(text.as_bytes())));
    let errors = [
        fetch(GitError::Missing("git")),
        fetch(GitError::Old {
            found: "git version 2.30.2".to_owned(),
        }),
        fetch(GitError::TimedOut(Duration::from_secs(120))),
        failure("fatal: couldn't find remote ref refs/heads/main"),
        failure("Host key verification failed.\nfatal: Could not read from remote repository."),
        failure(
            "fatal: could not read Username for 'https://git.example.com': terminal prompts disabled",
        ),
        failure(
            "fatal: remote error: upload-pack: not our ref 0123456789abcdef0123456789abcdef01234567",
        ),
        fetch(GitError::TooLarge(192 << 20)),
        fetch(GitError::OutOfMemory(24 << 20)),
        fetch(GitError::MemoryTooSmall {
            wanted: 64 << 20,
            capacity: 0,
        }),
        fetch(GitError::MemoryBusy),
        fetch(GitError::FoldersBusy),
        GitSourceError::Content {
            commit: commit.clone(),
            repository: repository.as_str().to_owned(),
            why: "has the symbolic link `manifests/web.yaml`, which is not allowed in a bundle"
                .to_owned(),
        },
        GitSourceError::Changed {
            commit,
            repository: repository.as_str().to_owned(),
            expected: Digest::of(b"1"),
            found: Digest::of(b"2"),
        },
        HostError::NotAllowed {
            host: "git.example.com".to_owned(),
            address: "10.0.0.1".parse().unwrap(),
        }
        .into(),
        GitSecretError::new("git-login").into(),
    ];
    let findings = errors.map(|error| error.finding());
    let text = rendered(&findings);
    assert_eq!(
        text,
        include_str!("messages.txt"),
        "copy the left side to messages.txt"
    );
}
