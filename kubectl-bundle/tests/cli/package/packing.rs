//! Additions of `build` to an image, reproducibility, and the results of `unpack`.

use std::path::Path;
use std::process::Command;

use crate::context::{CONFIG_MAP, Context, PACKAGE};

/// Returns the manifest and configuration of the only image in a layout.
fn documents(context: &Context, layout: &str) -> (serde_json::Value, serde_json::Value) {
    let layout = context.path().join(layout);
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let blob = |digest: &serde_json::Value| {
        let hex = digest.as_str().unwrap().trim_start_matches("sha256:");
        read(&layout.join("blobs/sha256").join(hex))
    };
    let manifest = blob(&read(&layout.join("index.json"))["manifests"][0]["digest"]);
    let config = blob(&manifest["config"]["digest"]);
    (manifest, config)
}

fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[cfg(unix)]
#[test]
fn twenty_concurrent_builds_in_different_environments_have_one_digest() {
    // The files are created in different orders, and need more than one chunk of compression.
    let files: Vec<(String, String)> = (0..12)
        .map(|i| {
            let data: Vec<String> = (0..20_u64)
                .map(|j| format!("  k{j}: \"{}\"", (i + 7) * j * j % 99_991))
                .collect();
            let data = data.join("\n");
            let text = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web-{i}, namespace: a}}\ndata:\n{data}"
            );
            (format!("web/manifests/{i}.yaml"), text)
        })
        .collect();
    let contexts: Vec<Context> = (0..20)
        .map(|n| {
            let context = Context::new();
            let mut files = files.clone();
            let turn = n % files.len();
            files.rotate_left(turn);
            if n % 2 == 1 {
                files.reverse();
            }
            for (path, text) in &files {
                context.write(path, text);
            }
            context.write("web/bundle.yaml", PACKAGE);
            context.write("data/report.bin", vec![7; 3_000_000]);
            context
        })
        .collect();
    let zones = ["UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"];
    let locales = ["C", "de_DE.UTF-8", "tr_TR.UTF-8", "ja_JP.eucJP"];
    let umasks = ["000", "022", "077", "027", "002"];
    let running: Vec<_> = contexts
        .iter()
        .enumerate()
        .map(|(n, context)| {
            let line = format!(
                "umask {} && exec {} build ../web --to out --resource data:report@../data/report.bin",
                umasks[n % 5],
                env!("CARGO_BIN_EXE_kubectl-bundle")
            );
            let folder = context.path().join(format!("elsewhere-{n}"));
            std::fs::create_dir(&folder).unwrap();
            Command::new("/bin/sh")
                .args(["-c", &line])
                .current_dir(folder)
                .env_clear()
                .env("TZ", zones[n % 4])
                .env("LC_ALL", locales[n % 4])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut digests = std::collections::BTreeSet::new();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        digests.insert(String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn source_date_epoch_is_the_only_timestamp() {
    let context = Context::new().with_bundle();
    let without = context.stdout(&["build", "web", "--to", "none", "--dry-run"]);
    let context = context.with("SOURCE_DATE_EPOCH", "1700000000");
    let dated = context.stdout(&["build", "web", "--to", "dated"]);
    assert_ne!(without, dated);
    assert_eq!(dated, context.stdout(&["build", "web", "--to", "again"]));
    let (manifest, config) = documents(&context, "dated");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    let noted = &manifest["annotations"]["org.opencontainers.image.created"];
    assert_eq!(noted, "2023-11-14T22:13:20Z");
    let context = context.with("SOURCE_DATE_EPOCH", "yesterday");
    let refused = context.run(&["build", "web", "--to", "never"]);
    assert!(
        refused.starts_with("exit code: 2") && refused.contains("SOURCE_DATE_EPOCH"),
        "{refused}"
    );
}

#[test]
fn resources_are_layers_that_are_not_installed() {
    let context = Context::new().with_bundle();
    let resources = "resources: [{name: boards, type: grafana-dashboard, path: boards/}]\n";
    context.write("web/bundle.yaml", format!("{PACKAGE}{resources}"));
    context.write("web/boards/one.json", "{}");
    context.write("chart.tgz", "not really");
    context.stdout(&[
        "build",
        "web",
        "--to",
        "out",
        "--resource",
        "helm-chart@chart.tgz",
    ]);
    let (manifest, config) = documents(&context, "out");
    let layers = manifest["layers"].as_array().unwrap();
    let ids = config["rootfs"]["diff_ids"].as_array().unwrap();
    assert_eq!((layers.len(), ids.len()), (3, 3));
    let names: Vec<_> = layers
        .iter()
        .map(|layer| &layer["annotations"]["io.rukpak.core.bundle.resource.name"])
        .collect();
    assert_eq!(
        names,
        [&serde_json::Value::Null, &"boards".into(), &"chart".into()]
    );
    let objects = context.run(&["inspect", "out"]);
    assert!(objects.contains("ConfigMap"), "{objects}");
    context.stdout(&["unpack", "out", "--to", "files"]);
    let at = |path: &str| std::fs::read_to_string(context.path().join("files").join(path)).unwrap();
    assert_eq!(at("resources/boards/one.json"), "{}");
    assert_eq!(at("resources/chart/chart.tgz"), "not really");
    assert_eq!(at("manifests/web.yaml"), CONFIG_MAP);

    context.write("empty.txt", "");
    std::fs::create_dir(context.path().join("nothing")).unwrap();
    let arguments = |more: &'static str| ["build", "web", "--to", "never", "--resource", more];
    for (resource, why) in [
        ("text@empty.txt", "empty file"),
        ("text@nothing", "without files"),
        ("text@missing", "no such file"),
        ("boards:text@chart.tgz", "two resources have the name"),
        ("a b:text@chart.tgz", "not a valid name"),
        ("chart.tgz", "no `@`"),
    ] {
        let refused = context.run(&arguments(resource));
        assert!(refused.contains(why), "{resource}: {refused}");
    }
    assert!(!context.path().join("never").exists());
}

#[test]
fn layers_of_a_base_image_are_unchanged() {
    let context = Context::new().with_bundle();
    let lower = context.stdout(&[
        "build",
        "web",
        "--to",
        "lower",
        "--resource",
        "text@web/bundle.yaml",
    ]);
    context.write("top/bundle.yaml", PACKAGE.replace("web", "top"));
    context.write("top/manifests/top.yaml", CONFIG_MAP.replace("web", "top"));
    context.stdout(&["build", "top", "--to", "upper", "--base", "lower"]);
    let (below, _) = documents(&context, "lower");
    let (manifest, config) = documents(&context, "upper");
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers[..2], below["layers"].as_array().unwrap()[..]);
    assert_eq!(layers.len(), 3);
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
    let base = &manifest["annotations"]["org.opencontainers.image.base.digest"];
    assert_eq!(base, &serde_json::Value::from(lower));
    let objects = context.run(&["inspect", "upper", "-o", "json"]);
    assert!(objects.contains("\"name\": \"top\""), "{objects}");
    assert!(objects.contains("\"ConfigMap\": 2"), "{objects}");
    // An object that is in the base image and in the folder is a duplicate.
    context.write("top/manifests/again.yaml", CONFIG_MAP);
    let refused = context.run(&["build", "top", "--to", "never", "--base", "lower"]);
    assert!(refused.contains("the same object"), "{refused}");
}

#[test]
fn records_the_origin_of_a_git_checkout() {
    let context = Context::new()
        .with_bundle()
        .with("PATH", &std::env::var("PATH").unwrap());
    let folder = context.path();
    git(folder, &["init", "-q"]);
    git(
        folder,
        &[
            "remote",
            "add",
            "origin",
            "https://me:secret@git.example.com/team/web.git",
        ],
    );
    git(folder, &["add", "web"]);
    git(folder, &["commit", "-qm", "first"]);
    let annotations = |layout: &str| documents(&context, layout).0["annotations"].clone();
    context.stdout(&["build", "web", "--to", "clean"]);
    let clean = annotations("clean");
    assert_eq!(
        clean["org.opencontainers.image.source"],
        "https://git.example.com/team/web.git"
    );
    assert_eq!(
        clean["org.opencontainers.image.revision"]
            .as_str()
            .unwrap()
            .len(),
        40
    );
    context.write("web/manifests/more.yaml", CONFIG_MAP.replace("web", "more"));
    let said = context.run(&["build", "web", "--to", "dirty"]);
    assert!(said.contains("differ from the commit"), "{said}");
    let dirty = annotations("dirty");
    assert!(dirty["org.opencontainers.image.source"].is_string());
    assert!(dirty["org.opencontainers.image.revision"].is_null());
    context.stdout(&["build", "web", "--to", "bare", "--no-provenance"]);
    assert!(annotations("bare")["org.opencontainers.image.source"].is_null());
    let said = context
        .with("PATH", "/nonexistent")
        .run(&["build", "web", "--to", "no-git"]);
    assert!(
        said.starts_with("exit code: 0") && said.contains("cannot run git"),
        "{said}"
    );
}

#[test]
fn unpacks_completely_or_not_at_all() {
    let context = Context::new().with_bundle();
    context.stdout(&["build", "web", "--to", "out"]);
    assert_eq!(context.stdout(&["unpack", "out", "--to", "files"]), "files");
    let again = context.run(&["unpack", "out", "--to", "files"]);
    assert!(
        again.starts_with("exit code: 1") && again.contains("not empty"),
        "{again}"
    );
    context.write("files/mine.txt", "x");
    context.stdout(&["unpack", "out", "--to", "files", "--force"]);
    assert!(!context.path().join("files/mine.txt").exists());
    let home = context.run(&["unpack", "out", "--to", ".", "--force"]);
    assert!(home.contains("current folder"), "{home}");
    let folder = context.run(&["unpack", "web", "--to", "files"]);
    assert!(folder.contains("a folder of manifests"), "{folder}");
    let left: Vec<_> = std::fs::read_dir(context.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A limit on file sizes simulates a full disk. After a failed `build` or `unpack`, no files
/// remain.
#[cfg(unix)]
#[test]
fn full_disk_leaves_no_files() {
    let context = Context::new().with_bundle();
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(6_000_000)
    .collect();
    context.write("noise.bin", noise);
    context.stdout(&[
        "build",
        "web",
        "--to",
        "out",
        "--resource",
        "noise@noise.bin",
    ]);
    let limited = |line: &str| {
        let program = env!("CARGO_BIN_EXE_kubectl-bundle");
        // The limit is in blocks of 512 bytes. The signal SIGXFSZ is ignored, so that writes fail
        // as on a full disk.
        let line = format!("ulimit -f 4000; trap '' XFSZ; exec {program} {line}");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &line]).current_dir(context.path());
        context.finish(
            command
                .env_clear()
                .env("TMPDIR", context.path().join("tmp")),
        )
    };
    std::fs::create_dir(context.path().join("tmp")).unwrap();
    for line in [
        "unpack out --to files",
        "build web --to new --resource noise@noise.bin",
    ] {
        let said = limited(line);
        assert!(
            said.starts_with("exit code: 1") && said.contains("BUNDLE-USAGE-003"),
            "{said}"
        );
    }
    let names: Vec<String> = std::fs::read_dir(context.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["files", "new"] {
        assert!(!names.iter().any(|there| there == name), "{names:?}");
    }
    assert!(
        !names.iter().any(|name| name.starts_with(".kubectl-bundle")),
        "{names:?}"
    );
    assert_eq!(
        std::fs::read_dir(context.path().join("tmp"))
            .unwrap()
            .count(),
        0
    );
}
