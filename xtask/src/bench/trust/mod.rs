//! Signatures: a decision from a proof compared with plain verifications, `verify` compared with
//! cosign 3, and a thousand references and referrers. The program
//! `crates/bundle-trust/examples/decide.rs` makes the decisions. `run` measures the commands.

mod thousand;

use std::path::Path;

use anyhow::{Context, Result, bail};
use e2e::host::command::{Command, Output};
use e2e::sigstore::{Sigstore, WORKFLOW, WORKFLOW_ISSUER, workflow};
use e2e::{Registry, Tool, ToolEnvironment, bundles, programs, tools};
use serde_json::{Value, json};

use super::run::{self, Cost, cost, median};
use super::table::Table;

/// Number of repetitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Number of decisions in one process.
    measure_decisions: usize,
    /// Number of runs of each program.
    runs: usize,
    /// Number of admitted references, and of referrers of one artifact.
    thousand: usize,
}

impl Sizes {
    pub(super) fn new(small: bool) -> Self {
        if small {
            Self {
                measure_decisions: 100,
                runs: 3,
                thousand: 300,
            }
        } else {
            Self {
                measure_decisions: 5_000,
                runs: 30,
                thousand: 1_000,
            }
        }
    }
}

pub(super) async fn measure(sizes: Sizes) -> Result<Vec<(&'static str, Table)>> {
    let scene = SignedArtifacts::new().await?;
    Ok(vec![
        ("verdicts", scene.verdicts(sizes).await?),
        ("verifying", scene.measure_commands(sizes).await?),
        ("admitting", thousand::admitted(sizes.thousand).await?),
        ("referrers", thousand::referrers(sizes.thousand).await?),
    ])
}

/// Two artifacts in a registry. The first is signed with a key, the second with a certificate.
struct SignedArtifacts {
    bench: ToolEnvironment,
    sigstore: Sigstore,
    _registry: Registry,
    by_key: String,
    by_workflow: String,
}

impl SignedArtifacts {
    async fn new() -> Result<Self> {
        let bench = ToolEnvironment::new()?;
        let registry = bench.registry().await?;
        let sigstore = bench.sigstore().await?;
        run(&bench, "keys generate --output-key-prefix release").await?;
        let by_key = publish(&bench, &registry, "1.0.0").await?;
        run(&bench, &format!("sign {by_key} --key release.key")).await?;
        let by_workflow = publish(&bench, &registry, "2.0.0").await?;
        let token = sigstore.token_file(&workflow()).await?;
        let sign = format!(
            "sign {by_workflow} --identity-token {} --signing-config {} --trusted-root {}",
            token.display(),
            sigstore.signing_config().display(),
            sigstore.trusted_root().display()
        );
        run(&bench, &sign).await?;
        Ok(Self {
            bench,
            sigstore,
            _registry: registry,
            by_key,
            by_workflow,
        })
    }

    /// Measures decisions in the program `decide`, without network.
    async fn verdicts(&self, sizes: Sizes) -> Result<Table> {
        let folder = self.bench.folder().join("cases");
        fs_err::create_dir_all(&folder)?;
        let key = fs_err::read_to_string(self.bench.folder().join("release.pub"))?;
        let authorities = [
            (
                "key",
                &self.by_key,
                json!({"name": "release", "key": {"data": key}}),
            ),
            (
                "keyless",
                &self.by_workflow,
                json!({"name": "workflow", "keyless": {
                    "identities": [{"issuer": WORKFLOW_ISSUER, "subject": WORKFLOW}],
                    "trustRoot": {"configMapRef": {"name": "root"}},
                }}),
            ),
        ];
        for (name, pinned, authority) in authorities {
            let case = json!({
                "policy": {"images": [{"glob": "**"}], "authorities": [authority]},
                "root": fs_err::read_to_string(self.sigstore.trusted_root())?,
                "reference": pinned,
                "proof": proof(&self.bench, pinned).await?,
            });
            fs_err::write(folder.join(format!("{name}.json")), case.to_string())?;
        }
        let told = run_decide(&folder, sizes.measure_decisions)?;
        let mut table = Table::new(&["decision from a proof", "p50 ms", "p99 ms", "target p50 ms"]);
        for (name, title, aim) in [
            ("bare-one", "one bare P-256 verification", "-"),
            ("key-anew", "by key", "0.15"),
            ("key-remembered", "by key, cached", "-"),
            (
                "bare-chain",
                "bare verifications of the same certificate chain",
                "-",
            ),
            ("keyless-anew", "by certificate", "0.5"),
            ("keyless-remembered", "by certificate, cached", "-"),
        ] {
            let found = told.iter().find(|line| line["name"] == name);
            let found = found.with_context(|| format!("the loop has no measurement of {name}"))?;
            let figure = |field: &str| format!("{:.3}", found[field].as_f64().unwrap_or(f64::NAN));
            table.row([
                title.to_owned(),
                figure("p50"),
                figure("p99"),
                aim.to_owned(),
            ]);
        }
        Ok(table)
    }

    /// Measures whole processes that use only the registry.
    async fn measure_commands(&self, sizes: Sizes) -> Result<Table> {
        let ours = programs::get().await?.plugin.clone();
        let theirs = tools::path_async(Tool::Cosign3, None).await?;
        let folder = self.bench.folder();
        let key = folder.join("release.pub").display().to_string();
        let root = self.sigstore.trusted_root().display().to_string();
        let who = format!(
            "--certificate-identity {WORKFLOW} --certificate-oidc-issuer {WORKFLOW_ISSUER} --trusted-root {root}"
        );
        let (by_key, by_workflow) = (&self.by_key, &self.by_workflow);
        let mut table = Table::new(&[
            "one reference",
            "tool",
            "s (median)",
            "speed, ratio to cosign 3",
            "peak MiB",
        ]);
        for (title, our_line, their_line) in [
            (
                "by key",
                format!("verify {by_key} --key {key} --offline"),
                format!(
                    "verify --key {key} --insecure-ignore-tlog=true --trusted-root {root} --allow-http-registry {by_key}"
                ),
            ),
            (
                "by certificate",
                format!("verify {by_workflow} {who} --offline"),
                format!("verify {who} --allow-http-registry {by_workflow}"),
            ),
        ] {
            let mut costs: [Vec<Cost>; 2] = Default::default();
            for _ in 0..sizes.runs {
                for (index, (program, line)) in [(&ours, &our_line), (&theirs, &their_line)]
                    .into_iter()
                    .enumerate()
                {
                    costs[index].push(cost(run::command(program, folder, line))?);
                }
            }
            let [ours, theirs] = costs.map(median);
            for (tool, seen) in [("kubectl bundle", ours), ("cosign 3", theirs)] {
                table.row([
                    title.to_owned(),
                    tool.to_owned(),
                    format!("{:.4}", seen.seconds),
                    format!("{:.1}", theirs.seconds / seen.seconds),
                    format!("{:.1}", seen.mebibytes),
                ]);
            }
        }
        Ok(table)
    }
}

async fn run(bench: &ToolEnvironment, line: &str) -> Result<String> {
    answer(bench.plugin().await?, line).await?.success()
}

async fn answer(program: Command, line: &str) -> Result<Output> {
    program
        .args(line.split(' '))
        .env("BUNDLE_PASSWORD", "bench")
        .output()
        .await
}

/// Pushes a small package. Returns its pinned reference.
async fn publish(bench: &ToolEnvironment, registry: &Registry, version: &str) -> Result<String> {
    bundles::greeting(&bench.folder().join(version), version, None)?;
    let reference = registry.reference(&format!("greeting:{version}"));
    let pushed = run(bench, &format!("push {version} {reference}")).await?;
    Ok(pushed.trim().to_owned())
}

/// Returns the proof that `deploy` creates.
async fn proof(bench: &ToolEnvironment, pinned: &str) -> Result<String> {
    let line = format!("deploy greeting {pinned} --with-proof --dry-run=client -o json");
    let object: Value = serde_json::from_str(&run(bench, &line).await?)?;
    object["metadata"]["annotations"]["core.rukpak.io/proof"]
        .as_str()
        .map(ToOwned::to_owned)
        .context("deploy created no proof")
}

/// Runs `decide`, and returns its output: one measurement per line.
fn run_decide(folder: &Path, count: usize) -> Result<Vec<Value>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", "--profile", &programs::profile()?])
        .args(["--package", "bundle-trust", "--example", "decide", "--"])
        .arg(folder)
        .arg(count.to_string())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo, which builds the loop")?;
    if !output.status.success() {
        bail!("the loop ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}
