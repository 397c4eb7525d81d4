//! Push, pull, copy, save and load, compared with crane, skopeo and curl for the same bytes and
//! registry. `build` and `inspect` are measured without a comparison. `run` measures the commands.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use e2e::host::packages;
use e2e::host::prerequisites::RequiredProgram;
use e2e::{Cluster, Tool, bundles, programs, tools};
use rand::RngCore as _;

use super::run::{Cost, command, cost, median};
use super::table::Table;

/// Size in bytes of the large resource, its name, and the number of rounds.
const SIZES: [(u64, &str, usize); 3] = [
    (1 << 20, "1 MiB", 7),
    (100 << 20, "100 MiB", 5),
    (1 << 30, "1 GiB", 3),
];

/// Tools in the order of the alternating rounds.
const TOOLS: [&str; 4] = ["kubectl bundle", "crane", "skopeo", "curl"];

struct Bench<'a> {
    cluster: &'a Cluster,
    folder: PathBuf,
    plugin: PathBuf,
    crane: PathBuf,
}

/// One operation of one tool.
struct Job {
    operation: &'static str,
    tool: &'static str,
    program: PathBuf,
    line: String,
    /// Output on disk, which is removed after the run.
    writes: Option<PathBuf>,
}

pub(super) async fn measure(cluster: &Cluster) -> Result<Vec<(&'static str, Table)>> {
    packages::ensure(&[RequiredProgram::Skopeo, RequiredProgram::Curl])?;
    let bench = Bench {
        folder: cluster.folder().join("bench-oci"),
        plugin: programs::get().await?.plugin.clone(),
        crane: tools::path_async(Tool::Crane, None).await?,
        cluster,
    };
    fs_err::create_dir_all(&bench.folder)?;
    let mut shipping = Table::new(&[
        "operation",
        "size",
        "tool",
        "s (median)",
        "ratio to the best other tool",
        "peak MiB",
    ]);
    let mut making = Table::new(&["", "s", "peak MiB", "requests"]);
    for (bytes, size, rounds) in SIZES {
        let layout = bench.build(bytes, size, &mut making)?;
        bench.measure_transfers(&layout, size, rounds, &mut shipping)?;
        bench.inspect(size, &mut making)?;
        fs_err::remove_dir_all(&bench.folder)?;
        fs_err::create_dir_all(&bench.folder)?;
    }
    for files in [500, 5_000] {
        bench.build_many(files, &mut making)?;
    }
    Ok(vec![("shipping", shipping), ("making", making)])
}

impl Bench<'_> {
    fn run(&self, program: &Path, line: &str) -> Result<Cost> {
        // Each run has an empty home folder, because skopeo stores there which repository has a
        // blob. In a later run, skopeo would mount the blob instead of uploading the blob.
        let home = self.folder.join("home");
        fs_err::create_dir_all(&home)?;
        let mut command = command(program, &home, line);
        command.current_dir(&self.folder);
        let cost = cost(command)?;
        fs_err::remove_dir_all(&home)?;
        Ok(cost)
    }

    /// Builds a package with one resource of this size in bytes, which is not compressible.
    fn build(&self, bytes: u64, size: &str, table: &mut Table) -> Result<PathBuf> {
        let name = "freight";
        let source = self.folder.join(name);
        bundles::many(&source, name, 10)?;
        noise(&source.join("data.bin"), bytes)?;
        let layout = self.folder.join("freight.oci");
        let line = format!(
            "build {} --resource data:blob@{} --to {}",
            source.display(),
            source.join("data.bin").display(),
            layout.display()
        );
        let built = self.run(&self.plugin, &line)?;
        table.row([
            format!("build with a resource of {size}"),
            format!("{:.2}", built.seconds),
            format!("{:.0}", built.mebibytes),
            "-".to_owned(),
        ]);
        Ok(layout)
    }

    fn build_many(&self, files: usize, table: &mut Table) -> Result<()> {
        let source = self.folder.join(format!("many-{files}"));
        bundles::many_files(&source, "many", files)?;
        let line = format!("build {} --dry-run", source.display());
        let built = median(
            (0..3)
                .map(|_| self.run(&self.plugin, &line))
                .collect::<Result<_>>()?,
        );
        table.row([
            format!("build of {files} manifests"),
            format!("{:.2}", built.seconds),
            format!("{:.0}", built.mebibytes),
            "-".to_owned(),
        ]);
        Ok(())
    }

    /// Runs `inspect` on the last pushed package, and counts the requests at the registry.
    fn inspect(&self, size: &str, table: &mut Table) -> Result<()> {
        let registry = self.cluster.registry(0)?;
        let reference = registry.reference(&format!("{}:1.0.0", repository_for_size(size)));
        let before = requests(&registry.log()?);
        let seen = self.run(&self.plugin, &format!("inspect {reference}"))?;
        let after = requests(&registry.log()?);
        table.row([
            format!("inspect in a registry, resource of {size}"),
            format!("{:.3}", seen.seconds),
            format!("{:.0}", seen.mebibytes),
            (after - before).to_string(),
        ]);
        Ok(())
    }

    fn measure_transfers(
        &self,
        layout: &Path,
        size: &str,
        rounds: usize,
        table: &mut Table,
    ) -> Result<()> {
        let here = self.cluster.registry(0)?;
        // Content that the other tools read is pushed once.
        let source = here.reference(&format!("{}:1.0.0", repository_for_size(size)));
        self.run(&self.plugin, &format!("push {} {source}", layout.display()))?;
        let archive = self.folder.join("stays.tar");
        self.run(
            &self.plugin,
            &format!("save {source} --to {}", archive.display()),
        )?;
        let mut costs: BTreeMap<(&str, &str), Vec<Cost>> = BTreeMap::new();
        for round in 0..rounds {
            for job in self.jobs(layout, &source, &archive, size, round)? {
                let cost = self.run(&job.program, &job.line)?;
                costs
                    .entry((job.operation, job.tool))
                    .or_default()
                    .push(cost);
                match &job.writes {
                    Some(path) if path.is_dir() => fs_err::remove_dir_all(path)?,
                    Some(path) if path.is_file() => fs_err::remove_file(path)?,
                    _ => {}
                }
            }
        }
        for operation in ["push", "pull", "copy", "save", "load"] {
            let medians: Vec<(&str, Cost)> = TOOLS
                .iter()
                .filter_map(|tool| Some((*tool, median(costs.remove(&(operation, *tool))?))))
                .collect();
            let best = medians
                .iter()
                .filter(|(tool, _)| *tool == "crane" || *tool == "skopeo")
                .map(|(_, cost)| cost.seconds)
                .fold(f64::INFINITY, f64::min);
            for (tool, cost) in medians {
                table.row([
                    operation.to_owned(),
                    size.to_owned(),
                    tool.to_owned(),
                    format!("{:.3}", cost.seconds),
                    format!("{:.2}", cost.seconds / best),
                    format!("{:.0}", cost.mebibytes),
                ]);
            }
        }
        Ok(())
    }

    /// Returns every operation of every tool, each with an empty target.
    fn jobs(
        &self,
        layout: &Path,
        source: &str,
        archive: &Path,
        size: &str,
        round: usize,
    ) -> Result<Vec<Job>> {
        let here = self.cluster.registry(0)?;
        let there = self.cluster.registry(1)?;
        let stays = repository_for_size(size);
        let size = size.replace(' ', "").to_lowercase();
        let fresh = |tool: &str| format!("freight/{tool}-{size}-{round}");
        let out = |name: &str| self.folder.join(format!("out-{name}"));
        let skopeo = PathBuf::from("skopeo");
        let curl = PathBuf::from("curl");
        let mut jobs = Vec::new();
        let mut job = |operation, tool: &'static str, program: &Path, line: String, writes| {
            jobs.push(Job {
                operation,
                tool,
                program: program.to_owned(),
                line,
                writes,
            });
        };
        let layout = layout.display();
        let tar = archive.display();
        let target = |tool: &str, operation: &str| {
            here.reference(&format!("{}-{operation}:1.0.0", fresh(tool)))
        };
        let far = |tool: &str| there.reference(&format!("{}:1.0.0", fresh(tool)));
        let blob = largest(Path::new(&layout.to_string()))?;
        let (digest, path) = &blob;

        job(
            "push",
            TOOLS[0],
            &self.plugin,
            format!("push {layout} {}", target("ours", "push")),
            None,
        );
        job(
            "push",
            TOOLS[1],
            &self.crane,
            format!("push --insecure {layout} {}", target("crane", "push")),
            None,
        );
        job(
            "push",
            TOOLS[2],
            &skopeo,
            format!(
                "--insecure-policy copy --dest-tls-verify=false oci:{layout} docker://{}",
                target("skopeo", "push")
            ),
            None,
        );
        let place = upload(&here.host(), &fresh("curl"))?;
        let joint = if place.contains('?') { '&' } else { '?' };
        job(
            "push",
            TOOLS[3],
            &curl,
            format!(
                "-sS --fail -T {} -H content-type:application/octet-stream {place}{joint}digest={digest}",
                path.display()
            ),
            None,
        );
        for (tool, program, name, line) in [
            (
                TOOLS[0],
                &self.plugin,
                "ours",
                format!("pull {source} --to OUT"),
            ),
            (
                TOOLS[1],
                &self.crane,
                "crane",
                format!("pull --insecure --format=oci {source} OUT"),
            ),
            (
                TOOLS[2],
                &skopeo,
                "skopeo",
                format!("--insecure-policy copy --src-tls-verify=false docker://{source} oci:OUT"),
            ),
            (
                TOOLS[3],
                &curl,
                "curl",
                format!(
                    "-sS --fail -o OUT http://{}/v2/{stays}/blobs/{digest}",
                    here.host()
                ),
            ),
        ] {
            let writes = out(name);
            job(
                "pull",
                tool,
                program,
                line.replace("OUT", &writes.display().to_string()),
                Some(writes),
            );
        }
        job(
            "copy",
            TOOLS[0],
            &self.plugin,
            format!("copy {source} {}", far("ours")),
            None,
        );
        job(
            "copy",
            TOOLS[1],
            &self.crane,
            format!("copy --insecure {source} {}", far("crane")),
            None,
        );
        job(
            "copy",
            TOOLS[2],
            &skopeo,
            format!(
                "--insecure-policy copy --src-tls-verify=false --dest-tls-verify=false docker://{source} docker://{}",
                far("skopeo")
            ),
            None,
        );
        let ours = out("ours.tar");
        job(
            "save",
            TOOLS[0],
            &self.plugin,
            format!("save {source} --to {}", ours.display()),
            Some(ours),
        );
        let theirs = out("skopeo.tar");
        job(
            "save",
            TOOLS[2],
            &skopeo,
            format!(
                "--insecure-policy copy --src-tls-verify=false docker://{source} oci-archive:{}",
                theirs.display()
            ),
            Some(theirs),
        );
        job(
            "load",
            TOOLS[0],
            &self.plugin,
            format!("load {tar} --to {}/{}", there.host(), fresh("load")),
            None,
        );
        job(
            "load",
            TOOLS[2],
            &skopeo,
            format!(
                "--insecure-policy copy --dest-tls-verify=false oci-archive:{tar} docker://{}",
                far("skopeo-load")
            ),
            None,
        );
        Ok(jobs)
    }
}

/// Returns the repository of the package of this size.
fn repository_for_size(size: &str) -> String {
    format!("freight/stays-{}", size.replace(' ', "").to_lowercase())
}

/// Starts an upload for curl, and returns the URL of the upload. Only the transfer itself is
/// measured.
fn upload(host: &str, repository: &str) -> Result<String> {
    let output = std::process::Command::new("curl")
        .args([
            "-sS",
            "--fail",
            "-X",
            "POST",
            "-o",
            "/dev/null",
            "-w",
            "%header{location}",
        ])
        .arg(format!("http://{host}/v2/{repository}/blobs/uploads/"))
        .output()
        .context("cannot start curl")?;
    let place = String::from_utf8(output.stdout).context("the upload location is not text")?;
    anyhow::ensure!(
        output.status.success() && !place.is_empty(),
        "the registry started no upload for curl"
    );
    Ok(place)
}

/// Returns digest and file of the largest blob of a layout.
fn largest(layout: &Path) -> Result<(String, PathBuf)> {
    let mut best: Option<(u64, PathBuf)> = None;
    for entry in fs_err::read_dir(layout.join("blobs/sha256"))? {
        let entry = entry?;
        let size = entry.metadata()?.len();
        if best.as_ref().is_none_or(|(most, _)| size > *most) {
            best = Some((size, entry.path()));
        }
    }
    let (_, path) = best.context("the layout holds no blob")?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok((format!("sha256:{name}"), path))
}

/// Returns the number of responses with status 200, 401 or 404 in the registry's log.
fn requests(log: &str) -> usize {
    log.lines()
        .filter(|line| {
            line.contains("\" 200 ") || line.contains("\" 404 ") || line.contains("\" 401 ")
        })
        .count()
}

fn noise(path: &Path, bytes: u64) -> Result<()> {
    let mut file = std::io::BufWriter::new(fs_err::File::create(path)?);
    let mut piece = vec![0; 1 << 20];
    let mut random = rand::rng();
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        random.fill_bytes(&mut piece[..count]);
        file.write_all(&piece[..count])?;
        left -= count as u64;
    }
    file.flush()?;
    Ok(())
}
