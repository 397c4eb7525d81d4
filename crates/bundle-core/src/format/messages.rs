//! Messages about the rendering of content. `cargo xtask gen` copies `messages.txt` to the page
//! about diagnostics.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::*;
use crate::diagnostic::rendered;

const RECORDED: &str = include_str!("messages.txt");

/// Returns the errors for content that consists of one file.
fn error_of(path: &str, text: Vec<u8>, cancellation: &Cancellation) -> Findings {
    let files = [(path.to_owned(), text)].into_iter().collect();
    error_with(&files, CommandOutput::Missing, cancellation)
}

fn error_with(files: &Files, output: CommandOutput<'_>, cancellation: &Cancellation) -> Findings {
    let input = RenderInput {
        files,
        target: &RenderTarget::default(),
        output,
    };
    render_objects(&input, |found, _| Ok(found), cancellation).unwrap_err()
}

/// Returns findings about a chart, and errors about the output of helm.
fn of_charts() -> Vec<Findings> {
    let chart = b"apiVersion: v2\nname: web\nversion: 1.4.0\n".to_vec();
    let files = Files::from([("Chart.yaml".to_owned(), chart)]);
    let target = RenderTarget {
        config: Some(serde_json::json!({"values": "replicas: many"})),
        ..RenderTarget::default()
    };
    let command = command(&files, &target, &mut Allowance::default());
    let command = command.unwrap().unwrap();
    let failed = |stderr: &str| helm::failure(&command, stderr.as_bytes());
    let at = "Error: web/templates/web.yaml:3:8\n  executing \"web/templates/web.yaml\" at <fail>:\n    wrong number of args for fail: want 1 got ";
    let source = |password: &str| format!("# Source: web/templates/secret.yaml\na: {password}\n");
    let compared = helm::compare(
        &command,
        source("a").as_bytes(),
        source("b").as_bytes(),
        &mut Allowance::default(),
    );
    let served = (0..1_100).map(|number| format!("g{number}.example.com/v1"));
    let served = helm::ServedApis::new(served.collect(), BTreeSet::new());
    let without_apis = helm::RenderedApis::new(&served, SystemTime::UNIX_EPOCH).warning();
    let hook = b"apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-upgrade}}\n";
    vec![
        failed("Error: execution error at (web/templates/web.yaml:3:8): set an image\n"),
        failed(
            "Error: values don't meet the specifications of the schema(s) in the following chart(s):\nweb:\n- at '/replicas': got string, want integer\n",
        ),
        failed(&format!("{at}4\n")),
        failed(&format!("{at}0\n")),
        compared.unwrap_err().into(),
        error_with(&files, CommandOutput::Text(hook), &Cancellation::default()),
        without_apis.unwrap().into(),
    ]
}

#[test]
fn messages_of_rendering_are_recorded() {
    let large = vec![b' '; (10 << 20) + 1];
    let running = Cancellation::default();
    let cancelled = Cancellation::default();
    cancelled.cancel();
    let web = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n".to_vec();
    let control_characters = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large}}\ndata: {{a: \"{}\"}}\n",
        "\\x07".repeat(600_000)
    );
    let chart = b"apiVersion: v2\nname: web\nversion: 1.4.0\n".to_vec();
    let text: String = [
        error_of("manifests/web.yaml", large, &running),
        error_of("manifests/a.yaml", control_characters.into(), &running),
        error_of("Chart.yaml", chart, &running),
        error_of("manifests/web.yaml", web, &cancelled),
    ]
    .iter()
    .chain(&of_charts())
    .map(rendered)
    .collect();
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
