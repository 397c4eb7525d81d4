//! Tests with repositories and servers that try to access other files, hosts or programs.

use std::net::SocketAddr;

use bundle_core::review::source::git::GitHost;
use bundle_oci::registry::{HostAddresses, NameResolver};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::*;

async fn rejected(server: &GitServer, directory: &str) -> String {
    let (code, told) = refused(&open(server, directory, &branch("main")).await).await;
    assert_eq!(code, codes::install::GIT_CONTENT, "{told}");
    told
}

#[tokio::test]
async fn rejects_symbolic_links_submodules_and_pointers() {
    let server = GitServer::start().await;
    let work = server.work();
    let link = |target: &str, path: &str| {
        fs_err::os::unix::fs::symlink(target, work.join(path)).unwrap();
    };
    link("/etc/passwd", "manifests/passwd.yaml");
    server.publish(&[]);
    assert!(
        rejected(&server, "manifests")
            .await
            .contains("has the symbolic link `manifests/passwd.yaml`")
    );
    fs_err::remove_file(work.join("manifests/passwd.yaml")).unwrap();
    submodule(&server);
    server.publish(&[]);
    assert!(
        rejected(&server, "manifests")
            .await
            .contains("has the submodule `manifests/sub`")
    );
    server.git(&["rm", "--quiet", "-f", "manifests/sub"]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    server.publish(&[("manifests/large.yaml", pointer)]);
    assert!(
        rejected(&server, "manifests")
            .await
            .contains("`manifests/large.yaml`, which is a Git LFS pointer")
    );
}

#[tokio::test]
async fn rejects_directories_that_do_not_exist_or_are_links_or_files() {
    let server = GitServer::start().await;
    fs_err::os::unix::fs::symlink("manifests", server.work().join("linked")).unwrap();
    server.publish(&[("dev/manifests/x", "1")]);
    for (directory, part) in [
        ("gone", "has no directory `gone` with files"),
        ("linked", "has the symbolic link `linked`"),
        (
            "linked/web.yaml",
            "has no directory `linked/web.yaml` with files",
        ),
        (
            "README.md",
            "has the file `README.md` in place of the directory",
        ),
        (":(top)", "has no directory `:(top)` with files"),
        ("*", "has no directory `*` with files"),
        ("--", "has no directory `--` with files"),
    ] {
        let told = rejected(&server, directory).await;
        assert!(told.contains(part), "{directory}: {told}");
    }
}

#[tokio::test]
async fn rejects_files_above_the_limits_of_bundles() {
    let server = GitServer::start().await;
    server.publish(&[("manifests/large", &"a".repeat((8 << 20) + 1))]);
    let told = rejected(&server, "manifests").await;
    assert!(
        told.contains("has the file `manifests/large` of more than 8 MiB"),
        "{told}"
    );
}

#[tokio::test]
async fn attributes_and_filters_of_a_repository_have_no_effect() {
    let server = GitServer::start().await;
    server.publish(&[
        (
            ".gitattributes",
            "* text eol=crlf filter=evil ident export-subst\nmanifests/web.yaml export-ignore\n",
        ),
        ("manifests/.gitattributes", "* filter=evil\n"),
        ("manifests/web.yaml", "a: $Id$ $Format:%H$\n"),
    ]);
    let source = open(&server, "manifests", &branch("main")).await;
    let (_, found) = fetched(&source).await.unwrap();
    assert_eq!(found["manifests/web.yaml"], "a: $Id$ $Format:%H$\n");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = GitServer::start().await;
    let other = GitServer::start().await;
    server.set(Behavior {
        redirect: Some(format!("https://127.0.0.1:{}", other.address().port())),
        ..Behavior::default()
    });
    let (code, told) = refused(&open(&server, "manifests", &branch("main")).await).await;
    assert_eq!(code, codes::install::GIT_FAILED);
    assert!(
        told.contains("the server redirects to another URL"),
        "{told}"
    );
    assert_eq!(other.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn servers_without_the_smart_protocol_cannot_name_other_hosts() {
    let server = GitServer::start().await;
    let other = GitServer::start().await;
    server.set(Behavior {
        alternate: Some(format!("{}/objects", other.url())),
        ..Behavior::default()
    });
    let (code, told) = refused(&open(&server, "manifests", &branch("main")).await).await;
    assert_eq!(code, codes::install::GIT_FAILED);
    assert!(told.contains("dumb http transport"), "{told}");
    let requests = server.requests();
    assert!(!requests.is_empty());
    let is_object = |path: &String| path.contains("/objects/");
    assert!(!requests.iter().any(is_object), "{requests:?}");
    assert_eq!(other.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn servers_cannot_name_packs_of_other_hosts() {
    let server = GitServer::start().await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    server.set(Behavior {
        pack_url: Some(format!("https://{}/pack", other.local_addr().unwrap())),
        ..Behavior::default()
    });
    let (code, told) = refused(&open(&server, "manifests", &branch("main")).await).await;
    assert_eq!(code, codes::install::GIT_FAILED, "{told}");
    let error = other.accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let requests = server.requests();
    assert!(
        requests
            .iter()
            .any(|path| path.ends_with("git-upload-pack")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn endless_list_of_refs_ends_at_the_memory_limit() {
    let server = GitServer::start().await;
    server.set(Behavior {
        has_endless_refs: true,
        ..Behavior::default()
    });
    let (code, told) = refused(&open(&server, "manifests", &branch("main")).await).await;
    assert_eq!(code, codes::install::GIT_CONTENT, "{told}");
    assert!(told.contains("MiB of memory"), "{told}");
}

/// Returns a pack with one object of `kind`. The header of the object declares a size of `size`
/// bytes.
fn pack(kind: u8, size: u64) -> Vec<u8> {
    let mut bytes = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
    let mut left = size >> 4;
    let more = |left: u64| if left > 0 { 0x80 } else { 0 };
    bytes.push(more(left) | (kind << 4) | u8::try_from(size & 0xf).unwrap());
    while left > 0 {
        let low = u8::try_from(left & 0x7f).unwrap();
        left >>= 7;
        bytes.push(more(left) | low);
    }
    // The first bytes of a zlib stream.
    bytes.extend([0x78, 0x9c]);
    bytes
}

#[tokio::test]
async fn declared_sizes_of_objects_end_at_the_memory_limit() {
    let server = GitServer::start().await;
    for (kind, name) in [(1, "commit"), (2, "tree"), (4, "tag")] {
        let file = server.folder.path().join(format!("{name}.pack"));
        fs_err::write(&file, pack(kind, 4 << 30)).unwrap();
        server.set(Behavior {
            pack: Some(file),
            ..Behavior::default()
        });
        let (code, told) = refused(&open(&server, "manifests", &branch("main")).await).await;
        assert_eq!(code, codes::install::GIT_CONTENT, "{name}: {told}");
        assert!(
            told.contains("needs more than 24 MiB of memory"),
            "{name}: {told}"
        );
    }
}

/// A resolver that returns a public address and this address for every name.
#[derive(Debug)]
struct OneAddress(&'static str);

impl NameResolver for OneAddress {
    fn resolve(&self, _: &str) -> BoxFuture<'static, HostAddresses> {
        let address: SocketAddr = self.0.parse().unwrap();
        async move { Ok(vec!["203.0.113.9:0".parse().unwrap(), address]) }.boxed()
    }
}

#[tokio::test]
async fn rejects_hosts_with_any_address_that_is_not_public() {
    let name = GitHost::Name("git.example.com".to_owned());
    for address in [
        "127.0.0.1:0",
        "169.254.169.254:0",
        "10.0.0.1:0",
        "[::1]:0",
        "[::ffff:127.0.0.1]:0",
    ] {
        let error = host::addresses(&OneAddress(address), &name, false)
            .await
            .unwrap_err();
        let finding = GitSourceError::from(error).finding();
        assert_eq!(finding.code, codes::install::GIT_ADDRESS, "{address}");
        assert!(
            host::addresses(&OneAddress(address), &name, true)
                .await
                .is_ok()
        );
    }
    assert!(
        host::addresses(&OneAddress("203.0.113.8:0"), &name, false)
            .await
            .is_ok()
    );
    let literal = GitHost::Address("127.0.0.1".parse().unwrap());
    assert!(
        host::addresses(&OneAddress("203.0.113.8:0"), &literal, false)
            .await
            .is_err()
    );
}
