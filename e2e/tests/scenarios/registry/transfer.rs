//! Content of any size with real registries: uploaded once, mounted, copied, and resumed after an
//! interruption. `bundle-testkit` has registries with faults.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bundle_oci::blob::{Blob, FilePart};
use bundle_oci::hash::Hasher;
use bundle_oci::manifest::{Descriptor, RawManifest};
use bundle_oci::registry::{Client, ClientOptions, Deadlines, Repository, UploadResult};
use e2e::ToolEnvironment;
use e2e::registry::{RegistryOptions, RegistryProgram};
use futures::StreamExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const SIZE: u64 = 64 << 20;

fn client() -> Client {
    Client::new(ClientOptions {
        deadlines: Deadlines {
            pause: Duration::from_millis(50),
            ..Deadlines::default()
        },
        ..ClientOptions::default()
    })
    .unwrap()
}

/// Writes a file of 64 MiB that is not compressible.
fn large(path: &Path) -> Blob {
    let mut hasher = Hasher::new();
    let mut content = Vec::with_capacity(usize::try_from(SIZE).unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while content.len() as u64 != SIZE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    hasher.update(&content);
    fs_err::write(path, &content).unwrap();
    let descriptor = Descriptor {
        digest: hasher.finish(),
        size: SIZE,
        ..Descriptor::of("application/octet-stream", b"")
    };
    Blob::file(descriptor, FilePart::new(path, 0))
}

/// Reads a whole blob; the client verifies its digest.
async fn read(client: &Client, from: &Repository, blob: &Blob) {
    let mut reader = client.blob(from, &blob.descriptor);
    let mut count = 0;
    while let Some(piece) = reader.next().await {
        count += piece.unwrap().len() as u64;
    }
    assert_eq!(count, SIZE);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_and_pulls_large_content_with_real_registries() {
    let bench = ToolEnvironment::new().unwrap();
    let distribution = bench.registry().await.unwrap();
    let crane = RegistryOptions {
        program: RegistryProgram::Crane,
        ..RegistryOptions::default()
    };
    let crane = bench.registry_with(crane).await.unwrap();
    let blob = large(&bench.folder().join("large"));
    let client = client();
    let mut homes = Vec::new();
    for registry in [&distribution, &crane] {
        let home: Repository = registry.reference("team/large").parse().unwrap();
        let sent = client.upload(&home, &blob, None).await.unwrap();
        assert_eq!(sent, UploadResult::Sent);
        let again = client.upload(&home, &blob, None).await.unwrap();
        assert_eq!(again, UploadResult::Present);
        read(&client, &home, &blob).await;
        homes.push(home);
    }
    let next_door: Repository = distribution.reference("other/large").parse().unwrap();
    let mounted = client.upload(&next_door, &blob, Some(&homes[0])).await;
    assert_eq!(mounted.unwrap(), UploadResult::Mounted);
    read(&client, &next_door, &blob).await;

    // The blob is copied from one registry to the other without a file.
    let other: Repository = distribution.reference("copied/large").parse().unwrap();
    let remote = client.remote_blob(&homes[1], &blob.descriptor);
    let sent = client.upload(&other, &remote, None).await.unwrap();
    assert_eq!(sent, UploadResult::Sent);
    read(&client, &other, &blob).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfer_resumes() {
    let bench = ToolEnvironment::new().unwrap();
    let registry = bench.registry().await.unwrap();
    let blob = large(&bench.folder().join("large"));
    let line = InterruptibleConnection::to(registry.host().parse().unwrap()).await;
    let home: Repository = format!("{}/team/large", line.address).parse().unwrap();
    let client = client();

    line.cut_after(SIZE / 2);
    let sent = client.upload(&home, &blob, None).await.unwrap();
    assert_eq!(sent, UploadResult::Sent);
    let up = line.carried.swap(0, Ordering::Relaxed);
    // Only the bytes that were in the buffers of the connection are sent again.
    assert!(up < SIZE + SIZE / 4, "{up} bytes for {SIZE}");

    line.cut_after(SIZE / 2);
    read(&client, &home, &blob).await;
    let down = line.carried.swap(0, Ordering::Relaxed);
    assert!(down < SIZE + SIZE / 4, "{down} bytes for {SIZE}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_documents_of_their_subject() {
    let bench = ToolEnvironment::new().unwrap();
    let client = client();
    for program in [RegistryProgram::Distribution, RegistryProgram::Crane] {
        let terms = RegistryOptions {
            program,
            ..RegistryOptions::default()
        };
        let registry = bench.registry_with(terms).await.unwrap();
        let home: Repository = registry.reference("team/web").parse().unwrap();
        let config = Blob::new("application/vnd.oci.empty.v1+json", "{}");
        client.upload(&home, &config, None).await.unwrap();
        let manifest = |extra: &str| {
            let config = serde_json::to_string(&config.descriptor).unwrap();
            let text = format!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{config},"layers":[{config}]{extra}}}"#
            );
            RawManifest::new(None, text).unwrap()
        };
        let subject = manifest("");
        client
            .put_raw_manifest(&home, "1.0.0", &subject)
            .await
            .unwrap();
        let of = serde_json::to_string(&subject.descriptor()).unwrap();
        let mut expected = Vec::new();
        for kind in ["sbom", "scan"] {
            let about = manifest(&format!(
                r#","artifactType":"application/vnd.example.{kind}","subject":{of}"#
            ));
            let name = about.digest.as_str();
            let stored = client.put_raw_manifest(&home, name, &about).await.unwrap();
            // The registries do not return the header `OCI-Subject`, although crane lists the
            // referrer. Therefore the client writes the fallback tag, as the specification
            // requires.
            assert!(stored.list.is_some(), "{program:?}");
            expected.push(about.digest);
        }
        let listed = client.referrers(&home, &subject.digest).await.unwrap();
        let mut listed: Vec<_> = listed.into_iter().map(|entry| entry.digest).collect();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected, "{program:?}");
        let read = client.raw_manifest(&home, "1.0.0").await.unwrap();
        assert_eq!(read, subject);
        let tags = client.tags(&home).await.unwrap();
        assert!(tags.contains(&"1.0.0".to_owned()), "{tags:?}");
    }
}

/// A TCP proxy for a registry. Tests can close its connections.
struct InterruptibleConnection {
    address: SocketAddr,
    /// Number of bytes in both directions.
    carried: Arc<AtomicU64>,
    /// Number of bytes until a connection is closed. After the connection was closed, the value is
    /// `u64::MAX`.
    fuse: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl InterruptibleConnection {
    async fn to(registry: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let carried = Arc::new(AtomicU64::new(0));
        let fuse = Arc::new(AtomicU64::new(u64::MAX));
        let (count, limit) = (Arc::clone(&carried), Arc::clone(&fuse));
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(registry).await else {
                    continue;
                };
                let (count, limit) = (Arc::clone(&count), Arc::clone(&limit));
                tokio::spawn(async move {
                    let (near_in, near_out) = near.into_split();
                    let (far_in, far_out) = far.into_split();
                    // If one direction ends, the whole connection ends.
                    tokio::select! {
                        () = carry(near_in, far_out, &count, &limit) => {}
                        () = carry(far_in, near_out, &count, &limit) => {}
                    }
                });
            }
        });
        Self {
            address,
            carried,
            fuse,
            task,
        }
    }

    fn cut_after(&self, bytes: u64) {
        self.fuse.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for InterruptibleConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    carried: &AtomicU64,
    fuse: &AtomicU64,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let left = fuse.load(Ordering::Relaxed);
        if left < read as u64 {
            fuse.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        if left != u64::MAX {
            fuse.fetch_sub(read as u64, Ordering::Relaxed);
        }
        carried.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
