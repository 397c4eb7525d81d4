//! A release with a debug program: krew validates the manifest, installs the plugin from a custom
//! index, and rejects a changed archive. cosign verifies the signatures of the archive.

use std::path::{Path, PathBuf};

use e2e::dist::{
    Archive, BuiltProgram, DistPlatform, KrewManifest, ReleaseContent, sign, validate,
    write_checksums,
};
use e2e::host::command::Command;
use e2e::host::file_server::FileServer;
use e2e::image::Provenance;
use e2e::tools;
use e2e::{Output, Tool, ToolEnvironment, programs};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A folder with a release of all platforms, and a home folder with krew.
struct Scene {
    bench: ToolEnvironment,
    /// Folder of the archives.
    release: PathBuf,
    archives: Vec<Archive>,
    /// Search path with kubectl, krew, and the plugins that krew installs.
    path: String,
}

impl Scene {
    /// Packs `program` for this machine. For other platforms, packs a text instead of a program,
    /// because krew unpacks the file without running it.
    async fn new(program: Option<PathBuf>) -> Self {
        let bench = ToolEnvironment::new().unwrap();
        let other = bench.folder().join("other");
        fs_err::write(&other, "a program of another platform").unwrap();
        let release = bench.folder().join("release");
        let archives = pack(&release, &program.unwrap_or_else(|| other.clone()), &other).await;
        write_checksums(&release, &archives).unwrap();
        let bin = bench.folder().join("bin");
        fs_err::create_dir(&bin).unwrap();
        for (tool, name) in [
            (Tool::Kubectl, "kubectl"),
            (Tool::Krew, "kubectl-krew"),
            (Tool::ValidateKrewManifest, "validate-krew-manifest"),
        ] {
            let program = tools::path_async(tool, None).await.unwrap();
            fs_err::os::unix::fs::symlink(program, bin.join(name)).unwrap();
        }
        let path = format!(
            "{}:{}:{}",
            bench.folder().join("krew/bin").display(),
            bin.display(),
            std::env::var("PATH").unwrap()
        );
        Self {
            bench,
            release,
            archives,
            path,
        }
    }

    async fn run(&self, line: &str) -> Output {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let mut programs = self
            .path
            .split(':')
            .map(|folder| Path::new(folder).join(name));
        let program = programs.find(|file| file.is_file()).unwrap();
        self.bench
            .clean(Command::new(program))
            .env("PATH", &self.path)
            .env("KREW_ROOT", self.bench.folder().join("krew"))
            .env("KREW_NO_UPGRADE_CHECK", "1")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(words)
            .output()
            .await
            .unwrap()
    }

    async fn done(&self, line: &str) -> String {
        self.run(line).await.success().unwrap()
    }

    /// Writes a manifest into the folder of a custom index.
    fn manifest(&self, index: &str, download: &str) -> PathBuf {
        let manifest = KrewManifest {
            version: VERSION,
            homepage: "https://example.com/team/kubectl-bundle",
            download,
            archives: &self.archives,
        };
        manifest.write(&self.bench.folder().join(index)).unwrap()
    }

    fn archive_of_this_machine(&self) -> &Archive {
        let here = DistPlatform::of_this_machine().unwrap();
        let archives = &mut self.archives.iter();
        archives.find(|archive| archive.platform == here).unwrap()
    }
}

async fn pack(release: &Path, program: &Path, other: &Path) -> Vec<Archive> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let plugin = &programs::get().await.unwrap().plugin;
    let content = ReleaseContent::of(root, plugin).unwrap();
    let here = DistPlatform::of_this_machine().unwrap();
    DistPlatform::ALL
        .map(|platform| {
            let program = BuiltProgram {
                platform,
                path: if platform == here { program } else { other }.to_owned(),
                runtime: Vec::new(),
            };
            Archive::write(release, root, &content, &program, VERSION).unwrap()
        })
        .to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn krew_installs_the_plugin_from_a_custom_index_and_rejects_other_bytes() {
    // Symbols are removed, so that the archive of the debug program is packed in seconds.
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("stripped");
    let strip = Command::new("/usr/bin/strip").args(["-o".as_ref(), stripped.as_os_str()]);
    let strip = strip.args([&programs::get().await.unwrap().plugin]);
    strip.output().await.unwrap().success().unwrap();
    let scene = Scene::new(Some(stripped)).await;
    let server = FileServer::start(scene.release.clone()).await.unwrap();
    let manifest = scene.manifest("index", &server.url());
    // The validation uses the rules of krew and of its public index, and installs the archive of
    // each platform.
    let validation = format!("validate-krew-manifest -manifest {}", manifest.display());
    scene.done(&validation).await;
    tokio::task::spawn_blocking(move || validate(&manifest))
        .await
        .unwrap()
        .unwrap();

    let index = scene.bench.folder().join("index");
    let git = format!("git -C {}", index.display());
    scene.done(&format!("{git} init --quiet")).await;
    scene.done(&format!("{git} add plugins")).await;
    let author = "-c user.name=release -c user.email=release@example.com";
    scene
        .done(&format!("{git} {author} commit --quiet --message=index"))
        .await;
    scene
        .done(&format!("kubectl krew index add team {}", index.display()))
        .await;
    let installed = scene.run("kubectl krew install team/bundle").await;
    assert!(installed.is_success(), "{installed}");
    assert!(
        installed
            .stderr
            .contains("kubectl bundle completion install"),
        "{installed}"
    );
    let version = scene.done("kubectl bundle version --client").await;
    assert_eq!(version, format!("Client Version: v{VERSION}"));
    let store = scene
        .bench
        .folder()
        .join(format!("krew/store/bundle/v{VERSION}"));
    for file in [
        "LICENSE",
        "licenses/third-party.txt",
        "licenses/rust-standard-library.html",
    ] {
        assert!(store.join(file).is_file(), "{file}");
    }

    // krew creates a link for one program only. The plugin adds the program for completion.
    scene.done("kubectl bundle completion install").await;
    let candidates = scene.done("kubectl __complete bundle stat").await;
    assert!(candidates.starts_with("status\t"), "{candidates}");

    let archive = scene.release.join(&scene.archive_of_this_machine().name);
    fs_err::write(&archive, "other bytes").unwrap();
    let refused = scene.run(&validation).await;
    assert!(!refused.is_success(), "{refused}");
    assert!(
        refused.stderr.contains("checksum does not match"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_has_its_checksum_a_signature_and_provenance() {
    let scene = Scene::new(None).await;
    let check = Command::new("/bin/sh").args(["-c", "sha256sum --check --quiet SHA256SUMS"]);
    let check = scene.bench.clean(check).current_dir(&scene.release);
    check.output().await.unwrap().success().unwrap();
    let listed = fs_err::read_to_string(scene.release.join("SHA256SUMS")).unwrap();
    assert_eq!(listed.lines().count(), DistPlatform::ALL.len());

    let bench = &scene.bench;
    let generate = "keys generate --output-key-prefix release";
    bench.run_plugin(generate).await.unwrap().success().unwrap();
    let provenance = Provenance {
        command: "cargo-xtask-dist",
        source: "https://example.com/team/project".to_owned(),
        commit: "0123456789012345678901234567890123456789".to_owned(),
        lock: "00".repeat(32),
        profile: "release".to_owned(),
        platforms: vec!["linux/amd64".to_owned()],
        compiler: "rustc 1.95.0".to_owned(),
        builder: None,
    };
    let archive = scene.archive_of_this_machine();
    let signer = ["--key".to_owned(), "release.key".to_owned()];
    let plugin = async |words: Vec<String>| bench.run_plugin(&words.join(" ")).await?.success();
    let files = sign(&scene.release, archive, Some(&provenance), &signer, plugin)
        .await
        .unwrap();

    let cosign = async |line: &str| bench.cosign(Tool::Cosign3, line).await.unwrap();
    let root = cosign("trusted-root create --out empty.json").await;
    root.success().unwrap();
    let offline = "--key release.pub --insecure-ignore-tlog=true --trusted-root empty.json";
    let file = scene.release.join(&archive.name);
    let (file, other) = (file.display(), scene.release.join("SHA256SUMS"));
    let signature = files.signature.display();
    let blob = format!("verify-blob {offline} --bundle {signature}");
    cosign(&format!("{blob} {file}")).await.success().unwrap();
    let refused = cosign(&format!("{blob} {}", other.display())).await;
    assert!(!refused.is_success(), "{refused}");
    let attested = files.provenance.unwrap();
    let attestation = format!(
        "verify-blob-attestation {offline} --type slsaprovenance1 --bundle {}",
        attested.display()
    );
    cosign(&format!("{attestation} {file}"))
        .await
        .success()
        .unwrap();
    let refused = cosign(&format!("{attestation} {}", other.display())).await;
    assert!(!refused.is_success(), "{refused}");
}
