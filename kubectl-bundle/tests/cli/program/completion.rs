//! `completion install`: the program that kubectl runs. The e2e tests run completion in shells.

use std::path::Path;

use crate::context::Context;
use crate::kb_snapshot;

const NAME: &str = "kubectl_complete-bundle";

fn is_executable(file: &Path) -> bool {
    let status = std::process::Command::new("test")
        .arg("-x")
        .arg(file)
        .status();
    status.unwrap().success()
}

#[test]
fn program_is_written_once_and_another_file_is_never_overwritten() {
    let context = Context::new();
    let folder = context.write("bin/other", "").parent().unwrap().to_owned();
    let context = context.with("PATH", &folder.display().to_string());
    let file = folder.join(NAME);
    let install = || context.run(&["completion", "install", "--to", "bin"]);
    let written = install();
    assert!(written.starts_with("exit code: 0"), "{written}");
    assert_eq!(install(), written);
    let printed = context.stdout(&["completion", "kubectl"]);
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written.trim_end(), printed);
    assert!(is_executable(&file));

    let same_length = "x".repeat(written.len());
    for existing in ["#!/bin/sh\necho foreign\n", &same_length] {
        std::fs::write(&file, existing).unwrap();
        let refused = install();
        assert!(refused.starts_with("exit code: 1"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), existing);
    }
    kb_snapshot!(context, ["completion", "install", "--to", "bin"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bin/kubectl_complete-bundle: the file already exists and belongs to another program [BUNDLE-USAGE-003]
      hint: nothing was written; remove the file first, or choose another folder of PATH with --to
    ");
}

#[cfg(unix)]
#[test]
fn link_is_not_followed() {
    let context = Context::new();
    let target = context.write("target", "mine");
    let folder = context.write("bin/other", "").parent().unwrap().to_owned();
    std::os::unix::fs::symlink(&target, folder.join(NAME)).unwrap();
    let refused = context.run(&["completion", "install", "--to", "bin"]);
    assert!(refused.starts_with("exit code: 1"), "{refused}");
    assert_eq!(std::fs::read_to_string(target).unwrap(), "mine");
}

#[test]
fn default_folder_is_that_of_the_plugin_on_path() {
    let context = Context::new();
    kb_snapshot!(context, ["completion", "install"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --to: no folder of PATH has kubectl-bundle, so there is no default folder [BUNDLE-USAGE-001]
      hint: name a folder of PATH: kubectl bundle completion install --to ~/.local/bin
    ");
    context.write("one/other", "");
    context.write("two/kubectl-bundle", "");
    let folders = ["one", "two"].map(|name| context.path().join(name));
    let path = std::env::join_paths(&folders).unwrap();
    let context = context.with("PATH", path.to_str().unwrap());
    kb_snapshot!(context, ["completion", "install"], @r"
    exit code: 0
    ----- stdout -----
    [DIR]/two/kubectl_complete-bundle
    ----- stderr -----
    to undo: rm [DIR]/two/kubectl_complete-bundle
    ");
}

#[test]
fn folder_outside_of_path_and_an_earlier_program_are_reported() {
    let context = Context::new();
    context.write("bin/other", "");
    kb_snapshot!(context, ["completion", "install", "--to", "bin"], @r"
    exit code: 0
    ----- stdout -----
    bin/kubectl_complete-bundle
    ----- stderr -----
    bin is not on PATH, so kubectl does not find the program; add it to PATH
    to undo: rm bin/kubectl_complete-bundle
    ");
    context.write("first/kubectl_complete-bundle", "");
    let folders = ["first", "bin"].map(|name| context.path().join(name));
    let path = std::env::join_paths(&folders).unwrap();
    let context = context.with("PATH", path.to_str().unwrap());
    kb_snapshot!(context, ["completion", "install", "--to", "bin"], @r"
    exit code: 0
    ----- stdout -----
    bin/kubectl_complete-bundle
    ----- stderr -----
    kubectl runs [DIR]/first/kubectl_complete-bundle, which comes first on PATH; remove it
    to undo: rm bin/kubectl_complete-bundle
    ");
}
