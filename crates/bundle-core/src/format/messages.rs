//! Messages about content that only the webhook reads. `cargo xtask gen` copies `messages.txt` to
//! the page about diagnostics.

use super::*;
use crate::diagnostic::rendered;

const RECORDED: &str = include_str!("messages.txt");

/// Returns the error about content of one file.
fn error_of(path: &str, text: Vec<u8>, cancellation: &Cancellation) -> Findings {
    let files = [(path.to_owned(), text)].into_iter().collect();
    let input = RenderInput {
        files: &files,
        target: &RenderTarget::default(),
        output: None,
    };
    render_objects(&input, |_| Ok(()), cancellation).unwrap_err()
}

#[test]
fn messages_of_rendering_are_recorded() {
    let large = vec![b' '; (10 << 20) + 1];
    let running = Cancellation::default();
    let cancelled = Cancellation::default();
    cancelled.cancel();
    let web = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n".to_vec();
    let chart = b"apiVersion: v2\nname: web\nversion: 1.4.0\n".to_vec();
    let text: String = [
        error_of("manifests/web.yaml", large, &running),
        error_of("Chart.yaml", chart, &running),
        error_of("manifests/web.yaml", web, &cancelled),
    ]
    .iter()
    .map(rendered)
    .collect();
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
