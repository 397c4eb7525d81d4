mod bounds;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bundle_testkit::registry::{Registry, Settings};
use serde_json::{Value, json};

use super::*;
use crate::layout;
use crate::manifest::Platform;
use crate::media;
use crate::progress::{NoProgress, Progress};
use crate::registry::{ClientOptions, TagPolicy};

const WEB: &str = "team/web";

fn client() -> Client {
    Client::new(ClientOptions::default()).unwrap()
}

fn silent() -> Arc<dyn Progress> {
    Arc::new(NoProgress)
}

fn digest_of(value: &Value) -> Digest {
    Digest::of(value.to_string().as_bytes())
}

/// Two images in an index. The index has a signature of each form, and one of these signatures is
/// signed itself.
struct Fixture {
    registry: Registry,
    client: Client,
    index: Digest,
    images: [Digest; 2],
    signature: Digest,
    folder: tempfile::TempDir,
}

fn referrer(subject: &Digest, size: usize, says: &str, config: &Digest) -> Value {
    json!({
        "schemaVersion": 2, "mediaType": media::MANIFEST, "artifactType": "application/example",
        "config": { "mediaType": media::EMPTY, "digest": config, "size": 2 },
        "layers": [{ "mediaType": media::EMPTY, "digest": config, "size": 2 }],
        "subject": { "mediaType": media::INDEX, "digest": subject, "size": size },
        "annotations": { "says": says, "org.opencontainers.image.ref.name": "not a name of ours" },
    })
}

impl Fixture {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let registry = Registry::start(settings).await.unwrap();
        let put = |name: &str, media_type: &str, value: &Value| {
            registry.put_manifest(WEB, name, media_type, value.to_string().as_bytes());
            digest_of(value)
        };
        let images = ["amd64", "arm64"].map(|machine| {
            let digest = registry.publish(WEB, machine, &machine.repeat(100_000).into_bytes());
            let size = registry.manifest(WEB, machine).unwrap().len();
            (machine, digest, size)
        });
        let list: Vec<_> = images
            .iter()
            .map(|(machine, digest, size)| {
                json!({ "mediaType": media::MANIFEST, "digest": digest, "size": size,
                        "platform": { "os": "linux", "architecture": machine } })
            })
            .collect();
        let index = json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": list });
        let size = index.to_string().len();
        let index = put("1.4.0", media::INDEX, &index);
        let empty = registry.put_blob(WEB, "{}");
        let signature = referrer(&index, size, "signed", &empty);
        let signature_size = signature.to_string().len();
        let signature = put(digest_of(&signature).as_str(), media::MANIFEST, &signature);
        let countersigned = referrer(&signature, signature_size, "countersigned", &empty);
        put(
            digest_of(&countersigned).as_str(),
            media::MANIFEST,
            &countersigned,
        );
        let legacy = json!({
            "schemaVersion": 2, "mediaType": media::MANIFEST,
            "config": { "mediaType": media::CONFIG, "digest": empty, "size": 2 },
            "layers": [{ "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": empty, "size": 2 }],
        });
        put(
            &crate::attached::legacy_tag(&index, "sig"),
            media::MANIFEST,
            &legacy,
        );
        let [(_, amd64, _), (_, arm64, _)] = images;
        Self {
            registry,
            client: client(),
            index,
            images: [amd64, arm64],
            signature,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn reference(&self) -> Reference {
        self.registry.reference("team/web:1.4.0").parse().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn plan(&self, selection: &CopyOptions) -> CopyPlan {
        let image = LocatedImage::reference(&self.client, &self.reference())
            .await
            .unwrap();
        CopyPlan::build(image, selection).await.unwrap()
    }

    async fn gathered(&self, path: &Path, selection: &CopyOptions) -> Result<CopyPlan, Finding> {
        let disk = Arc::new(DiskLayout::open(path)?);
        CopyPlan::build(LocatedImage::disk(disk, &ImageSelector::Only)?, selection).await
    }
}

fn digests(plan: &CopyPlan) -> Vec<(String, ManifestRole)> {
    let mut all: Vec<_> = plan
        .graph
        .nodes
        .iter()
        .map(|node| (node.raw.digest.to_string(), node.role.clone()))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs_err::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.insert(name, fs_err::read(path).unwrap());
            }
        }
    }
    all
}

#[tokio::test]
async fn copies_an_image_with_its_referrers_between_all_kinds_of_stores() {
    let fixture = Fixture::new().await;
    let all = CopyOptions::default();
    let plan = fixture.plan(&all).await;
    let roles: Vec<_> = plan.graph.nodes.iter().map(|node| &node.role).collect();
    assert_eq!(roles.len(), 6);
    assert_eq!(roles[..3], [&ManifestRole::Content; 3]);
    assert_eq!(
        plan.graph.nodes[2].raw.digest, fixture.index,
        "the index after its images"
    );
    assert!(roles.contains(&&ManifestRole::Referrer(fixture.index.clone())));
    assert!(roles.contains(&&ManifestRole::Referrer(fixture.signature.clone())));

    let layout = fixture.path("layout");
    let archive = fixture.path("a/b.tar");
    let plans = [plan];
    let written = write_layout(&layout, &plans, TagPolicy::Keep, &silent())
        .await
        .unwrap();
    assert_eq!((written.new, written.named), (11, true));
    let again = write_layout(&layout, &plans, TagPolicy::Keep, &silent())
        .await
        .unwrap();
    assert!(again.is_unchanged(), "{again:?}");
    // An archive from a folder has the same bytes as an archive from a registry.
    let from_layout = [fixture.gathered(&layout, &all).await.unwrap()];
    assert_eq!(digests(&from_layout[0]), digests(&plans[0]));
    write_archive(&archive, &from_layout, &silent())
        .await
        .unwrap();
    let direct = fixture.path("direct.tar");
    write_archive(&direct, &plans, &silent()).await.unwrap();
    assert_eq!(
        fs_err::read(&archive).unwrap(),
        fs_err::read(&direct).unwrap()
    );

    let from_archive = fixture.gathered(&archive, &all).await.unwrap();
    assert_eq!(digests(&from_archive), digests(&plans[0]));
    for settings in [
        Settings::default(),
        Settings {
            referrers_api: false,
            ..Settings::default()
        },
    ] {
        let other = Registry::start(settings).await.unwrap();
        let to: Reference = other.reference("copied/web:1.4.0").parse().unwrap();
        let mounts = MountSources::default();
        let sent = send(
            &fixture.client,
            &to,
            &from_archive,
            TagPolicy::Keep,
            &mounts,
            &silent(),
        )
        .await
        .unwrap();
        assert_eq!(sent.pinned.digest(), &fixture.index);
        assert!(!sent.is_unchanged());
        let back = LocatedImage::reference(&fixture.client, &to).await.unwrap();
        let back = CopyPlan::build(back, &all).await.unwrap();
        assert_eq!(digests(&back), digests(&plans[0]));
        // A repeated copy writes nothing.
        let before = other.lines().len();
        let sent = send(
            &fixture.client,
            &to,
            &from_archive,
            TagPolicy::Keep,
            &mounts,
            &silent(),
        )
        .await
        .unwrap();
        assert!(sent.is_unchanged(), "{sent:?}");
        let asked = other.lines().split_off(before);
        assert!(
            asked
                .iter()
                .all(|line| line.starts_with("HEAD ") || line.starts_with("GET ")),
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn tag_is_written_last_and_moved_only_if_allowed() {
    let fixture = Fixture::new().await;
    let plan = fixture.plan(&CopyOptions::default()).await;
    let other = Registry::without_faults().await.unwrap();
    let to: Reference = other.reference("web:1.4.0").parse().unwrap();
    let taken = other.publish("web", "1.4.0", b"something else");
    let mounts = MountSources::default();
    let refused = send(
        &fixture.client,
        &to,
        &plan,
        TagPolicy::Keep,
        &mounts,
        &silent(),
    )
    .await
    .unwrap_err();
    assert_eq!(refused.code, codes::registry::TAG_TAKEN);
    assert!(refused.message.contains(taken.as_str()), "{refused}");
    assert!(
        other.lines().iter().all(|line| line.starts_with("HEAD ")),
        "{:?}",
        other.lines()
    );
    send(
        &fixture.client,
        &to,
        &plan,
        TagPolicy::Move,
        &mounts,
        &silent(),
    )
    .await
    .unwrap();
    let last = other.lines().pop().unwrap();
    assert_eq!(last, "PUT /v2/web/manifests/1.4.0");
    // A layout behaves in the same way as a registry.
    let layout = fixture.path("layout");
    let mut named = [plan];
    write_layout(&layout, &named, TagPolicy::Keep, &silent())
        .await
        .unwrap();
    let before = files(&layout);
    let image = fixture
        .registry
        .reference("team/web:amd64")
        .parse()
        .unwrap();
    let image = LocatedImage::reference(&fixture.client, &image)
        .await
        .unwrap();
    named[0] = CopyPlan::build(image, &CopyOptions::default())
        .await
        .unwrap();
    named[0].image.name = Some("1.4.0".to_owned());
    let refused = write_layout(&layout, &named, TagPolicy::Keep, &silent())
        .await
        .unwrap_err();
    assert_eq!(refused.code, codes::registry::TAG_TAKEN);
    assert_eq!(files(&layout), before);
    write_layout(&layout, &named, TagPolicy::Move, &silent())
        .await
        .unwrap();
    let moved = DiskLayout::open(&layout)
        .unwrap()
        .image(&ImageSelector::Only)
        .unwrap();
    assert_eq!(moved.descriptor.digest, fixture.images[0]);
}

#[tokio::test]
async fn selection_of_platforms_keeps_the_index_unchanged() {
    let fixture = Fixture::new().await;
    let platform = |text: &str| CopyOptions {
        platforms: vec![text.parse::<Platform>().unwrap()],
        ..CopyOptions::default()
    };
    let plan = [fixture.plan(&platform("linux/arm64")).await];
    let graph = &plan[0].graph;
    assert_eq!(graph.missing.len(), 1);
    assert!(graph.missing[0].is_excluded_by_selection);
    let archive = fixture.path("arm.tar");
    write_archive(&archive, &plan, &silent()).await.unwrap();
    let back = fixture
        .gathered(&archive, &CopyOptions::default())
        .await
        .unwrap();
    assert_eq!(back.digest(), &fixture.index);
    assert_eq!(digests(&back), digests(&plan[0]));
    assert!(!back.graph.missing[0].is_excluded_by_selection);
    let image = LocatedImage::reference(&fixture.client, &fixture.reference())
        .await
        .unwrap();
    let none = CopyPlan::build(image, &platform("linux/s390x"))
        .await
        .unwrap_err();
    assert_eq!(none.code, codes::registry::NO_PLATFORM);
    assert!(none.message.contains("linux/amd64, linux/arm64"), "{none}");
}

#[tokio::test]
async fn damaged_content_is_never_stored_under_a_name() {
    let fixture = Fixture::new().await;
    let layout = fixture.path("layout");
    let plans = [fixture.plan(&CopyOptions::default()).await];
    write_layout(&layout, &plans, TagPolicy::Keep, &silent())
        .await
        .unwrap();
    let blob = plans[0]
        .graph
        .blobs
        .values()
        .max_by_key(|blob| blob.size)
        .unwrap();
    let place = layout.join(layout::blob_path(&blob.digest));
    let mut bytes = fs_err::read(&place).unwrap();
    bytes[7] ^= 1;
    fs_err::write(&place, &bytes).unwrap();
    let damaged = [fixture
        .gathered(&layout, &CopyOptions::default())
        .await
        .unwrap()];
    let archive = fixture.path("b.tar");
    let refused = write_archive(&archive, &damaged, &silent())
        .await
        .unwrap_err();
    assert_eq!(refused.code, codes::registry::DIGEST_MISMATCH);
    let refused = write_layout(&fixture.path("c"), &damaged, TagPolicy::Keep, &silent())
        .await
        .unwrap_err();
    assert_eq!(refused.code, codes::registry::DIGEST_MISMATCH);
    bytes.pop();
    fs_err::write(&place, &bytes).unwrap();
    let refused = write_archive(&archive, &damaged, &silent())
        .await
        .unwrap_err();
    assert_eq!(refused.code, codes::registry::DIGEST_MISMATCH);
    let left: Vec<_> = fs_err::read_dir(fixture.folder.path())
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    assert_eq!(left, ["layout"], "nothing else is left behind");
}

#[tokio::test]
async fn copy_from_a_registry_with_false_content_writes_nothing() {
    let fixture = Fixture::new().await;
    let plans = [fixture.plan(&CopyOptions::default()).await];
    for fault in [
        bundle_testkit::registry::Fault::LyingBlob,
        bundle_testkit::registry::Fault::TruncatedBlob,
    ] {
        fixture.registry.set_fault(Some(fault.clone()));
        let refused = write_archive(&fixture.path("x.tar"), &plans, &silent())
            .await
            .unwrap_err();
        assert_ne!(
            refused.code,
            codes::usage::FILE_UNWRITABLE,
            "{fault:?}: {refused}"
        );
        write_layout(&fixture.path("x"), &plans, TagPolicy::Keep, &silent())
            .await
            .unwrap_err();
        assert_eq!(fs_err::read_dir(fixture.folder.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn does_not_overwrite_other_files() {
    let fixture = Fixture::new().await;
    let plans = [fixture.plan(&CopyOptions::default()).await];
    let thesis = fixture.path("thesis.tar");
    fs_err::write(&thesis, "years of work").unwrap();
    let refused = write_archive(&thesis, &plans, &silent()).await.unwrap_err();
    assert_eq!(refused.code, codes::usage::FILE_UNWRITABLE);
    let refused = write_layout(fixture.folder.path(), &plans, TagPolicy::Keep, &silent())
        .await
        .unwrap_err();
    assert_eq!(refused.code, codes::usage::FILE_UNWRITABLE);
    assert_eq!(fs_err::read(&thesis).unwrap(), b"years of work");
}
