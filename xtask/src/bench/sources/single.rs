//! One large transfer of each source, compared with git and curl for the same bytes.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use e2e::Tool;
use serde_json::{Value, json};

use super::super::run::{Cost, cost, mebibytes, median};
use super::super::table::Table;
use super::Bench;
use super::fixtures::archive;
use super::memory::{MemorySamples, resident};

const REQUESTER: &str = super::many::REQUESTERS[0];
const MIB: usize = 1 << 20;

/// Measures each source.
pub(super) async fn measure(bench: &Bench<'_>) -> Result<Table> {
    let sizes = bench.sizes;
    let mut table = Table::new(&[
        "content",
        "s, Bundle created to unpacked",
        "compared with",
        "s",
        "ratio",
        "peak above idle, MiB",
    ]);
    let fixtures = bench.fixtures;
    let mut row = |content: String, ours: Cost, tool: &str, theirs: Cost| {
        table.row([
            content,
            format!("{:.2}", ours.seconds),
            tool.to_owned(),
            format!("{:.2}", theirs.seconds),
            format!("{:.2}", ours.seconds / theirs.seconds),
            format!("{:.1}", ours.mebibytes),
        ]);
    };

    let source = fixtures.git_source("large.git", "");
    let ours = bundles(bench, "git", |_| Ok(source.clone())).await?;
    let theirs = repeated(bench, |round| clone(bench, round))?;
    row(
        format!(
            "git: one of {} commits, history of {} MiB",
            sizes.commits, sizes.history
        ),
        ours,
        "git clone --depth 1",
        theirs,
    );

    let source = fixtures.http_source("large.tgz");
    let ours = bundles(bench, "http", |round| {
        // The bytes differ in each round, because the pod does not download cached content again.
        let bytes = archive(&format!("http-{round}"), sizes.archive * MIB)?;
        fs_err::write(fixtures.file(&format!("large-{round}.tgz")), bytes)?;
        Ok(fixtures.http_source(&format!("large-{round}.tgz")))
    })
    .await?;
    let url = source["http"]["url"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let theirs = repeated(bench, |_| Ok(download(&url)))?;
    row(
        format!("http: archive of {} MiB", sizes.archive),
        ours,
        "curl",
        theirs,
    );

    let ours = uploads(bench).await?;
    row(
        format!("upload: archive of {} MiB", sizes.archive),
        ours,
        "curl, of the http archive",
        theirs,
    );

    let mut references = Vec::new();
    for round in 0..sizes.rounds {
        references.push(push(bench, round).await?);
    }
    let ours = bundles(bench, "image", |round| {
        Ok(fixtures.image_source(&references[round]))
    })
    .await?;
    let blobs = layers(bench, &references[0]).await?;
    let theirs = repeated(bench, |_| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail"]);
        for url in &blobs {
            command.args(["-o", "/dev/null", url]);
        }
        Ok(command)
    })?;
    row(
        format!("image: {} layers of {} MiB", sizes.layers, sizes.archive),
        ours,
        "curl, of its layers",
        theirs,
    );
    Ok(table)
}

/// Creates a Bundle in each round, and returns the median.
async fn bundles(
    bench: &Bench<'_>,
    name: &str,
    source: impl Fn(usize) -> Result<Value>,
) -> Result<Cost> {
    let mut costs = Vec::new();
    for round in 0..bench.sizes.rounds {
        let name = format!("single-{name}-{round}");
        let source = source(round)?;
        let pid = bench.webhook.pid()?;
        let idle = resident(pid);
        let samples = MemorySamples::start(pid);
        let began = Instant::now();
        bench.create(&name, &source, REQUESTER).await?;
        let seconds = bench.until_unpacked(&name, began).await?;
        costs.push(Cost {
            seconds,
            mebibytes: mebibytes(samples.peak().saturating_sub(idle)),
        });
        bench.delete(&name).await?;
    }
    Ok(median(costs))
}

/// Uploads an archive in each round, and returns the median from the upload until the Bundle is
/// unpacked.
async fn uploads(bench: &Bench<'_>) -> Result<Cost> {
    let sizes = bench.sizes;
    let token = bench.upload_token(REQUESTER).await?;
    let mut costs = Vec::new();
    for round in 0..sizes.rounds {
        let name = format!("single-upload-{round}");
        let file = bench.fixtures.folder.join("upload.tgz");
        fs_err::write(&file, archive(&name, sizes.archive * MIB)?)?;
        let source = json!({"type": "upload", "upload": {}});
        bench.create(&name, &source, REQUESTER).await?;
        bench.until_waiting(&name).await?;
        let pid = bench.webhook.pid()?;
        let idle = resident(pid);
        let samples = MemorySamples::start(pid);
        let began = Instant::now();
        let command = bench.upload(&token, &name, &file);
        tokio::task::spawn_blocking(move || cost(command))
            .await
            .context("the upload panicked")??;
        let seconds = bench.until_unpacked(&name, began).await?;
        costs.push(Cost {
            seconds,
            mebibytes: mebibytes(samples.peak().saturating_sub(idle)),
        });
        bench.delete(&name).await?;
    }
    Ok(median(costs))
}

/// Runs another tool in each round, and returns the median.
fn repeated(bench: &Bench<'_>, command: impl Fn(usize) -> Result<Command>) -> Result<Cost> {
    let costs = (0..bench.sizes.rounds).map(|round| cost(command(round)?));
    Ok(median(costs.collect::<Result<_>>()?))
}

/// Returns `git clone --depth 1` with the key of the SSH server.
fn clone(bench: &Bench<'_>, round: usize) -> Result<Command> {
    let folder = &bench.fixtures.folder;
    let target = folder.join(format!("clone-{round}"));
    let key = folder.join("key");
    let known = folder.join("known_hosts");
    write_private(&key, &bench.fixtures.git.private_key()?)?;
    fs_err::write(&known, bench.fixtures.git.known_hosts()?)?;
    let ssh = format!(
        "ssh -i {} -o UserKnownHostsFile={} -o IdentitiesOnly=yes",
        key.display(),
        known.display()
    );
    let mut command = Command::new("git");
    command
        .args(["clone", "--quiet", "--depth", "1"])
        .arg(bench.fixtures.git.url("large.git"))
        .arg(target)
        .env("GIT_SSH_COMMAND", ssh)
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    Ok(command)
}

fn write_private(file: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::write(file, text)?;
    fs_err::set_permissions(file, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}

fn download(url: &str) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail", "-o", "/dev/null", url]);
    command
}

/// Pushes an image with large layers. Returns repository and tag.
async fn push(bench: &Bench<'_>, round: usize) -> Result<String> {
    let name = format!("bench/large:{round}");
    let target = bench.cluster.registry(0)?.reference(&name);
    let mut words = vec!["append".to_owned(), "--new_tag".to_owned(), target];
    for layer in 0..bench.sizes.layers {
        let file = bench.fixtures.folder.join(format!("layer-{layer}.tgz"));
        let bytes = archive(&format!("image-{round}-{layer}"), bench.sizes.archive * MIB)?;
        fs_err::write(&file, bytes)?;
        words.extend(["--new_layer".to_owned(), file.display().to_string()]);
    }
    let crane = bench.cluster.tool(Tool::Crane).await?.args(words);
    crane.output().await?.success()?;
    Ok(name)
}

/// Returns the URLs of the layers of an image.
async fn layers(bench: &Bench<'_>, name: &str) -> Result<Vec<String>> {
    let reference = bench.cluster.registry(0)?.reference(name);
    let crane = bench.cluster.tool(Tool::Crane).await?;
    let crane = crane.args(["manifest", &reference]);
    let manifest: Value = serde_json::from_str(&crane.output().await?.success()?)?;
    let (repository, _) = name.rsplit_once(':').context("no tag")?;
    let host = bench.cluster.registry(0)?.host();
    let layers = manifest["layers"].as_array().into_iter().flatten();
    Ok(layers
        .filter_map(|layer| layer["digest"].as_str())
        .map(|digest| format!("http://{host}/v2/{repository}/blobs/{digest}"))
        .collect())
}
