//! Proves from the dependency tree that the pod does not carry the table of schemas.

use std::process::Command;

fn tree(package: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal"])
        .args(["--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn only_the_plugin_has_the_schemas() {
    assert!(tree("kubectl-bundle").contains("bundle-schemas "));
    assert!(!tree("bundle-webhook").contains("bundle-schemas "));
}
