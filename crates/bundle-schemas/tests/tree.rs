//! Checks from the dependency tree that the pod does not contain the table of schemas.

use std::process::Command;

#[test]
fn only_the_plugin_has_the_schemas() {
    for (package, has_schemas) in [("kubectl-bundle", true), ("bundle-webhook", false)] {
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
        let tree = String::from_utf8(output.stdout).unwrap();
        assert_eq!(tree.contains("bundle-schemas "), has_schemas, "{package}");
    }
}
