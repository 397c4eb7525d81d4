//! Runs every console block of README.md and docs/ in order, and compares the output, on a cluster
//! with the webhook. `page` reads the blocks.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::host::command::Command;
use e2e::{Cluster, Sigstore, Tool, WebhookOptions};

use super::page::{self, Step};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the commands that a help text lists.
fn verbs(help: &str) -> Vec<&str> {
    let verbs: Vec<_> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.contains(&"deploy"), "no verbs in: {help}");
    verbs
}

/// README first, then the pages of docs/ and its folders by name.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages[1..].sort();
    pages
}

/// Runs the commands of one page in its own folder. Variables and the folder are kept from command
/// to command.
async fn follow(cluster: &Cluster, sigstore: &Sigstore, path: &Path) -> Result<usize> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let steps = page::read(&fs_err::read_to_string(path)?);
    let folder = cluster.folder().join("data").join(&*name);
    let state = cluster.folder().join("data").join(format!("{name}.state"));
    fs_err::create_dir_all(&folder)?;
    fs_err::write(&state, format!("cd '{}'\n", folder.display()))?;
    let script = r#"exec 2>&1; set -a; . "$STATE"; eval "$TYPED"; code=$?; unset TYPED; { export -p; echo "cd '$PWD'"; } > "$STATE"; exit $code"#;
    for step in &steps {
        match step {
            Step::File { path, text, .. } => {
                let target = folder.join(path);
                fs_err::create_dir_all(target.parent().context("a file lies in a folder")?)?;
                fs_err::write(target, text)?;
            }
            Step::Command {
                line,
                typed,
                code,
                answer,
            } => {
                let shell = cluster.clean(Command::new("/bin/sh"));
                let output = shell
                    .env("REGISTRY", cluster.registry(0)?.host())
                    .env("SIGSTORE_URL", sigstore.url())
                    .env("SIGNING_CONFIG", sigstore.signing_config())
                    .env("TRUSTED_ROOT", sigstore.trusted_root())
                    .env("STATE", &state)
                    .env("TYPED", typed)
                    .args(["-c", script])
                    .output()
                    .await?;
                let (is, wanted) = (output.stdout.trim_end(), answer.trim_end());
                ensure!(
                    output.code == Some(*code) && page::matches(wanted, is),
                    "{name}:{line}: `{typed}` answered otherwise\n── wanted, with exit code {code}\n{wanted}\n── was, with exit code {:?}\n{is}",
                    output.code
                );
            }
        }
    }
    Ok(steps.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn console_blocks_of_the_readme_have_the_shown_output() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let sigstore = cluster.sigstore().await.unwrap();
    // Both create their links in the first folder of the shell's PATH.
    cluster.plugin().await.unwrap();
    cluster.tool(Tool::Kubectl).await.unwrap();
    let help = cluster.kubectl_bundle(["--help"]).await.unwrap();
    let page = fs_err::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    for verb in verbs(&help.success().unwrap()) {
        let named = format!("`{verb}");
        assert!(
            page.contains(&named),
            "docs/reference/cli.md says nothing of {verb}"
        );
    }
    let mut steps = 0;
    for path in pages() {
        steps += follow(&cluster, &sigstore, &path).await.unwrap();
    }
    assert!(steps > 20, "only {steps} steps were found");
}
