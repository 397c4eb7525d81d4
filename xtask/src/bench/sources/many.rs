//! Many Bundles of one requester, and a few Bundles of a second requester, which are created last.
//! Measures the time until each requester's Bundles are unpacked, and the highest number of
//! concurrent downloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::Tool;
use e2e::host::file_server::ServerBehavior;
use futures::stream::{self, TryStreamExt as _};
use serde_json::{Value, json};

use super::super::run::cost;
use super::super::table::Table;
use super::fixtures::{archive, object};
use super::{Bench, DEADLINE, NAMESPACE};

/// The namespaces of the requesters' ServiceAccounts: the first requester has many Bundles, and the
/// second requester has [`FEW`].
pub(super) const REQUESTERS: [&str; 2] = ["bench-many", "bench-few"];
/// Number of Bundles of the second requester.
const FEW: usize = 4;
/// Number of concurrent requests that prepare a source.
const IN_FLIGHT: usize = 8;
/// Number of concurrent uploads of one requester. The pod accepts the same number.
const UPLOADS: usize = 2;
/// Delay of each response of the file server, so that downloads overlap.
const DELAY: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ConfigMaps,
    Http,
    Git,
    Image,
    Upload,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::ConfigMaps,
        Self::Http,
        Self::Git,
        Self::Image,
        Self::Upload,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ConfigMaps => "configmaps",
            Self::Http => "http",
            Self::Git => "git",
            Self::Image => "image",
            Self::Upload => "upload",
        }
    }
}

/// Measures each source.
pub(super) async fn measure(bench: &Bench<'_>) -> Result<Table> {
    let mut table = Table::new(&[
        "source",
        "Bundles",
        "s until all are unpacked",
        "s until the last requester's are unpacked",
        "downloads at once",
    ]);
    bench.fixtures.write_folders(bench.sizes.bundles + FEW)?;
    for kind in Kind::ALL {
        prepare(bench, kind).await?;
        bench.fixtures.files.answer(ServerBehavior::Slow(DELAY));
        let sessions = Sessions::start();
        let (all, few) = unpack(bench, kind).await?;
        bench.fixtures.files.answer(ServerBehavior::Plain);
        let downloads = match kind {
            Kind::Http => bench.fixtures.files.peak().to_string(),
            Kind::Git => sessions.peak().to_string(),
            Kind::ConfigMaps | Kind::Image | Kind::Upload => "-".to_owned(),
        };
        table.row([
            kind.name().to_owned(),
            format!("{} + {FEW}", bench.sizes.bundles),
            format!("{all:.1}"),
            format!("{few:.1}"),
            downloads,
        ]);
    }
    Ok(table)
}

/// Creates the content of each Bundle.
async fn prepare(bench: &Bench<'_>, kind: Kind) -> Result<()> {
    let fixtures = bench.fixtures;
    let numbers = 0..bench.sizes.bundles + FEW;
    let prepared = stream::iter(numbers.map(Ok::<_, anyhow::Error>));
    prepared
        .try_for_each_concurrent(IN_FLIGHT, |number| async move {
            let name = format!("{}-{number}", kind.name());
            match kind {
                // `write_folders` has written the content of all Bundles.
                Kind::Git => {}
                Kind::ConfigMaps => {
                    let config_map = json!({
                        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
                        "metadata": {"name": name, "namespace": NAMESPACE},
                        "data": {"all.yaml": object(&name)},
                    });
                    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
                    let request = http::Request::post(path)
                        .header(http::header::CONTENT_TYPE, "application/json")
                        .body(serde_json::to_vec(&config_map)?)?;
                    bench.client.request::<Value>(request).await?;
                }
                Kind::Http | Kind::Upload => {
                    fs_err::write(fixtures.file(&format!("{name}.tgz")), archive(&name, 0)?)?;
                }
                Kind::Image => {
                    let file = fixtures.folder.join(format!("{name}.tgz"));
                    fs_err::write(&file, archive(&name, 0)?)?;
                    let target = bench.cluster.registry(0)?.reference(&repository(number));
                    let file = file.display().to_string();
                    let crane = bench.cluster.tool(Tool::Crane).await?;
                    let words = ["append", "--new_layer", &file, "--new_tag", &target];
                    crane.args(words).output().await?.success()?;
                }
            }
            Ok(())
        })
        .await
}

fn repository(number: usize) -> String {
    format!("bench/many:{number}")
}

fn source(bench: &Bench<'_>, kind: Kind, number: usize) -> Value {
    let name = format!("{}-{number}", kind.name());
    match kind {
        Kind::ConfigMaps => json!({"type": "configMaps", "configMaps": [
            {"configMap": {"name": name}, "path": "manifests"},
        ]}),
        Kind::Http => bench.fixtures.http_source(&format!("{name}.tgz")),
        Kind::Git => bench.fixtures.git_source("many.git", &number.to_string()),
        Kind::Image => bench.fixtures.image_source(&repository(number)),
        Kind::Upload => json!({"type": "upload", "upload": {}}),
    }
}

/// Creates all Bundles. The Bundles of the second requester are created last. Returns the seconds
/// until all Bundles are unpacked, and the seconds from the creation of the second requester's
/// first Bundle until all Bundles of this requester are unpacked.
async fn unpack(bench: &Bench<'_>, kind: Kind) -> Result<(f64, f64)> {
    let total = bench.sizes.bundles;
    let began = Instant::now();
    create(bench, kind, 0..total, 0).await?;
    let began_few = Instant::now();
    create(bench, kind, total..total + FEW, 1).await?;
    if kind != Kind::Upload {
        let few = until(bench, kind, (total..total + FEW, 1), began_few).await?;
        let all = until(bench, kind, (0..total, 0), began).await?;
        return Ok((all.max(few), few));
    }
    let [many_token, few_token] = [
        bench.upload_token(REQUESTERS[0]).await?,
        bench.upload_token(REQUESTERS[1]).await?,
    ];
    let few = async {
        upload(bench, &few_token, kind, total..total + FEW, 1).await?;
        until(bench, kind, (total..total + FEW, 1), began_few).await
    };
    let all = async {
        upload(bench, &many_token, kind, 0..total, 0).await?;
        until(bench, kind, (0..total, 0), began).await
    };
    let (few, all) = futures::try_join!(few, all)?;
    Ok((all, few))
}

fn name(kind: Kind, number: usize, requester: usize) -> String {
    let prefix = if requester == 0 { "many" } else { "few" };
    format!("{prefix}-{}-{number}", kind.name())
}

async fn create(
    bench: &Bench<'_>,
    kind: Kind,
    numbers: std::ops::Range<usize>,
    requester: usize,
) -> Result<()> {
    stream::iter(numbers.map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(IN_FLIGHT, |number| async move {
            let name = name(kind, number, requester);
            let source = source(bench, kind, number);
            bench.create(&name, &source, REQUESTERS[requester]).await
        })
        .await
}

/// Uploads the archives when their Bundles wait for the uploads.
async fn upload(
    bench: &Bench<'_>,
    token: &str,
    kind: Kind,
    numbers: std::ops::Range<usize>,
    requester: usize,
) -> Result<()> {
    stream::iter(numbers.map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(UPLOADS, |number| async move {
            let name = name(kind, number, requester);
            bench.until_waiting(&name).await?;
            let file = bench
                .fixtures
                .file(&format!("{}-{number}.tgz", kind.name()));
            let command = bench.upload(token, &name, &file);
            let uploaded = tokio::task::spawn_blocking(move || cost(command));
            uploaded.await.context("the upload panicked")??;
            Ok(())
        })
        .await
}

/// Waits until these Bundles of a requester are unpacked. Returns the seconds since `began`. Reads
/// one Bundle at a time: lists of all Bundles would use much of the CPU time of the API server.
async fn until(
    bench: &Bench<'_>,
    kind: Kind,
    (numbers, requester): (std::ops::Range<usize>, usize),
    began: Instant,
) -> Result<f64> {
    let unpacked = async {
        for number in numbers {
            let name = name(kind, number, requester);
            while !bench.is_unpacked(&name).await? {
                tokio::time::sleep(POLL).await;
            }
        }
        anyhow::Ok(())
    };
    let what = || {
        format!(
            "not all {} Bundles of requester {requester} are unpacked",
            kind.name()
        )
    };
    tokio::time::timeout(DEADLINE, unpacked)
        .await
        .with_context(what)??;
    Ok(began.elapsed().as_secs_f64())
}

/// Samples the number of processes that serve a repository, and stores the highest number.
struct Sessions {
    peak: Arc<AtomicUsize>,
    is_done: Arc<AtomicBool>,
}

impl Sessions {
    fn start() -> Self {
        let peak = Arc::new(AtomicUsize::new(0));
        let is_done = Arc::new(AtomicBool::new(false));
        let (highest, done) = (Arc::clone(&peak), Arc::clone(&is_done));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                highest.fetch_max(upload_packs(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { peak, is_done }
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

/// Returns the number of running `git-upload-pack` processes of the repository.
fn upload_packs() -> usize {
    let processes = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| {
            let line = fs_err::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.starts_with("git-upload-pack") && line.contains("many.git")
        })
        .count()
}
