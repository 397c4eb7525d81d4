//! Checks from the dependency tree that this crate does no I/O: it depends on no Kubernetes client,
//! network library or async runtime.

use std::process::Command;

/// Prefixes of the names of forbidden crates.
const FORBIDDEN: &[&str] = &[
    "kube",
    "tokio",
    "reqwest",
    "hyper",
    "axum",
    "rustls",
    "oci-client",
    "async-",
];

#[test]
fn dependencies_contain_no_io_crate() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "bundle-core",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(tree.starts_with("bundle-core "), "{tree}");
    assert!(tree.contains("serde-saphyr "), "{tree}");
    let found: Vec<&str> = tree
        .lines()
        // kube-cel evaluates expressions and is not a Kubernetes client.
        .filter(|line| !line.starts_with("kube-cel "))
        .filter(|line| FORBIDDEN.iter().any(|name| line.starts_with(name)))
        .collect();
    assert!(found.is_empty(), "bundle-core must stay free of {found:?}");
}
