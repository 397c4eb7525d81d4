//! Tests of the real git program with a real server over https: revisions, credentials, changed
//! refs, and content that is not a bundle.

mod hostile;
mod limits;
mod messages;
mod server;

use std::time::Duration;

use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::retry::source::SourceFailure;
use bundle_core::review::source::Auth;
use bundle_oci::unpack::InMemory;
use http::{Request, Response};
use kube::Api;
use kube::client::Body;
use zeroize::Zeroizing;

use self::server::{Behavior, GitServer, run};
use super::*;
use crate::budget::Pool;
use crate::clients::git::{GitCredentials, GitLimits, GitProgram, GitRemote, ServerVerification};
use crate::clients::names::LimitedResolver;

fn branch(name: &str) -> GitRef {
    GitRef::Branch(name.to_owned())
}

/// Returns the git program, with a folder next to the repositories of `server`.
fn program(server: &GitServer, limits: GitLimits) -> Arc<GitProgram> {
    let authority = server.folder.path().join("ca.pem");
    let path = std::env::var_os("PATH").unwrap();
    Arc::new(GitProgram::new(
        cache(server),
        path,
        Some(authority),
        Pool::new(64 << 20),
        limits,
    ))
}

fn cache(server: &GitServer) -> std::path::PathBuf {
    server.folder.path().join("cache")
}

/// Opens a source as the reconciler does, with these credentials.
async fn open_with(
    server: &GitServer,
    program: &Arc<GitProgram>,
    checkout: (&str, &GitRef),
    login: Option<(&str, &str)>,
) -> GitSource {
    open_for("ana", server, program, checkout, login).await
}

async fn open_for(
    requester: &str,
    server: &GitServer,
    program: &Arc<GitProgram>,
    (directory, checkout): (&str, &GitRef),
    login: Option<(&str, &str)>,
) -> GitSource {
    let repository = GitUrl::parse(&server.url()).unwrap();
    let remote = GitRemote {
        url: repository,
        addresses: vec![server.address().ip()],
        credentials: login.map(|(username, password)| GitCredentials::Basic {
            username: username.to_owned(),
            password: Zeroizing::new(password.to_owned()),
        }),
        verification: ServerVerification::Required,
    };
    let folder = program.repository(requester, remote).await.unwrap();
    in_folder(folder, requester, server, program, (directory, checkout))
}

/// Returns a source that works in `folder`.
fn in_folder(
    folder: GitFolder,
    requester: &str,
    server: &GitServer,
    program: &Arc<GitProgram>,
    (directory, checkout): (&str, &GitRef),
) -> GitSource {
    let repository = GitUrl::parse(&server.url()).unwrap();
    let (service, _) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    GitSource {
        source: Source::Git {
            repository: repository.clone(),
            directory: directory.to_owned(),
            checkout: checkout.clone(),
            auth: Auth::default(),
        },
        repository,
        directory: directory.to_owned(),
        checkout: checkout.clone(),
        access: GitAccess {
            program: program.clone(),
            resolver: LimitedResolver::default(),
            secrets: Api::namespaced(kube::Client::new(service, "sys"), "sys"),
            secret: None,
            allows_private: true,
            verification: ServerVerification::Required,
            requester: requester.to_owned(),
        },
        folder: OnceCell::new_with(Some(folder)),
        fetched: Mutex::default(),
    }
}

async fn open(server: &GitServer, directory: &str, checkout: &GitRef) -> GitSource {
    let program = program(server, GitLimits::default());
    open_with(server, &program, (directory, checkout), None).await
}

/// Resolves and fetches a source. Returns the content and its files.
async fn fetched(source: &GitSource) -> Result<(ContentId, BTreeMap<String, String>), SourceError> {
    let id = source.resolve().await?;
    let (files, _) = source.fetch(&id, InMemory::default()).await?;
    let files = files.into_iter();
    let files = files.map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap()));
    Ok((id, files.collect()))
}

/// Returns the failure to fetch a source.
async fn error_of(source: &GitSource) -> GitSourceError {
    match fetched(source).await.unwrap_err() {
        SourceError::Git(error) => error,
        other => panic!("another kind of error: {other}"),
    }
}

/// Returns the code and the message of the failure to fetch a source.
async fn refused(source: &GitSource) -> (Code, String) {
    let error = error_of(source).await;
    let finding = error.finding();
    assert!(finding.hint.is_some());
    (finding.code, finding.message)
}

fn files(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    let expected = expected.iter();
    expected
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

#[tokio::test]
async fn branches_tags_and_commits_resolve_to_their_commit() {
    let server = GitServer::start().await;
    let first = server.git(&["rev-parse", "HEAD"]);
    server.git(&["tag", "light"]);
    server.git(&["tag", "--annotate", "-m", "x", "v1.0.0"]);
    let second = server.publish(&[("manifests/web.yaml", "a: 2\n")]);
    for (checkout, commit, text) in [
        (branch("main"), &second, "a: 2\n"),
        (GitRef::Tag("light".to_owned()), &first, "a: 1\n"),
        (GitRef::Tag("v1.0.0".to_owned()), &first, "a: 1\n"),
        (GitRef::Commit(first.clone()), &first, "a: 1\n"),
        (GitRef::Commit(second.clone()), &second, "a: 2\n"),
    ] {
        let source = open(&server, "manifests", &checkout).await;
        let (id, found) = fetched(&source).await.unwrap();
        assert_eq!(id.commit(), Some(commit.as_str()), "{checkout:?}");
        // The root of the repository also has a README, which is not part of the bundle.
        assert_eq!(found, files(&[("manifests/web.yaml", text)]));
        let count = ["rev-list", "--all", "--count"];
        let count = source
            .folder()
            .await
            .unwrap()
            .read(&count, &[], 100)
            .await
            .unwrap();
        assert_eq!(count, b"1\n");
        assert_eq!(source.changed(&id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn directory_is_the_root_of_the_bundle_and_a_chart_is_the_whole_repository() {
    let server = GitServer::start().await;
    server.publish(&[
        ("bundle.yaml", "name: web\n"),
        ("metadata/annotations.yaml", "b: 1\n"),
        ("dev/deploy/manifests/x.yaml", "c: 1\n"),
        ("dev/deploy/empty", ""),
        ("dev/deploy2/y", ""),
    ]);
    let (_, root) = fetched(&open(&server, "manifests", &branch("main")).await)
        .await
        .unwrap();
    let paths: Vec<_> = root.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "bundle.yaml",
            "manifests/web.yaml",
            "metadata/annotations.yaml"
        ]
    );
    let (_, inner) = fetched(&open(&server, "dev/deploy", &branch("main")).await)
        .await
        .unwrap();
    assert_eq!(
        inner,
        files(&[("empty", ""), ("manifests/x.yaml", "c: 1\n")])
    );
    server.publish(&[("Chart.yaml", "name: web\n")]);
    let (_, chart) = fetched(&open(&server, "", &branch("main")).await)
        .await
        .unwrap();
    assert!(chart.contains_key("README.md") && chart.contains_key("dev/deploy2/y"));
}

#[tokio::test]
async fn servers_without_filters_serve_the_same_content() {
    let server = GitServer::start().await;
    let (with, _) = fetched(&open(&server, "manifests", &branch("main")).await)
        .await
        .unwrap();
    let filtered = server.requests().len();
    server.configure("uploadpack.allowFilter", "false");
    let (without, _) = fetched(&open(&server, "manifests", &branch("main")).await)
        .await
        .unwrap();
    assert_eq!(with, without);
    // The files are fetched together with the commit, so fewer requests are needed.
    assert!(server.requests().len() - filtered < filtered);
}

#[tokio::test]
async fn digest_is_that_of_the_files_and_not_of_the_commit() {
    let server = GitServer::start().await;
    let source = open(&server, "manifests", &branch("main")).await;
    let id = source.resolve().await.unwrap();
    // The next commit changes only a file outside of the bundle.
    server.publish(&[("README.md", "more\n")]);
    assert_eq!(source.changed(&id).await.unwrap(), None);
    let now = source.resolve().await.unwrap();
    assert_eq!(now.digest(), id.digest());
    assert_ne!(now.commit(), id.commit());
    server.publish(&[("manifests/web.yaml", "a: 2\n")]);
    let moved = source.changed(&id).await.unwrap().unwrap();
    assert_ne!(moved.digest(), id.digest());
}

#[tokio::test]
async fn rewritten_branch_and_moved_tag_never_replace_the_recorded_commit() {
    let server = GitServer::start().await;
    server.git(&["tag", "v1"]);
    server.push();
    for checkout in [branch("main"), GitRef::Tag("v1".to_owned())] {
        let source = open(&server, "manifests", &checkout).await;
        let (recorded, first) = fetched(&source).await.unwrap();
        server.write(&[("manifests/web.yaml", &format!("{checkout:?}"))]);
        server.git(&["add", "--all"]);
        server.git(&["commit", "--quiet", "--amend", "-m", "rewritten"]);
        server.git(&["tag", "--force", "v1"]);
        server.push();
        let now = source.changed(&recorded).await.unwrap().unwrap();
        assert_ne!(now.commit(), recorded.commit());
        // The server still has the recorded commit.
        let again = open(&server, "manifests", &checkout).await;
        let (found, _) = again.fetch(&recorded, InMemory::default()).await.unwrap();
        assert_eq!(
            found["manifests/web.yaml"],
            first["manifests/web.yaml"].as_bytes()
        );
        // The server no longer has the recorded commit.
        server.prune();
        let gone = open(&server, "manifests", &checkout).await;
        let error = gone
            .fetch(&recorded, InMemory::default())
            .await
            .err()
            .unwrap();
        let SourceError::Git(error) = error else {
            panic!("{error}");
        };
        assert_eq!(error.finding().code, codes::install::GIT_FAILED);
        let told = error.to_string();
        assert!(
            told.contains("the server does not serve the commit"),
            "{told}"
        );
        assert!(told.contains(recorded.commit().unwrap()), "{told}");
    }
}

#[tokio::test]
async fn other_files_under_the_recorded_commit_are_rejected() {
    let server = GitServer::start().await;
    let source = open(&server, "manifests", &branch("main")).await;
    let id = source.resolve().await.unwrap();
    let other = ContentId::new(id.source(), Digest::of(b"other"));
    let error = source
        .fetch(&other, InMemory::default())
        .await
        .err()
        .unwrap();
    let SourceError::Git(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.finding().code, codes::install::CONTENT_CHANGED);
    assert!(error.to_string().contains(id.digest().as_str()));
}

#[tokio::test]
async fn credentials_reach_the_server_and_no_message() {
    let server = GitServer::start().await;
    server.set(Behavior {
        login: Some(("ana".to_owned(), "s3cret-token".to_owned())),
        ..Behavior::default()
    });
    let program = program(&server, GitLimits::default());
    let main = branch("main");
    let login = Some(("ana", "s3cret-token"));
    let source = open_with(&server, &program, ("manifests", &main), login).await;
    assert!(fetched(&source).await.is_ok());
    drop(source);
    for login in [None, Some(("ana", "wr0ng-token"))] {
        let source = open_with(&server, &program, ("manifests", &main), login).await;
        let (code, told) = refused(&source).await;
        assert_eq!(code, codes::install::GIT_FAILED);
        assert!(told.contains("the server denies access"), "{told}");
        assert!(!told.contains("token"), "{told}");
    }
}

#[tokio::test]
async fn missing_refs_and_repositories_are_reported() {
    let server = GitServer::start().await;
    for (checkout, part) in [
        (branch("gone"), "couldn't find remote ref refs/heads/gone"),
        (
            GitRef::Tag("gone".to_owned()),
            "couldn't find remote ref refs/tags/gone",
        ),
        (
            GitRef::Commit("a".repeat(40)),
            "the server does not serve the commit",
        ),
    ] {
        let error = error_of(&open(&server, "manifests", &checkout).await).await;
        assert_eq!(error.failure(), SourceFailure::Content);
        let finding = error.finding();
        assert_eq!(finding.code, codes::install::GIT_FAILED);
        let told = finding.message;
        assert!(told.contains(part), "{told}");
        assert!(
            told.starts_with("source bundle content: git cannot fetch"),
            "{told}"
        );
    }
    // The hash of a file is not a commit.
    let blob = server.git(&["rev-parse", "HEAD:manifests/web.yaml"]);
    let (code, told) = refused(&open(&server, "manifests", &GitRef::Commit(blob)).await).await;
    assert!(
        told.contains("does not name a commit") || code == codes::install::GIT_FAILED,
        "{told}"
    );
}

#[tokio::test]
async fn server_without_trusted_certificate_is_rejected() {
    let server = GitServer::start().await;
    let path = std::env::var_os("PATH").unwrap();
    let (memory, limits) = (Pool::new(64 << 20), GitLimits::default());
    let program = GitProgram::new(cache(&server), path, None, memory, limits);
    let program = Arc::new(program);
    let source = open_with(&server, &program, ("manifests", &branch("main")), None).await;
    let (code, told) = refused(&source).await;
    assert_eq!(code, codes::install::GIT_FAILED);
    assert!(
        told.contains("certificate of the server is not trusted"),
        "{told}"
    );
    assert_eq!(server.requests(), Vec::<String>::new());

    drop(source);
    // Without verification, the same server serves the content.
    let remote = GitRemote {
        url: GitUrl::parse(&server.url()).unwrap(),
        addresses: vec![server.address().ip()],
        credentials: None,
        verification: ServerVerification::Skipped,
    };
    let folder = program.repository("ana", remote).await.unwrap();
    let main = branch("main");
    let source = in_folder(folder, "ana", &server, &program, ("manifests", &main));
    let (_, found) = fetched(&source).await.unwrap();
    assert_eq!(found, files(&[("manifests/web.yaml", "a: 1\n")]));
}

/// Adds a repository to the working folder as submodule `manifests/sub`.
fn submodule(server: &GitServer) {
    run(
        &server.work(),
        &[
            "submodule",
            "--quiet",
            "add",
            "../served/web.git",
            "manifests/sub",
        ],
    );
}
