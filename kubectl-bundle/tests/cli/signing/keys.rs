//! Keys: the files are complete, are never overwritten, and other users can never read private
//! keys.

use crate::context::Context;
use crate::kb_snapshot;

#[test]
fn key_pair_is_never_overwritten() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    kb_snapshot!(context, ["keys", "generate", "--output-key-prefix", "release"], @r"
    exit code: 0
    ----- stdout -----
    ----- stderr -----
    private key written to release.key
    public key written to release.pub
    ");
    let private = std::fs::read_to_string(context.path().join("release.key")).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |file: &str| {
            let metadata = std::fs::metadata(context.path().join(file)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!((mode("release.key"), mode("release.pub")), (0o600, 0o644));
    }
    kb_snapshot!(context, ["keys", "generate", "--output-key-prefix", "release"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: release.key: the file already exists [BUNDLE-USAGE-003]
      hint: keys are never overwritten: use another --output-key-prefix, or move the existing files
    ");
    let again = std::fs::read_to_string(context.path().join("release.key")).unwrap();
    assert_eq!(private, again);
    // The public key exists already, so no private key is written without its public key.
    context.write("half.pub", "");
    kb_snapshot!(context, ["keys", "generate", "--output-key-prefix", "half"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: half.pub: the file already exists [BUNDLE-USAGE-003]
      hint: keys are never overwritten: use another --output-key-prefix, or move the existing files
    ");
    assert!(!context.path().join("half.key").exists());
}

#[test]
fn password_source_is_required() {
    kb_snapshot!(Context::new(), ["keys", "generate"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: a password is required, and there is no terminal for a prompt [BUNDLE-USAGE-004]
      hint: set BUNDLE_PASSWORD or COSIGN_PASSWORD, or pass the password on standard input with --password-stdin
    ");
}

#[test]
fn empty_line_is_an_empty_password_and_no_line_is_an_error() {
    let context = Context::new();
    kb_snapshot!(context, ["keys", "generate", "--password-stdin"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: standard input has no password [BUNDLE-USAGE-004]
      hint: set BUNDLE_PASSWORD or COSIGN_PASSWORD, or pass the password on standard input with --password-stdin
    ");
    assert!(!context.path().join("bundle.key").exists());
    let line = context.write("line", "\n");
    let mut command = context.command(&["keys", "generate", "--password-stdin"]);
    command.stdin(std::fs::File::open(line).unwrap());
    let done = context.finish(&mut command);
    assert!(done.contains("exit code: 0"), "{done}");
    let context = context.with("BUNDLE_PASSWORD", "");
    context.stdout(&["keys", "public", "--key", "bundle.key"]);
}

#[test]
fn error_names_a_missing_folder_for_keys() {
    let context = Context::new().with("COSIGN_PASSWORD", "");
    kb_snapshot!(context, ["keys", "generate", "--output-key-prefix", "no/such/release"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: no/such/release.key: cannot write the file [BUNDLE-USAGE-003]
      caused by: no such file or folder
      hint: no partial file remains; choose an existing, writable folder without such a file
    ");
}

#[test]
fn exported_key_can_be_imported() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    let export = [
        "keys",
        "export",
        "--key",
        "release.key",
        "--to",
        "release.pem",
    ];
    let refused = context.run(&export);
    assert!(
        refused.contains("exit code: 2") && refused.contains("--unencrypted-private-key"),
        "{refused}"
    );
    let export = [&export[..], &["--unencrypted-private-key"]].concat();
    context.stdout(&export);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = std::fs::metadata(context.path().join("release.pem")).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    let refused = context.run(&export);
    assert!(refused.contains("BUNDLE-USAGE-003"), "{refused}");
    kb_snapshot!(context, ["keys", "import", "--key", "release.pem", "--output-key-prefix", "again"], @r"
    exit code: 0
    ----- stdout -----
    ----- stderr -----
    private key written to again.key
    public key written to again.pub
    ");
    let read = |file: &str| std::fs::read_to_string(context.path().join(file)).unwrap();
    assert_eq!(read("release.pub"), read("again.pub"));
    kb_snapshot!(context, ["keys", "import", "--key", "release.key", "--output-key-prefix", "third"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: release.key: invalid private key: the file is already encrypted as cosign requires; an import is not necessary [BUNDLE-TRUST-008]
      hint: use the file unchanged: kubectl bundle sign --key FILE
    ");
    assert!(!context.path().join("third.key").exists());
}
