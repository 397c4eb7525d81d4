//! Attacks with archives that try to write outside of the target. Each attack runs against both
//! unpackers: into memory and onto disk. No unpacker may write a file outside of the target. After
//! an error, the target must not contain any file.

mod cases;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use bundle_core::diagnostic::Code;
use bundle_core::reference::Digest;
use tar::{EntryType as T, Header};

use super::disk::TargetFolder;
use super::tests::{archive, entry, file, gzip};
use super::*;

/// A compressed layer, and the digest of its uncompressed tar in the configuration.
#[derive(Clone)]
struct CompressedLayer {
    bytes: Vec<u8>,
    diff_id: Digest,
    media_type: &'static str,
}

/// Returns a valid layer of these entries.
fn layer(entries: &[Vec<u8>]) -> CompressedLayer {
    let tar = archive(entries);
    CompressedLayer {
        bytes: gzip(&tar),
        diff_id: Digest::of(&tar),
        media_type: media::LAYER_GZIP,
    }
}

/// Returns the tar entry of a link from one path to another.
fn link(name: &str, kind: T, target: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o777);
    header.set_size(0);
    header.set_link_name_literal(target).unwrap();
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// Returns a PAX header with one record for the next entry.
fn pax(kind: T, key: &str, value: &str) -> Vec<u8> {
    let bare = format!(" {key}={value}\n");
    let mut length = bare.len() + 1;
    while format!("{length}{bare}").len() != length {
        length += 1;
    }
    entry(b"pax", kind, 0o644, format!("{length}{bare}").as_bytes())
}

fn into_memory(layers: &[CompressedLayer]) -> Result<Vec<String>, UnpackError> {
    let (config, named, descriptors) = image(layers);
    let mut unpacking = Unpacker::new(&named, &config, &descriptors, Limits::default())?;
    for (index, layer) in layers.iter().enumerate() {
        unpacking.layer(index, layer.bytes.as_slice())?;
    }
    Ok(unpacking.finish().into_keys().collect())
}

fn image(layers: &[CompressedLayer]) -> (Vec<u8>, Descriptor, Vec<Descriptor>) {
    let ids: Vec<_> = layers.iter().map(|layer| &layer.diff_id).collect();
    let config = serde_json::json!({ "rootfs": { "diff_ids": ids } }).to_string();
    let descriptors = layers
        .iter()
        .map(|layer| Descriptor::of(layer.media_type, &layer.bytes));
    let named = Descriptor::of(media::CONFIG, config.as_bytes());
    (config.clone().into_bytes(), named, descriptors.collect())
}

/// Unpacks into `target` like the command `unpack`.
fn onto_disk(
    target: &Path,
    layers: &[CompressedLayer],
    skip: bool,
) -> Result<disk::UnpackResult, Finding> {
    let (config, named, descriptors) = image(layers);
    let place = TargetFolder::prepare(target, false)?;
    let limits = Limits {
        total: 16 << 20,
        entries: 1000,
        ..Limits::for_images()
    };
    let mut unpacking =
        disk::DiskUnpacker::new(&place.folder(), &named, &config, &descriptors, limits, skip)?;
    for (index, layer) in layers.iter().enumerate() {
        unpacking.layer(index, layer.bytes.as_slice())?;
    }
    let written = unpacking.finish()?;
    place.keep()?;
    Ok(written)
}

/// Returns every path below a folder, with the mode of files and the target of links.
fn listing(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs_err::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs_err::symlink_metadata(&path).unwrap();
            let shown = path.strip_prefix(folder).unwrap().display().to_string();
            let what = if kind.is_dir() {
                left.push(path);
                continue;
            } else if kind.is_symlink() {
                format!("-> {}", fs_err::read_link(&path).unwrap().display())
            } else {
                fs_err::read_to_string(&path).unwrap_or_else(|_| "bytes".to_owned())
            };
            found.insert(shown, what);
        }
    }
    found
}

/// Expected results of both unpackers: the resulting paths, or a part of the error.
struct AttackCase {
    name: &'static str,
    layers: Vec<CompressedLayer>,
    memory: Result<&'static [&'static str], &'static str>,
    disk: Result<&'static [&'static str], &'static str>,
}

/// A gzipped archive with its expected result: the paths of its files, or the code and a part of
/// the error.
pub(crate) struct ArchiveCase {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: Result<&'static [&'static str], (Code, &'static str)>,
}

impl ArchiveCase {
    /// Compares `unpacked`, the result of unpacking the archive, with the expected result.
    pub(crate) fn check(&self, unpacked: Result<BTreeMap<String, Vec<u8>>, UnpackError>) {
        let name = self.name;
        match (unpacked, self.expected) {
            (Ok(files), Ok(expected)) => {
                let paths: Vec<_> = files.keys().map(String::as_str).collect();
                assert_eq!(paths, expected, "{name}");
            }
            (Err(error), Err((code, why))) => {
                let text = error.to_string();
                assert_eq!(error.finding().code, code, "{name}: {text}");
                assert!(text.contains(why), "{name}: {text}");
                assert!(!text.contains("layer"), "{name}: {text}");
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

/// An image with its expected result: the paths of its files, or the error.
pub(crate) struct ImageCase {
    pub(crate) name: &'static str,
    pub(crate) config: Vec<u8>,
    /// Descriptors and bytes of the layers, lowest first.
    pub(crate) layers: Vec<(Descriptor, Vec<u8>)>,
    /// Paths of the files.
    pub(crate) expected: Result<Vec<String>, UnpackError>,
}

/// Returns all attacks as images.
pub(crate) fn images() -> impl Iterator<Item = ImageCase> {
    cases::all().map(|row| {
        let (config, _, descriptors) = image(&row.layers);
        let expected = into_memory(&row.layers);
        let bytes = row.layers.into_iter().map(|layer| layer.bytes);
        ImageCase {
            name: row.name,
            config,
            layers: descriptors.into_iter().zip(bytes).collect(),
            expected,
        }
    })
}

/// Returns the attacks that consist of one compressed layer, as archives.
pub(crate) fn archives() -> impl Iterator<Item = ArchiveCase> {
    cases::all().filter_map(|row| {
        let [layer] = row.layers.as_slice() else {
            return None;
        };
        let is_archive = layer.media_type == media::LAYER_GZIP && row.name != "wrong diff_id";
        let code = || into_memory(&row.layers).unwrap_err().finding().code;
        is_archive.then(|| ArchiveCase {
            name: row.name,
            bytes: layer.bytes.clone(),
            expected: row.memory.map_err(|why| (code(), why)),
        })
    })
}

#[test]
fn hostile_archives_write_nothing_outside_the_target() {
    for row in cases::all() {
        let name = row.name;
        match (into_memory(&row.layers), row.memory) {
            (Ok(paths), Ok(expected)) => assert_eq!(paths, expected, "{name}"),
            (Err(error), Err(why)) => {
                assert!(error.to_string().contains(why), "{name}: {error}");
            }
            (found, _) => panic!("{name}, in memory: {found:?}"),
        }
        let root = tempfile::tempdir().unwrap();
        fs_err::write(root.path().join("sentinel"), "untouched").unwrap();
        let target = root.path().join("a/target");
        let unpacked = onto_disk(&target, &row.layers, false);
        let after = listing(root.path());
        assert_eq!(after["sentinel"], "untouched", "{name}");
        match (&unpacked, row.disk) {
            (Ok(_), Ok(expected)) => {
                let prefix = "a/target/";
                let found: Vec<_> = after
                    .keys()
                    .filter_map(|path| path.strip_prefix(prefix))
                    .collect();
                assert_eq!(after.len(), found.len() + 1, "{name}: {after:?}");
                if !expected.is_empty() {
                    assert_eq!(found, expected, "{name}");
                }
            }
            (Err(error), Err(why)) => {
                assert!(error.to_string().contains(why), "{name}: {error}");
                assert_eq!(after.len(), 1, "{name}: {after:?}");
                let left = fs_err::read_dir(root.path().join("a")).unwrap().count();
                assert_eq!(left, 0, "{name} leaves something");
            }
            _ => panic!("{name}, on disk: {unpacked:?}, {after:?}"),
        }
    }
    assert!(!Path::new("/tmp/bundle-hostile").exists());
}

/// An archive with a million entries is read as a stream. Memory is bounded by the limit on
/// entries.
#[test]
fn million_empty_files_stop_at_the_entry_limit() {
    /// Position in a list of entries that is read again and again. One repetition exceeds every
    /// limit.
    struct RepeatedEntries<'a>(&'a [u8], usize);
    impl Read for RepeatedEntries<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let rest = &self.0[self.1 % self.0.len()..];
            let left = (1_000_000 * 512 - self.1).min(rest.len());
            let taken = left.min(buffer.len());
            buffer[..taken].copy_from_slice(&rest[..taken]);
            self.1 += taken;
            Ok(taken)
        }
    }
    let round: Vec<u8> = (0..25_000)
        .flat_map(|i| file(&format!("f{i}"), b""))
        .collect();
    let many = || RepeatedEntries(&round, 0);
    let mut hash = crate::hash::Hasher::new();
    let mut archive = many();
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        let read = archive.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        size += read as u64;
        hash.update(&buffer[..read]);
    }
    let mut layer = Descriptor::of(media::LAYER_TAR, b"");
    layer.digest = hash.finish();
    layer.size = size;
    let config = serde_json::json!({ "rootfs": { "diff_ids": [layer.digest] } }).to_string();
    let named = Descriptor::of(media::CONFIG, config.as_bytes());
    let limits = Limits {
        layer: 1 << 30,
        total: 1 << 30,
        ..Limits::default()
    };
    let layers = [layer];
    let mut memory = Unpacker::new(&named, config.as_bytes(), &layers, limits).unwrap();
    let error = memory.layer(0, many()).unwrap_err();
    assert!(error.to_string().contains("number of entries"), "{error}");
    let root = tempfile::tempdir().unwrap();
    let place = TargetFolder::prepare(&root.path().join("t"), false).unwrap();
    let folder = place.folder();
    let mut disk =
        disk::DiskUnpacker::new(&folder, &named, config.as_bytes(), &layers, limits, true).unwrap();
    let error = disk.layer(0, many()).unwrap_err();
    assert!(error.to_string().contains("number of entries"), "{error}");
    drop(place);
    assert!(listing(root.path()).is_empty());
}

#[test]
fn created_parent_folders_count_as_entries() {
    let folders = ["d"; 40].join("/");
    let entries = |number: usize| -> Vec<Vec<u8>> {
        (0..number)
            .map(|n| file(&format!("{n}/{folders}/f"), b""))
            .collect()
    };
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("t");
    // The limit is 1,000 entries. Each file has 41 parent folders.
    let error = onto_disk(&target, &[layer(&entries(24))], false).unwrap_err();
    assert!(error.message.contains("the number of entries"), "{error}");
    assert!(listing(root.path()).is_empty());
    onto_disk(&target, &[layer(&entries(23))], false).unwrap();
}

#[test]
fn paths_folders_and_targets_of_links_count_towards_the_length_of_all_paths() {
    let soft = link("l", T::Symlink, &"t".repeat(90));
    let hard = link("h", T::Link, "l");
    let removal = file(&format!(".wh.{}", "x".repeat(60)), b"");
    let deep = file(&["d"; 40].join("/"), b"");
    for (name, entries, is_accepted) in [
        ("link", vec![soft.clone()], true),
        ("hard link to a link", vec![soft, hard], false),
        ("parent folders", vec![deep], false),
        ("whiteouts", vec![removal.clone(), removal], false),
    ] {
        let layers = [layer(&entries)];
        let (config, named, descriptors) = image(&layers);
        let limits = Limits {
            names: 100,
            ..Limits::for_images()
        };
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        let mut unpacking =
            disk::DiskUnpacker::new(folder, &named, &config, &descriptors, limits, true).unwrap();
        match unpacking.layer(0, layers[0].bytes.as_slice()) {
            Ok(()) => assert!(is_accepted, "{name}"),
            Err(error) => {
                assert!(!is_accepted, "{name}: {error}");
                let expected = "the length of all paths is larger than the limit of 100 B";
                assert_eq!(error.to_string(), expected, "{name}");
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn result_lists_modes_links_and_skipped_entries() {
    use std::os::unix::fs::PermissionsExt as _;

    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("t");
    let layers = [layer(&[
        entry(b"sudo", T::Regular, 0o6777, b"x"),
        entry(b"secret", T::Regular, 0o400, b"x"),
        entry(b"dev/null", T::Char, 0o666, b""),
        link("usr/bin/sh", T::Symlink, "/bin/busybox"),
        link("out", T::Symlink, "../../x"),
        link("self", T::Symlink, "/"),
    ])];
    let written = onto_disk(&target, &layers, true).unwrap();
    assert_eq!(
        (written.files, written.links, written.setuid_removed),
        (2, 2, 1)
    );
    assert_eq!(
        written.skipped,
        [
            "`dev/null` is a device",
            "`out` is a symbolic link to a target that is outside of the folder or cannot exist"
        ]
    );
    let mode = |path: &str| {
        let found = fs_err::metadata(target.join(path)).unwrap();
        found.permissions().mode() & 0o7777
    };
    assert_eq!(
        mode("sudo") & 0o7022,
        0,
        "neither setuid nor writable by others"
    );
    assert_eq!(mode("secret"), 0o600);
    let links = listing(&target);
    assert_eq!(links["usr/bin/sh"], "-> ../../bin/busybox");
    assert_eq!(links["self"], "-> .");
}

#[test]
fn rejects_a_folder_with_content_unless_it_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("t");
    let layers = [layer(&[file("a", b"new")])];
    fs_err::create_dir(&target).unwrap();
    onto_disk(&target, &layers, false).unwrap();
    assert_eq!(listing(root.path()).len(), 1, "an empty folder is filled");
    let error = onto_disk(&target, &layers, false).unwrap_err();
    assert!(error.message.contains("not empty"), "{error}");
    fs_err::write(target.join("b"), "old").unwrap();
    let place = TargetFolder::prepare(&target, true).unwrap();
    fs_err::write(place.folder().join("c"), "newer").unwrap();
    place.keep().unwrap();
    let found: Vec<_> = listing(root.path()).into_keys().collect();
    assert_eq!(found, ["t/c"]);
    for precious in ["/", "."] {
        assert!(TargetFolder::prepare(Path::new(precious), true).is_err());
    }
}

#[test]
fn whiteouts_count_towards_the_length_of_all_paths() {
    let removals: Vec<Vec<u8>> = (0..8_000)
        .map(|n| file(&format!("{}/.wh.{n:05}", "x".repeat(80)), b""))
        .collect();
    let error = into_memory(&[layer(&removals)]).unwrap_err();
    assert!(
        error.to_string().contains("the length of all paths"),
        "{error}"
    );
    assert_eq!(into_memory(&[layer(&removals[..1_000])]), Ok(Vec::new()));
}
