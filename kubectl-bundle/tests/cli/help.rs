//! Help, usage errors, and output formats.

use crate::context::Context;
use crate::kb_snapshot;

#[test]
fn help_names_every_verb_and_exit_code() {
    kb_snapshot!(Context::new(), ["--help"], @r"
    exit code: 0
    ----- stdout -----
    Package, sign, ship, check and deploy Kubernetes manifests as bundles

    Usage: kubectl bundle [OPTIONS] <COMMAND>

    Commands:
      init        Write a bundle.yaml, or a small example
      build       Check a folder of manifests and pack it into one artifact
      push        Push a bundle to a registry
      pull        Pull a bundle from a registry into a layout or archive
      copy        Copy a bundle between registries, layouts and archives
      save        Save bundles with signatures and images in one file
      load        Load a saved file into a registry
      inspect     Describe a bundle
      unpack      Write the files of a bundle into a folder
      render      Print the objects that would be installed
      keys        Create key pairs for signing
      sign        Sign a bundle in a registry
      attest      Sign a statement about a bundle in a registry
      verify      Verify the signatures of a bundle
      policy      Evaluate SignaturePolicies before they are applied
      trust       Get trust roots from a TUF repository
      deploy      Install a bundle, or upgrade to it [alias: upgrade]
      adopt       Install a bundle over existing objects
      run         Install a local folder without a registry
      create      Create a Bundle without installing it
      check       Review objects in files as admission would
      get         List BundleDeployments
      status      Describe one BundleDeployment
      tree        Print the objects of a BundleDeployment below their owners
      content     List or download the content of a Bundle
      diff        Print the changes of an upgrade, or the drift of the installed objects
      plan        Print what the reconciler would do, and the checks that would stop it
      history     List the revisions of a BundleDeployment
      rollback    Install a former revision
      pause       Stop reconciling BundleDeployments
      resume      Continue reconciling BundleDeployments
      delete      Delete BundleDeployments
      unmanage    Delete BundleDeployments and keep their objects
      install     Install bundle-webhook in a cluster
      uninstall   Remove bundle-webhook from a cluster
      doctor      Check the plugin, the cluster and bundle-webhook
      version     Print the versions of this program and of the cluster
      completion  Print a completion script, or install completion for kubectl
      help        Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Common options:
      -q, --quiet
              Print only errors

      -v, --verbose[=<LEVEL>]
              Print each step. Level 6 also prints each HTTP request, and level 7 also its headers, as
              in kubectl

          --color <WHEN>
              Use of colour; `auto` uses colour only on terminals, and not if NO_COLOR is set

              Possible values:
              - auto:   On terminals, unless NO_COLOR is set
              - always: Always
              - never:  Never
              
              [default: auto]

    Exit codes:
      0  done
      1  failed
      2  usage error
      3  rejected by a rule, a signature or the API server
      4  unknown: a dependency did not respond; retry later
    ----- stderr -----
    ");
}

#[test]
fn usage_errors_exit_with_2() {
    let context = Context::new();
    kb_snapshot!(context, ["bild", "web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: unrecognized subcommand 'bild'

      tip: a similar subcommand exists: 'build'

    Usage: kubectl bundle [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    kb_snapshot!(context, ["push", "web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: the following required arguments were not provided:
      <REF>

    Usage: kubectl bundle push <LAYOUT|ARCHIVE|DIR> <REF>

    For more information, try '--help'.
    ");
    kb_snapshot!(context, ["verify", "registry.example.com/web:1"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: the following required arguments were not provided:
      <--key <KEY>|--policy <FILE>|--certificate-identity <IDENTITY>|--certificate-identity-regexp <REGEXP>>

    Usage: kubectl bundle verify <--key <KEY>|--policy <FILE>|--certificate-identity <IDENTITY>|--certificate-identity-regexp <REGEXP>> <REF|FILE>

    For more information, try '--help'.
    ");
    for verb in [
        "build web",
        "pull registry.example.com/web:1",
        "save registry.example.com/web:1",
        "unpack web",
    ] {
        let arguments = format!("{verb} -o web.oci");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let told = context.run(&arguments);
        assert!(told.starts_with("exit code: 2\n"), "{told}");
        assert!(
            told.contains("hint: use --to for a path: --to web.oci"),
            "{told}"
        );
    }
    kb_snapshot!(context, ["build", "web", "-o", "wide", "--to", "web.oci"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --output: `wide` is not a format: json or yaml [BUNDLE-USAGE-001]
      hint: use --to for a path: --to wide
    ");
    kb_snapshot!(context, ["keys", "export", "--key", "a.key", "--unencrypted-private-key", "-o", "a.pem"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --output: this command has no output format [BUNDLE-USAGE-001]
      hint: use --to for a path: --to a.pem
    ");
    kb_snapshot!(context, ["get", "--request-timeout=soon"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --request-timeout: `soon` is not a duration [BUNDLE-USAGE-001]
      hint: write a number with a unit, such as 30s, 5m or 1h30m
    ");
}

#[test]
fn prints_colour_only_if_requested() {
    let context = Context::new();
    let plain = context.run(&["build", "nowhere"]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let always = context.run(&["--color=always", "build", "nowhere"]);
    assert!(always.contains("\u{1b}[1m\u{1b}[31merror:"), "{always:?}");
    let forced = Context::new().with("CLICOLOR_FORCE", "1");
    assert!(forced.run(&["build", "nowhere"]).contains('\u{1b}'));
    let no_color = Context::new()
        .with("CLICOLOR_FORCE", "1")
        .with("NO_COLOR", "1");
    assert!(!no_color.run(&["build", "nowhere"]).contains('\u{1b}'));
}

#[test]
fn completion_scripts_exist_for_four_shells() {
    let context = Context::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        assert!(
            context
                .stdout(&["completion", shell])
                .contains("kubectl-bundle")
        );
    }
}

#[cfg(unix)]
#[test]
fn closed_stdout_is_not_an_error() {
    use std::io::Read as _;
    use std::process::Stdio;

    let mut child = Context::new()
        .command(&["completion", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(said, "");
}

#[cfg(target_os = "linux")]
#[test]
fn full_stdout_is_an_error_and_a_closed_stderr_changes_no_exit_code() {
    use std::process::Stdio;

    let context = Context::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = context.command(&["completion", "bash"]);
    let output = command.stdout(full.unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write to standard output"), "{text}");

    let mut child = context
        .command(&["inspect", "--no-such-flag"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[cfg(unix)]
#[test]
fn argument_that_is_not_utf_8_is_a_usage_error() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let context = Context::new();
    for verb in ["deploy", "inspect", "status"] {
        let mut command = context.command(&[verb]);
        command.arg(OsStr::from_bytes(b"web\xff"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{verb}: {text}");
        assert!(text.contains("UTF-8"), "{verb}: {text}");
    }
}

#[test]
fn commands_work_without_a_home_folder() {
    let context = Context::new().with_bundle();
    for arguments in [
        ["version", "--client"].as_slice(),
        &["build", "web", "--dry-run"],
        &["completion", "bash"],
    ] {
        let mut command = context.command(arguments);
        command.env_remove("HOME");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
}
