//! Copies between registries and files with all referrers, and their output.

use bundle_testkit::registry::Registry;

use crate::context::{CONFIG_MAP, Context, PACKAGE};

/// Pushes a signed package with one image.
fn shop() -> (Context, Registry) {
    let mut context = Context::new().with("BUNDLE_PASSWORD", "secret");
    let registry = context.registry();
    let image = registry.reference("base/app:1.0.0");
    let digest = registry.publish("base/app", "1.0.0", &[7; 5000]);
    context.write("web/bundle.yaml", PACKAGE);
    context.write("web/manifests/web.yaml", CONFIG_MAP);
    context.write(
        "web/manifests/pod.yaml",
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: default}}\nspec:\n  containers:\n  - {{name: app, image: \"{image}\"}}\n"),
    );
    context.write(
        "web/images.lock.yaml",
        format!("apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: ImageLock\nimages:\n- image: {image}\n  resolved: {image}@{digest}\n  digest: {digest}\n  mediaType: application/vnd.oci.image.manifest.v1+json\n"),
    );
    context.stdout(&["keys", "generate", "-q"]);
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web, "-q"]);
    context.stdout(&["sign", &web, "--key", "bundle.key", "-q"]);
    (context, registry)
}

/// Starts another registry in this process.
fn other(context: &mut Context) -> Registry {
    let registry = context
        .runtime()
        .block_on(Registry::without_faults())
        .unwrap();
    context.replace(registry.host().replace(':', "_"), "[OTHER_PORT]");
    context.replace(registry.host(), "[OTHER]");
    registry
}

#[test]
fn pulls_copies_and_pushes_with_the_signature() {
    let (mut context, registry) = shop();
    let second = other(&mut context);
    let web = registry.reference("team/web:1.4.0");
    let pulled = context.stdout(&["pull", &web]);
    assert!(pulled.contains("/team/web@sha256:"), "{pulled}");
    let digest = pulled.rsplit_once('@').unwrap().1.to_owned();
    let again = context.run(&["pull", &web]);
    assert!(again.contains("nothing to do"), "{again}");
    // The layout is copied to an archive, and the archive to a registry. The digest is the same,
    // and the signature is valid.
    context.stdout(&["copy", "web-1.4.0.oci", "web.tar"]);
    let to = second.reference("mirror/web:1.4.0");
    let copied = context.stdout(&["copy", "web.tar:1.4.0", &to]);
    assert_eq!(
        copied,
        format!("{}@{digest}", second.reference("mirror/web"))
    );
    context.stdout(&["verify", &to, "--key", "bundle.pub"]);
    let again = context.run(&["copy", &web, &to]);
    assert!(again.contains("nothing to do"), "{again}");
    // Without referrers, the copy is unsigned.
    let bare = second.reference("bare/web:1.4.0");
    context.stdout(&["push", "web.tar", &bare, "--no-referrers"]);
    let refused = context.run(&["verify", &bare, "--key", "bundle.pub"]);
    assert!(refused.starts_with("exit code: 3"), "{refused}");
}

#[test]
fn saves_and_loads_below_a_prefix() {
    let (mut context, registry) = shop();
    let second = other(&mut context);
    context.replace(registry.host().replace(':', "_"), "[REGISTRY_PORT]");
    let web = registry.reference("team/web:1.4.0");
    let saved = context.stdout(&["save", &web, "--images", "--to", "all.tar"]);
    assert_eq!(saved.lines().count(), 2, "{saved}");
    let to = format!("{}/gap", second.host());
    let table = context.run(&["load", "all.tar", "--to", &to, "--mirrors-out", "mirrors"]);
    assert!(table.starts_with("exit code: 0"), "{table}");
    assert!(table.contains("[REGISTRY]/team/web:1.4.0"), "{table}");
    assert!(
        table.contains("[OTHER]/gap/[REGISTRY_PORT]/team/web@sha256:"),
        "{table}"
    );
    assert!(table.contains("with 1 signature"), "{table}");
    context.stdout(&[
        "verify",
        &format!("{to}/{}/team/web:1.4.0", registry.host().replace(':', "_")),
        "--key",
        "bundle.pub",
    ]);
    let conf = std::fs::read_to_string(context.path().join("mirrors/registries.conf")).unwrap();
    let hosts = format!(
        "mirrors/certs.d/{}_/hosts.toml",
        registry.host().replace(':', "_")
    );
    let hosts = std::fs::read_to_string(context.path().join(hosts)).unwrap();
    let place = format!("{to}/{}", registry.host().replace(':', "_"));
    assert!(
        conf.contains(&format!("location = \"{place}\"\ninsecure = true")),
        "{conf}"
    );
    assert!(hosts.contains("override_path = true"), "{hosts}");
    let again = context.run(&["load", "all.tar", "--to", &to, "--mirrors-out", "mirrors"]);
    assert!(again.contains("nothing to do"), "{again}");

    // The file is a list of digests. The content is read from the first registry, and from the
    // loaded copy.
    context.stdout(&[
        "save",
        &web,
        "--images",
        "--sources-only",
        "--to",
        "list.yaml",
    ]);
    let list = std::fs::read_to_string(context.path().join("list.yaml")).unwrap();
    assert!(list.contains("kind: Sources"), "{list}");
    for (to, from) in [("a", None), ("b", Some(&to))] {
        let to = format!("{}/{to}", second.host());
        let mut line = vec!["load", "list.yaml", "--to", &to];
        line.extend(from.iter().flat_map(|from| ["--from", from.as_str()]));
        context.stdout(&line);
        let loaded = format!("{to}/{}/team/web:1.4.0", registry.host().replace(':', "_"));
        context.stdout(&["verify", &loaded, "--key", "bundle.pub"]);
    }
}

#[test]
fn names_other_registries_whose_images_are_read_with_the_credentials_of_the_user() {
    let (mut context, registry) = shop();
    let second = other(&mut context);
    let web = registry.reference("team/web:1.4.0");
    let told = context.run(&["save", &web, "--images", "--to", "one.tar"]);
    assert!(told.starts_with("exit code: 0"), "{told}");
    assert!(!told.contains("lists images of"), "{told}");
    let copy = second.reference("team/web:1.4.0");
    context.stdout(&["copy", &web, &copy, "-q"]);
    let told = context.run(&["save", &copy, "--images", "--to", "two.tar"]);
    let note = "the lock file lists images of [REGISTRY]: they are read with your credentials for this registry, if any";
    assert!(told.contains(note), "{told}");
}

#[test]
fn rejects_unsupported_sources_and_targets() {
    let (context, registry) = shop();
    let web = registry.reference("team/web:1.4.0");
    context.write("thesis.tar", "years of work");
    let elsewhere = registry.reference("x/web:1");
    context.stdout(&["pull", &web, "--to", "web.oci", "-q"]);
    for (line, code, said) in [
        (
            &["copy", &web, "thesis.tar"][..],
            1,
            "exists and is not an archive",
        ),
        (&["copy", "nowhere.tar", &web], 1, "no such file or folder"),
        (
            &["copy", "thesis.tar", &web],
            1,
            "it is neither a folder nor an OCI archive",
        ),
        (
            &["push", &web, &web],
            2,
            "use `kubectl bundle copy` between registries",
        ),
        (
            &["copy", &web, &elsewhere, "--images"],
            2,
            "--images-to REGISTRY/PREFIX",
        ),
        (
            &["save", &web, "-o", "json"],
            2,
            "a target file is required",
        ),
        (
            &["save", &web, "--platform", "linux", "--to", "x.tar"],
            2,
            "is not a platform",
        ),
        (
            &["load", "web/bundle.yaml", "--to", "mirror"],
            2,
            "is not a registry with an optional prefix",
        ),
        (
            &["load", "web/bundle.yaml", "--to", "localhost:1/mirror"],
            1,
            "the list of sources cannot be read",
        ),
        (
            &["copy", "web.oci:2.0.0", "x.tar"],
            1,
            "it contains no image 2.0.0, only 1.4.0",
        ),
    ] {
        let found = context.run(line);
        assert!(
            found.starts_with(&format!("exit code: {code}\n")),
            "{line:?}: {found}"
        );
        assert!(found.contains(said), "{line:?}: {found}");
    }
    assert_eq!(entries(&context, "x.tar"), 0);
}

/// Returns the number of entries in the test's folder whose names begin with `beginning`.
fn entries(context: &Context, beginning: &str) -> usize {
    let names = std::fs::read_dir(context.path()).unwrap();
    names
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(beginning)
        })
        .count()
}

#[cfg(unix)]
#[test]
fn interrupted_copy_leaves_nothing_under_the_name() {
    use std::time::{Duration, Instant};

    let (context, registry) = shop();
    let web = registry.reference("team/web:1.4.0");
    for (target, signal) in [("x.tar", "INT"), ("x.oci", "TERM"), ("y.tar", "KILL")] {
        registry.set_fault(Some(bundle_testkit::registry::Fault::StallingBlob));
        let mut child = context.command(&["copy", &web, target]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while entries(&context, ".kubectl-bundle-") == 0 {
            assert!(Instant::now() < deadline, "nothing was begun");
            std::thread::yield_now();
        }
        let pid = child.id().to_string();
        let killed = std::process::Command::new("kill")
            .args(["-s", signal, &pid])
            .status();
        assert!(killed.unwrap().success());
        let ended = child.wait().unwrap();
        assert_eq!(entries(&context, target), 0, "{signal}");
        if signal == "KILL" {
            // The killed process leaves temporary files. Other commands recognize these files by
            // name, and ignore the files.
            registry.set_fault(None);
            context.stdout(&["copy", &web, target]);
            assert_eq!(entries(&context, target), 1);
        } else {
            assert_eq!(ended.code(), Some(4), "{signal}");
            assert_eq!(entries(&context, ".kubectl-bundle-"), 0, "{signal}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_reported_and_leaves_no_files() {
    let (context, registry) = shop();
    let web = registry.reference("base/app:1.0.0");
    // The maximum file size of the process is 2 KiB. Writes fail in the middle of a blob, as on a
    // full disk.
    let program = env!("CARGO_BIN_EXE_kubectl-bundle");
    for target in ["full.tar", "full.oci"] {
        let mut command = std::process::Command::new("sh");
        command
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"",
                program,
                "copy",
                &web,
                target,
            ])
            .current_dir(context.path())
            .env_clear()
            .env("HOME", context.path());
        let said = context.finish(&mut command);
        assert!(said.starts_with("exit code: 1"), "{said}");
        assert!(said.contains("BUNDLE-USAGE-003"), "{said}");
        assert_eq!(entries(&context, "full"), 0);
        assert_eq!(entries(&context, ".kubectl-bundle-"), 0);
    }
}
