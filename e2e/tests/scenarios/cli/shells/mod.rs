//! Completion of `kubectl bundle` in interactive sessions of bash, zsh and fish. The shell runs
//! kubectl's completion. kubectl runs the program that `completion install` has written, and this
//! program runs the plugin.

use std::time::Duration;

use e2e::Tool;
use e2e::host::command::Command;
use e2e::host::packages;
use e2e::host::prerequisites::{BASH_COMPLETION, RequiredProgram};
use e2e::wait;
use e2e::webhook::shared;

/// Script that types into a shell.
const DRIVER: &str = include_str!("type.zsh");
/// Time limit of a session, far above the time of one completion.
const SESSION: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_completes_the_plugin_in_bash_zsh_and_fish() {
    packages::ensure(&[
        RequiredProgram::Zsh,
        RequiredProgram::Fish,
        RequiredProgram::BashCompletion,
    ])
    .unwrap();
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    cluster.tool(Tool::Kubectl).await.unwrap();
    let driver = cluster.folder().join("data").join("type.zsh");
    fs_err::create_dir_all(driver.parent().unwrap()).unwrap();
    fs_err::write(&driver, DRIVER).unwrap();
    let installed = cluster.kubectl_bundle(["completion", "install"]).await;
    installed.unwrap().success().unwrap();

    let bash = format!("source {BASH_COMPLETION}; source <(kubectl completion bash)");
    let zsh = "bindkey -e; autoload -Uz compinit; compinit -u -D; source <(kubectl completion zsh)";
    let fish = "kubectl completion fish | source";
    for (setup, shell) in [
        (bash.as_str(), &["bash", "--norc", "-i"][..]),
        (zsh, &["zsh", "-f", "-i"]),
        (fish, &["fish", "--no-config", "-i"]),
    ] {
        for (typed, expected) in [
            ("kubectl bundle stat", "kubectl bundle status"),
            (
                "kubectl bundle deploy web --coll",
                "kubectl bundle deploy web --collision",
            ),
            (
                "kubectl bundle deploy --collision Ad",
                "kubectl bundle deploy --collision Adopt",
            ),
            (
                "kubectl bundle deploy web --class core-rukpak-io-pl",
                "kubectl bundle deploy web --class core-rukpak-io-plain",
            ),
        ] {
            let command = cluster.clean(Command::new("zsh")).deadline(SESSION);
            let command = command
                .env("TERM", "xterm")
                .args(["-f", &driver.display().to_string(), setup, typed, expected])
                .args(shell);
            // On a busy machine, a completion can be empty, because the plugin waits for the
            // cluster only briefly. The script then waits for the completion until its deadline.
            wait::until_true(
                SESSION * 3,
                &format!("the shell completes `{expected}`"),
                || async {
                    command.clone().output().await?.success()?;
                    Ok(true)
                },
            )
            .await
            .unwrap();
        }
    }
}
