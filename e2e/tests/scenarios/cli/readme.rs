//! Runs every console block of README.md and of docs/ without the how-to guides, in order, and
//! compares the output. The cluster has the webhook. `page` reads and runs the blocks. `guides`
//! runs the blocks of the how-to guides.

use std::path::{Path, PathBuf};

use e2e::{Cluster, Sigstore, WebhookOptions};

use super::page;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the path of README.md.
pub(in crate::scenarios) fn readme() -> PathBuf {
    root().join("README.md")
}

/// Returns the environment variables that the commands of README.md use.
pub(in crate::scenarios) fn variables(
    cluster: &Cluster,
    sigstore: &Sigstore,
) -> [(&'static str, String); 4] {
    let shown = |path: PathBuf| path.display().to_string();
    [
        ("REGISTRY", cluster.registry(0).unwrap().host()),
        ("SIGSTORE_URL", sigstore.url().to_owned()),
        ("SIGNING_CONFIG", shown(sigstore.signing_config())),
        ("TRUSTED_ROOT", shown(sigstore.trusted_root())),
    ]
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

/// Returns README.md, and the pages of docs/ by name without the how-to guides.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![readme()];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("how-to") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages[1..].sort();
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn console_blocks_of_the_readme_have_the_shown_output() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let sigstore = cluster.sigstore().await.unwrap();
    let variables = variables(&cluster, &sigstore);
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
        steps += page::follow(&cluster, &variables, &path).await.unwrap();
    }
    assert!(steps > 20, "only {steps} steps were found");
}
