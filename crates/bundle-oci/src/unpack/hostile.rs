//! Attacks with archives that try to write outside of the target. Each runs against the unpackers
//! into memory and onto disk; nothing may be written outside of the target, nor be left inside
//! after an error.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

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

/// A valid layer of these entries.
fn layer(entries: &[Vec<u8>]) -> CompressedLayer {
    let tar = archive(entries);
    CompressedLayer {
        bytes: gzip(&tar),
        diff_id: Digest::of(&tar),
        media_type: media::LAYER_GZIP,
    }
}

/// A link from one path to another.
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

/// A PAX header with one record for the next entry.
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

/// Unpacks into `target` as the command does.
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

/// Both reject it with the same reason.
fn refused(name: &'static str, entries: &[Vec<u8>], why: &'static str) -> AttackCase {
    AttackCase {
        name,
        layers: vec![layer(entries)],
        memory: Err(why),
        disk: Err(why),
    }
}

/// Accepted in images of workloads only.
fn foreign(
    name: &'static str,
    layers: Vec<CompressedLayer>,
    memory: &'static str,
    disk: Result<&'static [&'static str], &'static str>,
) -> AttackCase {
    AttackCase {
        name,
        layers,
        memory: Err(memory),
        disk,
    }
}

fn names() -> Vec<AttackCase> {
    let plain = |name: &[u8]| vec![entry(name, T::Regular, 0o644, b"x")];
    let deep = format!("{}x", "d/".repeat(130));
    let mut long = entry(b"././@LongLink", T::GNULongName, 0, &vec![b'a'; 2 << 20]);
    long.extend(file("short", b"x"));
    let mut gnu_up = entry(b"././@LongLink", T::GNULongName, 0, b"../../up\0");
    gnu_up.extend(file("innocent", b"x"));
    vec![
        refused("..", &plain(b"../up"), "`..`"),
        refused(".. inside", &plain(b"a/../../up"), "`..`"),
        refused("absolute", &plain(b"/tmp/bundle-hostile"), "absolute path"),
        refused("drive letter", &plain(b"C:/x"), "absolute path"),
        refused(
            "control character",
            &plain(b"a\x1b[2Jb"),
            "control character",
        ),
        refused("not UTF-8", &plain(b"a\xff"), "not UTF-8"),
        refused(
            "too deep",
            &plain(&deep.as_bytes()[..99]),
            "too many folders",
        )
        .disk_only_path(&["d/"]),
        refused("GNU long name of 2 MiB", &[long], "1 MiB of headers"),
        refused("GNU long name with ..", &[gnu_up], "`..`"),
        refused(
            "PAX path with ..",
            &[pax(T::XHeader, "path", "../up"), file("innocent", b"x")],
            "`..`",
        ),
        refused(
            "PAX path that is absolute",
            &[pax(T::XHeader, "path", "/up"), file("innocent", b"x")],
            "absolute",
        ),
        refused(
            "PAX path with NUL",
            &[pax(T::XHeader, "path", "a\0b"), file("innocent", b"x")],
            "control character",
        ),
        // The record wins: 1024 bytes are expected, and the archive ends before.
        refused(
            "PAX size that is larger",
            &[pax(T::XHeader, "size", "4096"), file("a", b"x")],
            "cannot be read",
        ),
        // The header's content is read as an entry, and is not a valid one.
        refused(
            "PAX size that is smaller",
            &[pax(T::XHeader, "size", "0"), file("a", &[b'x'; 600])],
            "cannot be read",
        ),
        refused(
            "PAX records for every entry",
            &[pax(T::XGlobalHeader, "path", "up"), file("a", b"x")],
            "",
        ),
        refused(
            "PAX sparse file",
            &[pax(T::XHeader, "GNU.sparse.major", "1"), file("a", b"x")],
            "sparse file",
        ),
        refused("whiteout of ..", &[file("a/.wh...", b"")], "whiteout"),
        refused("whiteout of nothing", &[file(".wh.", b"")], "whiteout"),
    ]
}

impl AttackCase {
    /// Images of workloads may have deeper folders than bundles.
    fn disk_only_path(mut self, _: &[&str]) -> Self {
        self.disk = Ok(&[]);
        self
    }
}

fn kinds() -> Vec<AttackCase> {
    let special = |kind| vec![entry(b"dev/x", kind, 0o644, b"")];
    let setuid = vec![layer(&[entry(b"sudo", T::Regular, 0o6777, b"x")])];
    vec![
        refused("character device", &special(T::Char), "device"),
        refused("block device", &special(T::Block), "device"),
        refused("named pipe", &special(T::Fifo), "named pipe"),
        refused("GNU sparse", &[sparse()], "sparse"),
        refused("unknown kind", &special(T::new(b'Q')), "neither"),
        foreign("setuid", setuid, "setuid", Ok(&["sudo"])),
    ]
}

/// A GNU sparse file: 512 bytes for 1 GiB.
fn sparse() -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_path("sparse").unwrap();
    header.set_entry_type(T::GNUSparse);
    header.set_mode(0o644);
    header.set_size(0);
    {
        let gnu = header.as_gnu_mut().unwrap();
        gnu.realsize.copy_from_slice(b"10000000000\0");
        gnu.sparse[0].offset.copy_from_slice(b"10000000000\0");
        gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
    }
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn links() -> Vec<AttackCase> {
    let soft = |name: &str, target: &str| link(name, T::Symlink, target);
    let hard = |name: &str, target: &str| link(name, T::Link, target);
    let one = |entries: &[Vec<u8>]| vec![layer(entries)];
    let outside = Err("outside of the folder");
    let no_link = "symbolic link";
    vec![
        foreign(
            "link",
            one(&[soft("l", "../../etc/passwd")]),
            no_link,
            outside,
        ),
        foreign(
            "absolute link",
            one(&[soft("d/l", "/etc/passwd")]),
            no_link,
            Ok(&["d/l"]),
        ),
        foreign(
            "file through a link",
            one(&[soft("l", "/tmp"), file("l/bundle-hostile", b"x")]),
            no_link,
            Err("a symbolic link"),
        ),
        foreign(
            "file through a link of a lower layer",
            vec![
                layer(&[soft("l", "..")]),
                layer(&[file("l/bundle-hostile", b"x")]),
            ],
            no_link,
            Err("a symbolic link"),
        ),
        foreign(
            "links that lead outside together",
            one(&[soft("a/b/c", "../.."), soft("d", "a/b/c/../x")]),
            no_link,
            outside,
        ),
        foreign(
            "link to itself",
            one(&[soft("a", "b"), soft("b", "a")]),
            no_link,
            outside,
        ),
        foreign(
            "link replaced by a file in the same layer",
            one(&[soft("l", "../up"), file("l", b"x")]),
            no_link,
            Err("appears twice"),
        ),
        foreign(
            "link replaced by a file above",
            vec![layer(&[soft("l", "../up")]), layer(&[file("l", b"x")])],
            no_link,
            Ok(&["l"]),
        ),
        foreign(
            "link replaced by a folder above",
            vec![layer(&[soft("l", "../up")]), layer(&[file("l/x", b"x")])],
            no_link,
            Err("a symbolic link"),
        ),
        foreign(
            "hard link outside",
            one(&[hard("h", "../../etc/passwd")]),
            "hard link",
            Err("`..`"),
        ),
        foreign(
            "hard link to nothing",
            one(&[hard("h", "etc/passwd")]),
            "hard link",
            Err("does not exist"),
        ),
        foreign(
            "hard link to a folder",
            one(&[file("d/a", b"x"), hard("h", "d")]),
            "hard link",
            Err("a folder"),
        ),
        foreign(
            "hard link to a link",
            one(&[soft("l", "../up"), hard("h", "l")]),
            no_link,
            outside,
        ),
        foreign(
            "hard links in a chain",
            one(&[file("a", b"x"), hard("b", "a"), hard("c", "b")]),
            "hard link",
            Ok(&["a", "b", "c"]),
        ),
        foreign(
            "hard link into what it replaces",
            vec![layer(&[file("d/a", b"x")]), layer(&[hard("d", "d/a")])],
            "hard link",
            Err("replaces"),
        ),
        foreign(
            "hard link, then another file above",
            vec![
                layer(&[file("a", b"one"), hard("b", "a")]),
                layer(&[file("b", b"two")]),
            ],
            "hard link",
            Ok(&["a", "b"]),
        ),
    ]
}

fn shapes() -> Vec<AttackCase> {
    let honest = layer(&[file("a", b"x")]);
    let with = |change: fn(&mut CompressedLayer)| {
        let mut sent = honest.clone();
        change(&mut sent);
        vec![sent]
    };
    let both = |name, layers: Vec<CompressedLayer>, why| AttackCase {
        name,
        layers,
        memory: Err(why),
        disk: Err(why),
    };
    let same = |name, entries: &[Vec<u8>], paths| AttackCase {
        name,
        layers: vec![layer(entries)],
        memory: Ok(paths),
        disk: Ok(paths),
    };
    let bomb = layer(&["a", "b"].map(|name| file(name, &vec![0; 6 << 20])));
    let many: Vec<u8> = (0..20_001)
        .flat_map(|i| file(&i.to_string(), b""))
        .collect();
    let many = CompressedLayer {
        diff_id: Digest::of(&many),
        bytes: many,
        media_type: media::LAYER_TAR,
    };
    vec![
        refused("twice", &[file("a", b"1"), file("a", b"2")], "twice"),
        refused(
            "file and folder",
            &[file("a", b"1"), entry(b"a/", T::Directory, 0o755, b"")],
            "",
        ),
        refused(
            "inside a file",
            &[file("a", b"1"), file("a/b", b"2")],
            "is inside",
        ),
        same(
            "upper and lower case",
            &[file("A", b"1"), file("a", b"2")],
            &["A", "a"],
        ),
        both(
            "entries after the end",
            {
                let tar = [archive(&[file("a", b"x")]), archive(&[file("../b", b"x")])].concat();
                vec![CompressedLayer {
                    bytes: gzip(&tar),
                    diff_id: Digest::of(&tar),
                    media_type: media::LAYER_GZIP,
                }]
            },
            "after the end",
        ),
        both(
            "cut gzip",
            with(|sent| {
                sent.bytes.truncate(sent.bytes.len() - 9);
            }),
            "cannot be read",
        ),
        both(
            "rubbish behind the gzip",
            with(|sent| sent.bytes.extend(b"rubbish")),
            "cannot be read",
        ),
        both(
            "a second gzip with an archive",
            with(|sent| {
                sent.bytes.extend(gzip(&archive(&[file("../b", b"x")])));
            }),
            "after the end",
        ),
        both(
            "wrong diff_id",
            with(|sent| sent.diff_id = Digest::of(b"")),
            "does not match its digest",
        ),
        both("bomb", vec![bomb], "200 times"),
        both("too many empty files", vec![many], "number of entries"),
        AttackCase {
            name: "whiteouts",
            layers: vec![
                layer(&[
                    file("gone", b"1"),
                    file("opaque/a", b"1"),
                    file("kept/a", b"1"),
                    file("both/a", b"1"),
                ]),
                layer(&[
                    file(".wh.gone", b""),
                    file("opaque/b", b"2"),
                    file("opaque/.wh..wh..opq", b""),
                    file("both/b", b"2"),
                    file(".wh.both", b""),
                    file(".wh.never-there", b""),
                ]),
            ],
            memory: Ok(&["both/b", "kept/a", "opaque/b"]),
            disk: Ok(&["both/b", "kept/a", "opaque/b"]),
        },
        foreign(
            "a whiteout through a link",
            vec![
                layer(&[link("l", T::Symlink, "..")]),
                layer(&[file("l/.wh.sentinel", b"")]),
            ],
            "symbolic link",
            Err("outside of the folder"),
        ),
    ]
}

#[test]
fn hostile_archives_write_nothing_outside_the_target() {
    for row in [names(), kinds(), links(), shapes()].into_iter().flatten() {
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

/// An archive of a million entries is streamed: memory is bounded by the limit.
#[test]
fn million_empty_files_stop_at_the_entry_limit() {
    /// Position in a repeated list of entries: one round exceeds every limit.
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
    assert_eq!((written.files, written.links, written.unmarked), (2, 2, 1));
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
