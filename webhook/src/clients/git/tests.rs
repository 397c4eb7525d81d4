//! Tests of the isolation of git from existing configuration and from other protocols.

use bundle_core::review::source::git::GitUrl;

use super::*;

fn remote(url: &str, credentials: Option<GitCredentials>) -> GitRemote {
    GitRemote {
        url: GitUrl::parse(url).unwrap(),
        addresses: vec!["127.0.0.1".parse().unwrap()],
        credentials,
        verification: ServerVerification::Required,
    }
}

/// Returns a memory pool for git.
fn memory() -> Pool {
    Pool::new(64 << 20)
}

fn program(folder: &Path) -> GitProgram {
    let path = std::env::var_os("PATH").unwrap();
    GitProgram::new(
        folder.join("git"),
        path,
        None,
        memory(),
        GitLimits::default(),
    )
}

#[tokio::test]
async fn no_configuration_of_user_or_system_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let remote = remote("https://git.example.com/web", None);
    let repository = program.repository("ana", remote).await.unwrap();
    let arguments = ["config", "--list", "--show-scope", "--name-only"];
    let listed = repository.contact(&arguments, &[], 64 << 10).await.unwrap();
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.contains("command\thttp.followredirects"), "{listed}");
    assert!(listed.contains("command\tremote.origin.url"), "{listed}");
    for line in listed.lines() {
        let (scope, name) = line.split_once('\t').unwrap();
        let is_own = scope == "command" || (scope == "local" && name.starts_with("core."));
        assert!(is_own, "{line}");
    }
}

#[tokio::test]
async fn only_the_protocol_of_the_url_is_allowed_and_none_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let remote = remote("https://git.example.com/web", None);
    let repository = program.repository("ana", remote).await.unwrap();
    let other = format!("file://{}", folder.path().display());
    for url in [
        other.as_str(),
        "ext::sh -c id",
        "http://127.0.0.1:1/x",
        "ssh://git@127.0.0.1:1/x",
    ] {
        let told = repository.contact(&["ls-remote", url], &[], 1000).await;
        let told = told.unwrap_err().to_string();
        assert!(told.contains("not allowed"), "{url}: {told}");
    }
    let told = repository
        .read(&["ls-remote", "https://127.0.0.1:1/x"], &[], 1000)
        .await;
    let told = told.unwrap_err().to_string();
    assert!(told.contains("transport 'https' not allowed"), "{told}");
}

#[tokio::test]
async fn keys_of_ssh_are_files_that_only_this_user_can_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let credentials = GitCredentials::Ssh {
        private_key: zeroize::Zeroizing::new(b"a key without newline".to_vec()),
        known_hosts: b"git.example.com ssh-ed25519 AAAA\n".to_vec(),
    };
    let remote = remote("git@git.example.com:web", Some(credentials));
    let repository = program.repository("ana", remote).await.unwrap();
    for (name, text) in [
        ("key", "a key without newline\n"),
        ("known_hosts", "git.example.com ssh-ed25519 AAAA\n"),
    ] {
        let path = repository.path().join(name);
        assert_eq!(fs_err::read_to_string(&path).unwrap(), text);
        assert_eq!(
            fs_err::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    let command = repository.remote.ssh_command.clone().unwrap();
    assert!(!command.contains("a key"));
    assert!(
        command.contains(
            "-o 'HostName=127.0.0.1' -o 'HostKeyAlias=git.example.com' -o 'StrictHostKeyChecking=yes'"
        ),
        "{command}"
    );
    let path = repository.path().to_owned();
    drop(repository);
    let removed = async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    };
    let removed = tokio::time::timeout(std::time::Duration::from_secs(30), removed);
    removed.await.unwrap();
}

#[tokio::test]
async fn ssh_accepts_every_host_key_only_without_verification() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    for (verification, expected) in [
        (ServerVerification::Required, "yes"),
        (ServerVerification::Skipped, "no"),
    ] {
        let credentials = GitCredentials::Ssh {
            private_key: zeroize::Zeroizing::new(b"a key".to_vec()),
            known_hosts: b"git.example.com ssh-ed25519 AAAA\n".to_vec(),
        };
        let remote = GitRemote {
            verification,
            ..remote("git@git.example.com:web", Some(credentials))
        };
        let repository = program.repository("ana", remote).await.unwrap();
        let command = repository.remote.ssh_command.clone().unwrap();
        let check = format!("'StrictHostKeyChecking={expected}'");
        assert!(command.contains(&check), "{command}");
        let is_skipped = verification == ServerVerification::Skipped;
        let ignores_keys = command.contains("'UserKnownHostsFile=/dev/null'");
        assert_eq!(ignores_keys, is_skipped, "{command}");
        assert_eq!(command.matches("StrictHostKeyChecking").count(), 1);
    }
}

#[tokio::test]
async fn missing_program_and_leftovers_of_earlier_processes_are_handled() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("git").join("repository-old");
    fs_err::create_dir_all(&left).unwrap();
    let none = folder.path().join("none").into();
    let limits = GitLimits::default();
    let program = GitProgram::new(folder.path().join("git"), none, None, memory(), limits);
    assert!(!left.exists());
    let remote = remote("https://git.example.com/web", None);
    let error = program.repository("ana", remote).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this pod has no `git` program, which sources of type git require"
    );
    assert_eq!(
        error.finding(String::new()).code,
        codes::install::GIT_MISSING
    );
}

#[tokio::test]
async fn versions_that_ignore_the_checked_addresses_are_rejected() {
    for (printed, is_supported) in [
        ("git version 2.36.6", false),
        ("git version 1.99", false),
        ("git version 2.37.0", true),
        ("git version 2.50.1 (Apple Git-155)", true),
        ("git version 3.0.rc1", true),
        ("git version next", false),
        ("another program", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join("git");
        // Another process writes the script. If this process wrote the script, its execution could
        // fail with ETXTBSY.
        let script = r#"printf '#!/bin/sh\n[ "$1" != version ] || echo "%s"\n' "$1" > "$2" && chmod 700 "$2""#;
        let mut write = std::process::Command::new("sh");
        write.args(["-c", script, "sh", printed]).arg(&git);
        assert!(write.status().unwrap().success());
        let (path, limits) = (folder.path().into(), GitLimits::default());
        let cache = folder.path().join("cache");
        let program = GitProgram::new(cache, path, None, memory(), limits);
        let remote = remote("https://git.example.com/web", None);
        let created = program.repository("ana", remote).await;
        assert_eq!(
            created.as_ref().err().map(ToString::to_string),
            (!is_supported).then(|| format!(
                "this pod has `{printed}`, and sources of type git require git 2.37 or later"
            ))
        );
    }
}

#[tokio::test]
async fn processes_have_limits_of_memory_files_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let remote = remote("https://git.example.com/web", None);
    let repository = program.repository("ana", remote).await.unwrap();
    let alias = ["-c", "alias.limits=!cat /proc/self/limits", "limits"];
    let shown = repository.read(&alias, &[], 64 << 10).await.unwrap();
    let shown = String::from_utf8(shown).unwrap();
    for (name, limit) in [
        ("Max data size", 24 << 20),
        ("Max address space", 128 << 20),
        ("Max stack size", 1 << 20),
        ("Max file size", 192 << 20),
        ("Max core file size", 0),
        ("Max cpu time", 60),
    ] {
        let line = shown.lines().find_map(|line| line.strip_prefix(name));
        let values: Vec<_> = line.unwrap().split_whitespace().take(2).collect();
        let limit = limit.to_string();
        assert_eq!(values, [limit.as_str(), limit.as_str()], "{name}");
    }
}

#[tokio::test]
async fn commands_reserve_memory_while_they_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let memory = memory();
    let limits = GitLimits {
        wait: std::time::Duration::from_millis(100),
        ..GitLimits::default()
    };
    let program = GitProgram::new(
        folder.path().join("git"),
        path,
        None,
        memory.clone(),
        limits,
    );
    let remote = remote("https://git.example.com/web", None);
    let repository = program.repository("ana", remote).await.unwrap();
    assert_eq!(memory.used(), 0);
    let running = repository.stream(&["cat-file", "--batch"]).await.unwrap();
    assert_eq!(memory.used(), 32 << 20);
    let all = memory.take(memory.capacity() - memory.used(), Vec::new());
    let all = all.await.unwrap();
    let error = repository.stream(&["version"]).await.err().unwrap();
    assert_eq!(
        error.finding(String::new()).code,
        codes::install::MEMORY_BUSY
    );
    drop(all);
    drop(running);
    // The memory is free after the killed process has ended.
    memory.take(memory.capacity(), Vec::new()).await.unwrap();
}

#[tokio::test]
async fn pods_with_too_little_memory_report_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let (memory, limits) = (Pool::new(63 << 20), GitLimits::default());
    let program = GitProgram::new(folder.path().join("git"), path, None, memory, limits);
    let remote = remote("https://git.example.com/web", None);
    let error = program.repository("ana", remote).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "git needs 64 MiB of memory, but the pod has only 63 MiB for git"
    );
    assert_eq!(
        error.finding(String::new()).code,
        codes::install::CONTENT_TOO_LARGE
    );
}
