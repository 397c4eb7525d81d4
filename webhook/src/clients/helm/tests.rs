//! Tests of the isolation and the limits of helm. The tests run scripts instead of helm.

use bundle_core::format::RenderArgument;
use bundle_core::yaml::Allowance;

use super::*;

/// First line of each rendered template in the output of helm.
const SOURCE: &str = "# Source: web/templates/a.yaml";

/// Writes a script as the program `helm`, and returns the program with these limits.
fn program(folder: &Path, script: &str, limits: HelmLimits) -> HelmProgram {
    let path = folder.join("bin");
    fs_err::create_dir_all(&path).unwrap();
    // Another process writes the script. If this process wrote the script, its execution could fail
    // with ETXTBSY.
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 700 "$2""#;
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", write, "sh", script])
        .arg(path.join("helm"));
    assert!(shell.status().unwrap().success());
    HelmProgram::new(folder.join("helm"), path.into(), MEMORY, limits)
}

fn command() -> RenderCommand {
    RenderCommand {
        program: "helm",
        chart: "web".to_owned(),
        folder: String::new(),
        config_field: "spec.config",
        arguments: vec![
            RenderArgument::Text("template".to_owned()),
            RenderArgument::ContentPath(String::new()),
        ],
        extra_files: Vec::new(),
        removed_variables: &[],
        folder_variables: &["HELM_CONFIG_HOME"],
        fixed_variables: &[("HTTPS_PROXY", "http://127.0.0.1:9")],
        hint: "",
    }
}

fn files(folder: &HelmFolder, is_random: bool) -> CommandFiles {
    CommandFiles {
        content: folder.path().join("content"),
        extra: folder.path().join("extra"),
        is_random,
    }
}

async fn rendered(program: &HelmProgram, is_random: bool) -> Result<String, HelmError> {
    let folder = program.begin("ana").await?;
    let (output, again) = folder
        .render(&command(), &files(&folder, is_random))
        .await?;
    assert_eq!(again.is_some(), is_random);
    if let Some(again) = again {
        let compared = helm::compare(&command(), &output, &again, &mut Allowance::default());
        compared.map_err(|finding| HelmError::Chart(finding.into()))?;
    }
    Ok(String::from_utf8(output).unwrap())
}

/// Returns the code and the text of the error of a script.
async fn error_of(script: &str, limits: HelmLimits) -> (&'static str, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), script, limits);
    let findings = rendered(&program, true).await.unwrap_err().findings();
    let first = findings.first().unwrap();
    (first.code.id, first.to_string())
}

#[tokio::test]
async fn process_has_no_variable_of_the_pod_and_no_user_folders() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo \"$*\"; set";
    let program = program(folder.path(), script, HelmLimits::default());
    let output = rendered(&program, false).await.unwrap();
    let (arguments, variables) = output.split_once('\n').unwrap();
    assert!(arguments.starts_with("template /"), "{arguments}");
    assert!(arguments.ends_with("/content/"), "{arguments}");
    for name in ["HOME", "PATH", "HELM_CONFIG_HOME", "HELM_PLUGINS", "TMPDIR"] {
        let line = variables
            .lines()
            .find(|line| line.starts_with(&format!("{name}=")))
            .unwrap();
        assert!(line.contains("/home"), "{line}");
    }
    for expected in ["KUBECONFIG='/dev/null'", "HTTPS_PROXY='http://127.0.0.1:9'"] {
        assert!(variables.contains(expected), "{variables}");
    }
    for name in ["KUBERNETES_SERVICE_HOST", "CARGO", "USER"] {
        assert!(!variables.contains(&format!("\n{name}=")), "{variables}");
    }
    assert_eq!(
        fs_err::read_dir(folder.path().join("helm"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn outputs_that_differ_are_rejected_with_the_template() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("echo '{SOURCE}'; echo \"a: $$\"");
    let program = program(folder.path(), &script, HelmLimits::default());
    let first = rendered(&program, false).await.unwrap();
    assert!(first.contains("a: "), "{first}");
    let findings = rendered(&program, true).await.unwrap_err().findings();
    let first = findings.first().unwrap();
    assert_eq!(first.code, codes::format::CHART_IMPURE);
    assert_eq!(first.place.file.as_deref(), Some("templates/a.yaml"));
}

#[tokio::test]
async fn two_runs_of_a_chart_share_the_time_limit() {
    let limits = HelmLimits {
        time: Duration::from_secs(3),
        ..HelmLimits::default()
    };
    let (code, message) = error_of("/bin/sleep 2; echo 'a: b'", limits).await;
    assert_eq!(code, codes::install::HELM_LIMIT.id);
    assert!(message.contains("more than 3 s"), "{message}");
}

#[tokio::test]
async fn limits_of_time_output_and_disk_are_named() {
    let limits = HelmLimits {
        output: 1 << 20,
        time: Duration::from_secs(2),
        ..HelmLimits::default()
    };
    let code = codes::install::HELM_LIMIT.id;
    let line = "0123456789abcdef".repeat(64);
    let repeat =
        |condition: &str| format!("i=0; while {condition}; do echo {line}; i=$((i+1)); done");
    for (script, expected) in [
        ("while :; do :; done", "more than 2 s"),
        (&repeat("[ $i -lt 2000 ]"), "more than 1 MiB of output"),
    ] {
        let (found, message) = error_of(script, limits).await;
        assert_eq!(found, code);
        assert!(message.contains(expected), "{message}");
    }
    let patient = HelmLimits {
        time: Duration::from_secs(60),
        ..limits
    };
    let (found, message) = error_of(&format!("{} > file", repeat(":")), patient).await;
    assert_eq!(found, code);
    assert!(message.contains("more than 40 MiB on disk"), "{message}");
    let (found, message) = error_of(&repeat(":"), patient).await;
    assert_eq!(found, code);
    assert!(message.contains("more than 1 MiB of output"), "{message}");
}

#[tokio::test]
async fn too_long_arguments_are_a_limit_of_helm() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), ":", HelmLimits::default());
    let folder = program.begin("ana").await.unwrap();
    let mut command = command();
    // The kernel never allows more than 6 MiB.
    let long = RenderArgument::Text("a".repeat(1_000));
    command.arguments.extend(vec![long; 8_000]);
    let rendered = folder.render(&command, &files(&folder, false)).await;
    let findings = rendered.unwrap_err().findings();
    let first = findings.first().unwrap();
    assert_eq!(first.code, codes::install::HELM_LIMIT);
    let expected = "rendering the chart needs more than 2 MiB of arguments";
    assert_eq!(first.message, expected);
}

#[tokio::test]
async fn errors_of_helm_are_those_of_the_chart_and_lacking_memory_is_a_limit() {
    let limits = HelmLimits::default();
    let failing =
        "echo 'Error: execution error at (web/templates/a.yaml:1:4): no luck' >&2; exit 1";
    let (code, message) = error_of(failing, limits).await;
    assert_eq!(code, codes::format::CHART_FAILED.id);
    assert!(message.starts_with("templates/a.yaml:1: "), "{message}");
    let crash = "echo 'fatal error: runtime: out of memory' >&2; exit 2";
    let (code, message) = error_of(crash, limits).await;
    assert_eq!(code, codes::install::HELM_LIMIT.id);
    assert!(message.contains("MiB of memory"), "{message}");
    let said = "echo 'fatal error: out of memory' >&2; exit 1";
    let (code, message) = error_of(said, limits).await;
    assert_eq!(code, codes::format::CHART_FAILED.id, "{message}");
    let killed = "echo 'Error: no luck' >&2; kill -KILL $$";
    let (code, message) = error_of(killed, limits).await;
    assert_eq!(code, codes::install::HELM_LIMIT.id);
    assert!(
        message.contains("30 s of CPU time or the memory of the pod"),
        "{message}"
    );
}

#[tokio::test]
async fn processes_have_limits_of_memory_files_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let script = "while read -r line; do echo \"$line\"; done < /proc/self/limits";
    let program = program(folder.path(), script, HelmLimits::default());
    let shown = rendered(&program, false).await.unwrap();
    for (name, limit) in [
        ("Max data size", MEMORY),
        ("Max address space", ADDRESS_SPACE),
        ("Max file size", FOLDER_BYTES),
        ("Max core file size", 0),
        ("Max cpu time", 30),
    ] {
        let line = shown.lines().find_map(|line| line.strip_prefix(name));
        let values: Vec<_> = line.unwrap().split_whitespace().take(2).collect();
        let limit = limit.to_string();
        assert_eq!(values, [limit.as_str(), limit.as_str()], "{name}");
    }
}

#[tokio::test]
async fn one_process_runs_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let script = "while :; do :; done";
    let program = program(folder.path(), script, HelmLimits::default());
    let first = program.begin("ana").await.unwrap();
    let other = tokio::time::timeout(Duration::from_millis(100), program.begin("ben"));
    assert!(other.await.is_err(), "the other rendering waits");
    let path = first.path().to_owned();
    {
        let (command, files) = (command(), files(&first, false));
        let running = first.render(&command, &files);
        let stopped = tokio::time::timeout(Duration::from_millis(300), running).await;
        assert!(stopped.is_err(), "the rendering was cancelled");
    }
    drop(first);
    // The slot is free after the killed process has ended.
    let other = tokio::time::timeout(Duration::from_secs(30), program.begin("ben"));
    let other = other.await.unwrap().unwrap();
    assert!(!path.exists());
    drop(other);
}

#[tokio::test]
async fn missing_program_and_lack_of_memory_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none").into();
    let limits = HelmLimits::default();
    let program = HelmProgram::new(folder.path().join("helm"), none, MEMORY, limits);
    let error = program.begin("ana").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this pod has no `helm` program, which charts require"
    );
    let findings = error.findings();
    let first = findings.first().unwrap();
    assert_eq!(first.code, codes::install::HELM_MISSING);
    assert!(first.hint.as_deref().unwrap().contains("-full"));
    let path = folder.path().join("bin");
    super::tests::program(folder.path(), ":", limits);
    let small = HelmProgram::new(folder.path().join("helm"), path.into(), MEMORY - 1, limits);
    let error = small.begin("ana").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "helm needs 160 MiB, and the memory limit of the pod is too small for it"
    );
}
